# Every target sets up its own virtual environment: `make quickstart` and `make test` need only Python and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

export OMP_NUM_THREADS ?= $(shell nproc 2>/dev/null || echo 2)
export TOKENIZERS_PARALLELISM ?= false

.PHONY: help setup quickstart test bench-latency bench-training bench-scaling bench-limits lint clean
.DEFAULT_GOAL := help

help: ## this text
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):[^#]*## ?/  \1\t/' | expand -t 22
	@echo "  tableN              table N of the paper, N in $(TABLES) (SMOKE=1: minutes; DATA=, DATASET=, ENCODER=)"

setup: $(READY) ## create .venv with everything pinned in constraints.txt

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[offline,plots,dev]'
	touch $@

quickstart: $(READY) ## train CROSS-JEM on simulated lists, compare it with BM25, rank an example (minutes on two cores)
	PATH="$(CURDIR)/$(BIN):$$PATH" sh experiments/quickstart.sh

# Two processes: after all other tests the native runtimes of exported models have crashed in one process.
test: $(READY) ## all tests
	$(BIN)/pytest tests/inference
	$(BIN)/pytest --ignore tests/inference

bench-latency: $(READY) ## latency and throughput of all rankers and of public cross-encoders (ARGS=--smoke: two minutes)
	$(BIN)/python -m benchmarks.latency $(ARGS)

bench-training: $(READY) ## training speed and memory of CROSS-JEM, monoBERT and sentence-transformers (ARGS=--smoke)
	$(BIN)/python -m benchmarks.training $(ARGS)

bench-scaling: $(READY) ## cost against items and against the token union, with exponents (ARGS=--smoke)
	$(BIN)/python -m benchmarks.scaling $(ARGS)

bench-limits: $(READY) ## where models lose accuracy: items, union length, rare words (ARGS="--model NAME=FOLDER --lists FILE")
	$(BIN)/python -m benchmarks.limits $(ARGS)

lint: $(READY) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean: ## remove the environment and caches (runs/ and data/ stay)
	rm -rf $(VENV) .mypy_cache .ruff_cache build dist

include experiments/distil.mk
include benchmarks/tables/tables.mk
include benchmarks/study/study.mk
