# make demo   sets everything up and shows it working
# make test   sets everything up and runs the linters and every test
# make lint   runs the linters only; make format mends what they can
# make bench  measures feeds, clients and pipelines side by side with bare programs
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo test lint format bench clean

help:
	@grep '^# make' Makefile | sed 's/^# //'

setup: $(READY)

# PIP_CONSTRAINT pins the build requirements as well as the run-time ones.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Millrace needs Python 3.11 or newer; try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Millrace into $(VENV) (PySpark is large: a few minutes the first time)"
	@PIP_CONSTRAINT=$(CURDIR)/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

demo: setup
	@$(BIN)/millrace demo $(ARGS)

test: setup lint
	$(BIN)/pytest $(ARGS)

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: setup
	$(BIN)/python bench/start.py
	$(BIN)/python bench/feed.py
	$(BIN)/python bench/produce.py
	$(BIN)/python bench/pipelines.py
	$(BIN)/python bench/first_result.py
	$(BIN)/python bench/dead_letters.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build dist
