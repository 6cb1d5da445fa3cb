# Every target does its own set-up, again and again and in any order: `make help`.

# What is installed and cached goes to .venv, or where the repository is not ours to write, to a folder of our own.
VENV := $(shell sh scripts/venv_path.sh)
# Test processes at once. More than the cores does not help: the servers need them.
JOBS ?= 2

SETUP := sh scripts/setup.sh "$(VENV)"
PYTHON_IN_VENV := "$(VENV)/bin/python"
RUFF_OPTIONS := --cache-dir "$(VENV)/cache/ruff" scheduler tests scripts
PYTEST := $(PYTHON_IN_VENV) -m pytest -o cache_dir="$(VENV)/cache/pytest"

export HYPOTHESIS_STORAGE_DIRECTORY := $(VENV)/cache/hypothesis

.DEFAULT_GOAL := help
.PHONY: help setup check test demo docs bench db oracle bench-time bench-fire bench-queue lab kill-campaign outage-campaign zombie-campaign bench-workers pgcron-campaign lock schema

# Folders with tests; a new one is found by itself. Acceptance and benchmarks measure time, so they run on their own.
FOLDERS := $(patsubst %/,%,$(sort $(dir $(wildcard tests/*/test_*.py))))
FAST := $(filter tests/unit tests/docs,$(FOLDERS))
ON_SERVERS := $(filter-out $(FAST) tests/acceptance tests/benchmarks,$(FOLDERS))

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | awk -F '\t' '{ printf "  make %-11s %s\n", $$1, $$2 }'

setup: ## make the virtual environment with everything in it
	@$(SETUP) dev

check: ## the fast part: format, lint, types, import rule, unit tests, docs
	@$(SETUP) dev
	"$(VENV)/bin/ruff" format --check $(RUFF_OPTIONS)
	"$(VENV)/bin/ruff" check $(RUFF_OPTIONS)
	"$(VENV)/bin/mypy" --cache-dir "$(VENV)/cache/mypy"
	$(PYTEST) -q -n $(JOBS) $(FAST)

test: check ## check, and everything else against real PostgreSQL servers
	$(PYTEST) -q -n $(JOBS) --durations 10 $(ON_SERVERS)
	$(if $(filter tests/acceptance,$(FOLDERS)),$(PYTEST) -q -n $(JOBS) --durations 10 tests/acceptance)
	$(if $(filter tests/benchmarks,$(FOLDERS)),$(PYTEST) -q tests/benchmarks)

demo: ## a month of a daily job on the embedded PostgreSQL, in a minute
	@$(SETUP) demo
	@cd "$$(sh scripts/workplace.sh "$(VENV)")" && $(PYTHON_IN_VENV) -m scheduler.interfaces.demo

docs: ## run what the documentation says
	@$(SETUP) dev
	$(PYTEST) -q tests/docs

bench: ## all benchmarks, with their figures
	@$(SETUP) dev
	$(PYTEST) -q -s tests/benchmarks

bench-time: ## how long the arithmetic of dates takes
	@$(SETUP) dev
	$(PYTHON_IN_VENV) -m tests.benchmarks.bench_time

bench-fire: ## how fast dates are fired and filled, beside bare inserts of the same rows
	@$(SETUP) dev
	$(PYTHON_IN_VENV) -m tests.benchmarks.bench_fire

lab: ## the experiments that the design rests on, to docs/lab, on the embedded PostgreSQL or SCHED_DSN; seven minutes
	@$(SETUP) dev
	@cd "$$(sh scripts/workplace.sh "$(VENV)")" && $(PYTHON_IN_VENV) -m scheduler.interfaces.cli.main bench lab --out docs/lab

oracle: ## compare our dates with those of an independent implementation
	@$(SETUP) dev
	$(PYTHON_IN_VENV) -m tests.oracle

db: ## psql on the embedded PostgreSQL of this directory
	@$(SETUP) demo
	@repository=$$(pwd) && cd "$$(sh scripts/workplace.sh "$(VENV)")" && $(PYTHON_IN_VENV) "$$repository/scripts/db.py"

pgcron-campaign: ## the example schedules under pg_cron for five real minutes, and its equality with tick
	@$(SETUP) dev
	SCHED_CAMPAIGN=full $(PYTEST) -q -s tests/acceptance/test_pgcron_host.py

kill-campaign: ## 400 kills at named points, two tickers alive
	@$(SETUP) dev
	$(PYTHON_IN_VENV) -m tests.acceptance.campaign kills

outage-campaign: ## a year and a month without a ticker
	@$(SETUP) dev
	$(PYTHON_IN_VENV) -m tests.acceptance.campaign outages

zombie-campaign: ## 200 workers stopped at named points for longer than their lease, and continued
	@$(SETUP) dev
	$(PYTHON_IN_VENV) -m tests.acceptance.campaign zombies

bench-workers: ## 400 jobs of 200 ms on 1 to 16 workers, beside the ideal
	@$(SETUP) dev
	$(PYTHON_IN_VENV) -m tests.benchmarks.bench_workers

bench-queue: ## how fast jobs are drained and picked up, beside the raw limit
	@$(SETUP) dev
	SCHED_BENCH_JOBS=100000 $(PYTEST) -q -s tests/benchmarks/test_queue.py

schema: ## write sql/schema.sql from the migrations
	@$(SETUP) dev
	$(PYTHON_IN_VENV) -m tests.support.schema_dump

lock: ## pin all dependencies anew, by hash
	@$(SETUP) dev
	sh scripts/lock.sh "$(VENV)" --upgrade
