# Every target sets up its own virtual environment: `make quickstart` and `make test` need only Python and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

export OMP_NUM_THREADS ?= $(shell nproc 2>/dev/null || echo 2)
export TOKENIZERS_PARALLELISM ?= false

.PHONY: help setup quickstart test test-clients test-adapters fuzz docs lint audit clean
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

test: $(READY) ## all tests, and the examples in docstrings
	$(BIN)/pytest

fuzz: $(READY) ## FUZZ_CASES damaged files, divided evenly over all kinds, and as many random requests; kills, full disks, many calls
	FUZZ_CASES=$(or $(FUZZ_CASES),20000) FUZZ_SEED=$(or $(FUZZ_SEED),0) $(BIN)/pytest tests/faults tests/serving/test_api.py
	SOAK_CALLS=50000 THREAD_CALLS=10000 $(BIN)/pytest tests/faults/test_endurance.py
	$(BIN)/python -m tests.faults.interrupted kills 200
	$(BIN)/python -m tests.faults.interrupted full 100

docs: $(READY) ## the documentation as a site, in site/
	$(BIN)/mkdocs build --strict

# Public rerank clients, whose requirements are not ours, against a live server.
CLIENTS ?= /tmp/crossjem-clients
test-clients: $(READY) ## cohere, LangChain, LlamaIndex, Haystack, litellm and rerankers against the server
	test -x $(CLIENTS)/bin/python || $(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/pip install --quiet --disable-pip-version-check -r tests/serving/clients.txt
	CLIENTS_PYTHON=$(CLIENTS)/bin/python $(BIN)/pytest tests/serving/test_clients.py

# The libraries of crossjem_pl.adapters, which are large and not among our requirements.
ADAPTERS ?= .venv-adapters
$(ADAPTERS)/.ready: pyproject.toml constraints.txt tests/adapters/requirements.txt
	test -x $(ADAPTERS)/bin/python || $(PYTHON) -m venv $(ADAPTERS)
	$(ADAPTERS)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt \
		-r tests/adapters/requirements.txt -e '.[offline]' pytest
	touch $@

test-adapters: $(ADAPTERS)/.ready ## the adapters against PyTerrier, LangChain, LlamaIndex, Haystack, rerankers, MTEB and BEIR
	TEST_ADAPTERS=1 $(ADAPTERS)/bin/python -m pytest tests/adapters

lint: $(READY) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

audit: ## known vulnerabilities of the pinned packages, by pip-audit (asks a public database)
	test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv .venv-audit && .venv-audit/bin/pip install --quiet pip-audit; }
	.venv-audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip

clean: ## remove the environment and caches (runs/ and data/ stay)
	rm -rf $(VENV) $(ADAPTERS) .venv-audit .mypy_cache .ruff_cache build dist

include experiments/distil.mk
include benchmarks/benchmarks.mk
