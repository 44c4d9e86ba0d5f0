#!/bin/sh
# CROSS-JEM on simulated lists against BM25 on held-out ones, then one query ranked and explained.
set -eu
precision=$(python -c 'from crossjem_pl.training.precision import best_precision; print(best_precision())')

rm -rf runs/quickstart runs/quickstart-bm25
crossjem fit -c experiments/quickstart.yaml --trainer.precision "$precision"
crossjem test -c experiments/quickstart.yaml --trainer.precision "$precision" \
  --model.weights runs/quickstart/model
crossjem test -c experiments/quickstart.yaml -c experiments/rankers/bm25.yaml \
  --trainer.default_root_dir runs/quickstart-bm25
crossjem compare runs/quickstart-bm25 runs/quickstart --split test --out runs/quickstart/comparison
crossjem rank runs/quickstart/model --explain "cheap waterproof running shoes" \
  "waterproof trail running shoes" "running shoes on sale" "leather office shoes" "running watch" "waterproof phone case"
