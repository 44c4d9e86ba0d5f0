# One target per table of the paper: ours beside the paper's figures, written to docs/results/tableN.md.
#
#   make table6 SMOKE=1
#   make table6 DATA=data ENCODER=distilbert/distilbert-base-uncased SEEDS="0 1 2"
#   make table6 DATASET=debian-titles DATA=data/debian-titles ENCODER=packaged:all-MiniLM-L6-v2

TABLES := 2 3 4 6 7 8 9 10 11
SMOKE ?=
DATASET ?=
SEEDS ?= 0
TABLE_OPTIONS ?=
given = $(if $(filter-out undefined default,$(origin $(1))),$(if $($(1)),$(2) $($(1))))

.PHONY: $(TABLES:%=table%)
$(TABLES:%=table%): table%: $(READY)
	$(BIN)/python -m benchmarks.tables $* --seeds $(SEEDS) $(if $(SMOKE),--smoke) $(call given,DATA,--data) \
	  $(call given,DATASET,--dataset) $(if $(filter file,$(origin ENCODER)),,$(call given,ENCODER,--encoder)) \
	  $(if $(filter file,$(origin TEACHER_ENCODER)),,$(call given,TEACHER_ENCODER,--teacher-encoder)) \
	  --runs $(RUNS)/tables $(TABLE_OPTIONS)
