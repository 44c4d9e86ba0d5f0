# teacher -> teacher scores -> student -> evaluation -> comparison. Finished steps are not repeated, interrupted
# trainings go on from their last checkpoint.
#
#   make train-sodq
#   make train-msmarco ENCODER=... TEACHER_ENCODER=... OVERLAYS="-c experiments/trainers/ddp-a100.yaml"

ENCODER ?= distilbert/distilbert-base-uncased
TEACHER_ENCODER ?= google-bert/bert-base-uncased
OVERLAYS ?=
OPTIONS ?=
RUNS ?= runs

.PHONY: train-sodq train-msmarco
train-sodq: DATA ?= data/sodq
train-sodq: $(RUNS)/sodq/comparison/compare.md ## SODQ: teacher, its scores, CROSS-JEM, evaluation (DATA=data/sodq)
train-msmarco: DATA ?= data/msmarco-titles
train-msmarco: $(RUNS)/msmarco/comparison/compare.md ## MS MARCO titles, likewise (DATA=data/msmarco-titles)

# $(call resume,folder): goes on from the last checkpoint of an interrupted training
resume = $(if $(wildcard $(1)/checkpoints/last.ckpt),--ckpt_path last)
fit = $(BIN)/crossjem fit -c experiments/$*.yaml
common = $(OVERLAYS) --data.root $(DATA) $(OPTIONS)

.PRECIOUS: $(RUNS)/%/teacher/.trained $(RUNS)/%/scores.parquet $(RUNS)/%/student/.trained

$(RUNS)/%/teacher/.trained: | $(READY)
	@test -e $(DATA)/train.parquet || { echo "no $(DATA)/train.parquet: make it with crossjem prepare \
	(docs/prepare.md) or crossjem convert (docs/data.md), beside dev.parquet, or give DATA=FOLDER"; exit 2; }
	$(fit) -c experiments/rankers/monobert.yaml -c experiments/losses/bce.yaml $(common) \
	  --model.ranker.init_args.encoder $(TEACHER_ENCODER) --trainer.default_root_dir $(@D) $(call resume,$(@D))
	touch $@

$(RUNS)/%/scores.parquet: $(RUNS)/%/teacher/.trained
	$(BIN)/crossjem teach $(<D)/model $(DATA)/train.parquet --out $@

$(RUNS)/%/student/.trained: $(RUNS)/%/scores.parquet
	$(fit) $(common) --model.ranker.init_args.encoder $(ENCODER) --data.teacher_scores $(abspath $<) \
	  --trainer.default_root_dir $(@D) $(call resume,$(@D))
	touch $@

$(RUNS)/%/comparison/compare.md: $(RUNS)/%/student/.trained
	$(BIN)/crossjem compare $(RUNS)/$*/teacher $(RUNS)/$*/student --out $(@D)
