# data -> teacher -> teacher scores -> student -> evaluation -> comparison. Finished steps are not repeated, interrupted
# downloads and trainings go on where they stopped. Data that is missing is downloaded when you agree to it (YES=1: at
# once); MSMARCO= and SODQ= are further arguments of `crossjem prepare`, for example MSMARCO="--hdct FOLDER".
#
#   make train-sodq YES=1
#   make train-msmarco ENCODER=... TEACHER_ENCODER=... OVERLAYS="-c experiments/trainers/ddp-a100.yaml"

ENCODER ?= distilbert/distilbert-base-uncased
TEACHER_ENCODER ?= google-bert/bert-base-uncased
OVERLAYS ?=
OPTIONS ?=
RUNS ?= runs
MSMARCO ?=
SODQ ?= --mteb mteb/stackoverflowdupquestions-reranking

.PHONY: train-sodq train-msmarco
train-sodq: DATA ?= data/sodq
train-sodq: $(RUNS)/sodq/comparison/compare.md ## SODQ: teacher, its scores, CROSS-JEM, evaluation (DATA=data/sodq)
train-msmarco: DATA ?= data/msmarco-titles
train-msmarco: $(RUNS)/msmarco/comparison/compare.md ## MS MARCO titles, likewise (DATA=data/msmarco-titles)

# $(call resume,folder): goes on from the last checkpoint of an interrupted training
resume = $(if $(wildcard $(1)/checkpoints/last.ckpt),--ckpt_path last)
fit = $(BIN)/crossjem fit -c experiments/$*.yaml
common = $(OVERLAYS) --data.root $(DATA) $(OPTIONS)

prepare_sodq = sodq $(SODQ)
prepare_msmarco = msmarco-titles $(MSMARCO)
# the last part that a training needs, if it is there and whole
prepared = $(if $(wildcard $(DATA)/dev.parquet/manifest.json),$(shell grep -l '"complete": true' \
  $(DATA)/dev.parquet/manifest.json),$(wildcard $(DATA)/dev.parquet))

# read once, at the end; MS MARCO has judged dev queries only
tests = $(wildcard $(DATA)/test.parquet)
measures_sodq = AP@10 RR@10 AP@5 RR@5
measures_msmarco = RR@10 RR@5 AP@10

.PRECIOUS: $(RUNS)/%/teacher/.trained $(RUNS)/%/scores.parquet $(RUNS)/%/student/.trained

$(RUNS)/%/teacher/.trained: | $(READY)
	$(if $(prepared),,$(BIN)/crossjem prepare $(prepare_$*) --out $(DATA) $(if $(YES),--yes))
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
	$(if $(tests),$(BIN)/crossjem test $(RUNS)/$*/teacher/model $(tests) --metrics $(measures_$*))
	$(if $(tests),$(BIN)/crossjem test $(RUNS)/$*/student/model $(tests) --metrics $(measures_$*))
	$(BIN)/crossjem compare $(RUNS)/$*/teacher $(RUNS)/$*/student --split $(if $(tests),test,val) --out $(@D)
