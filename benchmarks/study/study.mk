# The accuracy study: rivals and variants at equal lists and in equal training time, written to docs/results/accuracy.md.
#
#   make study-accuracy SMOKE=1
#   make study-accuracy DATA=data/debian-titles SEEDS="0" STUDY_OPTIONS="--minutes 10 --more-seeds 1 2"

STUDY_OPTIONS ?=

.PHONY: study-accuracy
study-accuracy: $(READY) ## accuracy against cost of CROSS-JEM, its variants and rivals (DATA=, SMOKE=1: minutes)
	$(BIN)/python -m benchmarks.study --seeds $(SEEDS) $(if $(SMOKE),--smoke --out docs/results/smoke) \
	  $(call given,DATA,--data) $(call given,DATASET,--dataset) --runs $(RUNS)/study $(STUDY_OPTIONS)
