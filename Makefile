# make check (under a minute), make test, make demo, make site, make wheel, make bench, make faults, make fuzz: each makes what it
# needs, in $(VENV); nothing is installed elsewhere.
VENV ?= .venv
BUILD ?= build
ROOM ?=
PYTHON ?= python3
BIN := $(VENV)/bin

# Without an NVIDIA GPU: pip takes 2.x+cpu before 2.x where this index can be reached, and else warns and goes on without it
CPU_INDEX := $(if $(shell command -v nvidia-smi),,https://download.pytorch.org/whl/cpu)
CPU_BUILD := No NVIDIA GPU: torch is installed without CUDA, which has gigabytes, from $(CPU_INDEX) if that can be reached.

FUZZ_SECONDS ?= 600

.PHONY: check test lint demo bench faults fuzz docs site wheel clean

$(VENV)/package: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(if $(CPU_INDEX),@echo "$(CPU_BUILD)")
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(CPU_INDEX:%=--no-deps --retries 1 --timeout 20 --extra-index-url %) torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/installed: $(VENV)/package
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir $(BUILD)/import_linter

check test: export PYTHONDONTWRITEBYTECODE :=  # tests start many processes; to compile everything again in each takes longer

check: lint
	$(BIN)/python -m pytest --quiet --numprocesses 2 --dist loadfile -m 'not slow and not whole' --hypothesis-profile quick $(if $(ROOM),tests/$(ROOM))

test: lint
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile -m 'not whole' $(if $(ROOM),tests/$(ROOM))

demo: $(VENV)/package
	examples/demo/run.sh $(VENV) $(BUILD)/demo

bench faults fuzz: export PYTHONPATH := tests/support

bench: $(VENV)/installed
	mkdir -p $(BUILD)/bench
	$(BIN)/python benchmarks/bench_scoring.py --json $(BUILD)/bench/scoring.json
	$(BIN)/python benchmarks/bench_training.py --rounds 1 --json $(BUILD)/bench/training.json
	$(BIN)/python benchmarks/compare_recipes.py $(BUILD)/bench/pairs --seconds 240 --only 'default,full softmax,500 units'
	$(BIN)/python benchmarks/bench_growth.py --json $(BUILD)/bench/growth.json --figures $(BUILD)/bench
	$(BIN)/python benchmarks/bench_lm.py --json $(BUILD)/bench/lm.json
	$(BIN)/python benchmarks/bench_nmt.py --json $(BUILD)/bench/nmt.json
	$(BIN)/python benchmarks/bench_text.py --json $(BUILD)/bench/text.json
	$(BIN)/python benchmarks/bench_end_to_end.py --json $(BUILD)/bench/end_to_end.json
	$(BIN)/python benchmarks/bench_cluster.py --json $(BUILD)/bench/cluster.json
	if [ -n "$(PEERS)" ]; then for peers in peers sentence_peers; do \
	    PEERS="$(PEERS)" $(BIN)/python benchmarks/bench_$$peers.py --json $(BUILD)/bench/$$peers.json || exit; done; fi

faults: $(VENV)/installed
	$(BIN)/python tests/faults/system_faults.py
	$(BIN)/python tests/faults/signals.py
	$(BIN)/python tests/faults/cluster_faults.py
	$(BIN)/python -m pytest -q --numprocesses 2 -m whole tests/docs
	$(BIN)/python -m pytest -q tests/training/test_resume.py -k kills

# one target after the other, all of tests/fuzz; what fails is kept as build/fuzz/*-crash-*
fuzz: $(VENV)/installed
	for target in tests/fuzz/fuzz_*.py; do \
	    $(BIN)/python $$target -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 || exit; \
	done

docs: $(VENV)/installed
	$(BIN)/python docs/make_cli_reference.py

# the pages as a site, in $(BUILD)/site; a link that leads nowhere is an error
site: $(VENV)/installed
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --fresh-env -c docs/site -d $(BUILD)/site.cache . $(BUILD)/site

# the files of a release, in dist/, tried in an environment of their own
wheel: $(VENV)/installed
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	DIST=dist $(BIN)/python -m pytest --quiet tests/release

clean:
	rm -rf $(VENV) $(BUILD) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
