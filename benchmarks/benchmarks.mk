# Measurements, the papers' tables and the accuracy study.
#
#   make bench-latency ARGS=--smoke
#   make table6 SMOKE=1
#   make table6 DATA=data ENCODER=distilbert/distilbert-base-uncased SEEDS="0 1 2"
#   make table6 DATASET=debian-titles DATA=data/debian-titles ENCODER=packaged:all-MiniLM-L6-v2
#   make study-accuracy DATA=data/debian-titles SEEDS=0 STUDY_OPTIONS="--minutes 10"

TABLES := 2 3 4 5 6 7 8 9 10 11
SMOKE ?=
DATASET ?=
SEEDS ?= 0
TABLE_OPTIONS ?=
STUDY_OPTIONS ?=
# $(call given,VARIABLE,--option): the option with the variable's value, if somebody set it
given = $(if $(filter command line environment override,$(origin $(1))),$(if $($(1)),$(2) $($(1))))
run_options = --seeds $(SEEDS) $(if $(SMOKE),--smoke) $(foreach option,data dataset encoder teacher-encoder,$(call \
  given,$(shell echo $(option) | tr a-z- A-Z_),--$(option)))

.PHONY: bench-latency bench-serving bench-training bench-scaling bench-limits bench-gpu study-accuracy release-model $(TABLES:%=table%)

bench-latency: $(READY) ## latency and throughput of all rankers and of public cross-encoders (ARGS=--smoke: two minutes)
bench-training: $(READY) ## training speed and memory of CROSS-JEM, monoBERT and sentence-transformers (ARGS=--smoke)
bench-scaling: $(READY) ## cost against items and against the token union, with exponents (ARGS=--smoke)
bench-serving: $(READY) ## the server under load beside CrossEncoder (ARGS=--smoke; ARGS="--soak 10 --overload 60")
bench-limits: $(READY) ## where models lose accuracy as candidates are added (ARGS="--model NAME=FOLDER --lists FILE")
bench-gpu: $(READY) ## a GPU in ten minutes: parity, latency, memory, training, tune, DDP (ARGS="--device cpu --smoke")
bench-latency bench-training bench-scaling bench-serving bench-limits bench-gpu: bench-%:
	$(BIN)/python -m benchmarks.$* $(ARGS)

$(TABLES:%=table%): table%: $(READY)
	$(BIN)/python -m benchmarks.tables $* $(run_options) --runs $(RUNS)/tables $(TABLE_OPTIONS)

release-model: $(READY) ## train a general model and compare it with the default (RELEASE_DATA="a b" RELEASE_CHECK="c d")
	$(BIN)/python -m benchmarks.release --out $(RUNS)/release --data $(RELEASE_DATA) --check $(RELEASE_CHECK) $(ARGS)

study-accuracy: $(READY) ## accuracy against cost of CROSS-JEM, its variants and rivals (DATA=, SMOKE=1: minutes)
	$(BIN)/python -m benchmarks.tables study $(run_options) --runs $(RUNS)/study $(STUDY_OPTIONS)
