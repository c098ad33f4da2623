# make demo   sets everything up and shows it working
# make test   sets everything up and runs the linters and the tests
# make test-all  the same, and then the tests that take minutes by nature: crashes, clusters, brokers that go away
# make chaos  runs tests of faults for a long time: what is killed thirty times, or stopped for long
# make coverage  runs the tests and reports the lines that none of them reaches, by file
# make lint   runs the linters only; make format fixes what they can
# make bench  measures feeds, clients, pipelines and the dashboard, side by side with bare programs and with peers
# make bench-quick  measures Millrace and its peers on the same data, with fewer records
# make docs   builds the documentation in build/site, with the reference from the code; broken links fail
# make pictures  draws the pictures of the documentation from real runs
# make screenshots  takes pictures of every page of the dashboard, into screenshots/
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PAGE := src/millrace/dashboard/static/index.html
WEB := $(shell find web -name node_modules -prune -o -type f -print)

# Compiled modules are kept, whatever the account prefers: without them every process compiles all of Millrace again,
# which takes a second and more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test tests test-all test-long chaos coverage lint format bench bench-quick browser screenshots docs pictures clean

help:
	@grep '^# make' Makefile | sed 's/^# //'

setup: $(READY) $(PAGE)

# PIP_CONSTRAINT pins the build requirements as well as the run-time ones.
$(READY): pyproject.toml constraints.txt hatch_build.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Millrace needs Python 3.11 or newer; try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Millrace into $(VENV) (PySpark is large: a few minutes the first time)"
	@PIP_CONSTRAINT=$(CURDIR)/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

# Installing builds the page too (hatch_build.py); this is for changes of it afterwards.
$(PAGE): $(WEB) | $(READY)
	@$(BIN)/python web/build.py
	@touch $@

demo: setup
	@$(BIN)/millrace demo $(ARGS)

# The linters use one core; the tests start their services meanwhile.
test: setup browser
	@$(MAKE) --no-print-directory --jobs=2 lint tests

tests: setup
	$(BIN)/pytest -n 2 $(ARGS)

test-all: test test-long

test-long: setup
	$(BIN)/pytest -n 2 -m "long and not chaos" $(ARGS)

chaos: setup
	$(BIN)/pytest -m chaos $(ARGS)

coverage: setup browser
	$(BIN)/pytest -n 2 -m "not chaos" --cov --cov-report=term-missing:skip-covered $(ARGS)

# The tests of the page drive a real browser; Chromium is installed where there is none and apt-get can.
browser: setup
	@$(BIN)/python scripts/browser.py

screenshots: setup browser
	$(BIN)/python scripts/screenshots.py

docs: setup
	@$(BIN)/python scripts/reference.py
	$(BIN)/python -m mkdocs build --quiet
	@echo "build/site/index.html; with its search: $(BIN)/python -m http.server -d build/site 8000"

pictures: setup
	$(BIN)/python scripts/pictures.py

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/vocabulary.py
	$(BIN)/python web/build.py lint

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
	$(BIN)/python bench/exactly_once.py
	$(BIN)/python bench/cassandra_sink.py
	$(BIN)/python bench/dstreams.py
	$(BIN)/python bench/kinesis.py
	$(BIN)/python bench/page.py
	$(BIN)/python bench/dashboard.py
	$(BIN)/python bench/memory_sql.py
	$(BIN)/python bench/compare.py $(ARGS)
	$(BIN)/python bench/at_rest.py --demo

bench-quick: setup
	$(BIN)/python bench/compare.py --quick $(ARGS)

clean:
	rm -rf $(VENV) web/node_modules tests/kinesis/node_modules src/millrace/dashboard/static .mypy_cache .ruff_cache .pytest_cache build dist
