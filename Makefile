# Everything a newcomer types. Each target sets up what it needs.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
# Stages are started by name; what make itself starts is named in full, for old makes.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export DVC_NO_ANALYTICS := 1
# Images of Python set it, and hundreds of processes would each compile all that they import.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install alive reproduce ui test thorough bench lint format clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ## make .venv with the pinned packages

# The constraints pin every package but CUDA's, which torch pins; pip keeps what is already right.
# What it would compile on one core is compiled on all of them; a few templates among the packages
# are no Python and cannot be.
$(INSTALLED): pyproject.toml constraints.txt | alive
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "seq2sweep needs Python 3.11 or newer; call: make PYTHON=/path/to/python3.11"; exit 2; }
	@# Python before pip: a venv that was interrupted, or had no ensurepip, is made again.
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@echo "Installing pinned packages into .venv (some minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@$(BIN)/python -m compileall -qq -j 0 .venv/lib >/dev/null 2>&1 || true
	@echo "$(CURDIR)" > $(INSTALLED)

# Programs in .venv name its folder and its Python: moved, copied, or without that, they do not work.
alive:
	@{ test ! -L $(BIN)/python || $(BIN)/python -c ""; } 2>/dev/null && \
		{ test ! -s $(INSTALLED) || test "$$(cat $(INSTALLED))" -ef .; } || \
		{ echo "seq2sweep: .venv is of another folder, or its Python has gone; call: rm -r .venv; make install"; exit 2; }

reproduce: install ## text to BLEU, the sweep and the report, all of it
	$(BIN)/dvc repro
	@$(BIN)/python -m seq2sweep.stages.summary

ui: install ## compare runs in the MLflow UI, on 127.0.0.1:5000, or another PORT=5001
	@$(BIN)/seq2sweep ui $(if $(PORT),--port $(PORT))

test: install ## lint, types and the whole test suite
	@$(MAKE) --no-print-directory lint
	@# Test by test in their order: those that end a Ray cluster come last (tests/cluster/conftest.py).
	$(BIN)/python -m pytest -n 3 --dist loadscope --no-loadscope-reorder

thorough: install ## what make test leaves out: 31 kills, lost nodes, whole sweeps, planted faults; 80 minutes
	@# With all files of tests that are marked so, or that ask whether there is time for more.
	$(BIN)/python -m pytest --thorough tests/cluster $$(grep -rlE "mark\.thorough|thorough: bool|== .thorough" \
		--include="test_*.py" tests | grep -vE "tests/cluster|test_faults" | sort)
	$(BIN)/python -m pytest --thorough -n 2 tests/test_faults.py

bench: install ## training and decoding against other toolkits, those installed; TEXT="SOURCE TARGET"
	$(BIN)/python -m benchmarks.train $(if $(TEXT),--text $(TEXT))
	$(BIN)/python -m benchmarks.decode $(if $(TEXT),--text $(TEXT))

lint: install ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what stages made; DVC's cache and the MLflow store stay, which first gets what it lacks
	@test ! -d runs/tracking || $(BIN)/seq2sweep sync
	@# A training that lives holds its lock, as a stage that parses, and a recorder its records: 6 is
	@# LOCK_EX | LOCK_NB.
	@$(PYTHON) -c 'import fcntl, glob; \
		places = "runs/*/*lock", "runs/tracking/*/records.jsonl", "models/.*.lock"; \
		names = [name for place in places for name in glob.glob(place)]; \
		held = [open(name, "r+") for name in names]; \
		[fcntl.flock(file, 6) for file in held]' 2>/dev/null || \
		{ echo "seq2sweep: a process is working in runs or models: wait for its end, or end it"; exit 2; }
	rm -rf data/raw data/clean data/vocabulary data/encoded models/train models/teacher models/silver models/student
	rm -rf data/.*.partial models/.*.partial models/.silver.* metrics reports runs
