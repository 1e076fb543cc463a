# Everything a developer runs; `make` alone explains.

PYTHON ?= python3
PYTEST_ARGS ?=
BENCH_ARGS ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
KERNEL := src/dynamic_kafka/_kernel.abi3.so
KERNEL_SOURCES := $(shell find native -path native/target -prune -o -path native/fuzz -prune -o -type f \( -name '*.rs' -o -name '*.toml' -o -name Cargo.lock \) -print)
OBSERVERS := $(VENV)/.observers

# Without these, Spark's workers start whatever `python3` is on PATH, which lacks this project's libraries.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
# Where scripts/get-observers puts what is not on the PATH.
export PATH := $(PATH):$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pyspark-dynamic-kafka/observers/bin

# Each process would compile all of its modules anew, for a third of a second; the tests start thousands.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install wheel release-check docs lint format test test-oldest-spark test-kernel fuzz test-slow test-crash test-second-system test-all mutation chaos demo cast changes observe migrate cluster bench clean

# The tiers of the tests, by pytest's marks; a -m in PYTEST_ARGS takes the place of a tier's own.
# SPARK=4.0 runs the tests of Spark with that version, in an environment of its own.
SPARK ?=
PYTEST = $(BIN)/python $(if $(SPARK),scripts/spark_versions.py $(SPARK)) -m pytest
# What is run: with SPARK only a folder of tests of Spark, unless PYTEST_ARGS names others.
TESTS = $(or $(PYTEST_ARGS),$(if $(SPARK),$(1)))
# What has to hold with every version of Spark, in four minutes.
CORE := $(addprefix tests/spark/test_,front_options.py sink.py sink_exactly_once.py sql.py first_rows.py functions.py lacking.py)
# Each process has brokers and a Spark session of its own. The short tests wait for half of their time, so there are more processes
# than cores. The files with the long tests come first.
BY_FILE = --dist loadfile --no-loadscope-reorder

##@ Set-up

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@printf '\nVariables: PYTHON=python3.x (install), PYTEST_ARGS=... (test*), SPARK=4.0 (test, test-crash), ARGS=... (chaos, observe), BENCH_ARGS=... (bench)\n'

install: $(STAMP) $(KERNEL) $(OBSERVERS) ## Make .venv with the project (editable) and all that developing it needs

# It builds the kernel, too. Done again only when pyproject.toml has changed.
$(STAMP): pyproject.toml
	@PYTHON='$(PYTHON)' sh scripts/check-tools
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'  # the first with --group
	$(BIN)/python -m pip install --quiet --editable '.[http,jks,rich,sql]' --group dev --group spark
	@touch $@

# Built again only when its sources have changed.
$(KERNEL): $(KERNEL_SOURCES) | $(STAMP)
	@echo 'Building the native kernel (native/)'
	@PYTHON='$(PYTHON)' sh scripts/check-tools
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@

# Without them some tests do not run, so what cannot be brought ends nothing here. It is tried again the next time.
$(OBSERVERS): scripts/get-observers | $(STAMP)
	@if sh scripts/get-observers; then touch $@; fi

wheel: install ## Make the project's wheel, with the kernel, in dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist --config-settings=build-args='--compatibility pypi' .

release-check: install ## Build the source archive and a wheel from it, and try them in an empty environment
	$(BIN)/python -m pip install --quiet --group release
	scripts/release-check

##@ Checks

lint: install ## Check style, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/hadolint examples/platforms/Dockerfile
	cd native && cargo fmt --all --check && cargo clippy --quiet --workspace --all-targets -- -D warnings

docs: install ## Build the site of the documentation in build/site, with warnings as errors
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/python scripts/site.py

format: install ## Repair what can be repaired of style and formatting
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	cd native && cargo fmt --all

##@ Tests

test: install ## Run what a change needs, in minutes, e.g. PYTEST_ARGS='tests/unit -k jaas'
	$(PYTEST) -n 3 $(BY_FILE) -m 'not slow and not crash and not network' $(call TESTS,tests/spark)

test-oldest-spark: ## Run the core of the tests of Spark with the oldest version that is supported
	$(MAKE) test SPARK=4.0 PYTEST_ARGS='$(CORE)'

test-kernel: install ## Run the tests of the native kernel that are in Rust; the first time it is compiled for two minutes
	cd native && cargo test --quiet --release --workspace --lib --tests

fuzz: ## Give the native decoders damaged messages, with AddressSanitizer; for five minutes, e.g. ARGS=-max_total_time=60
	@cargo +nightly fuzz --version >/dev/null || { echo 'Needed: rustup toolchain install nightly && cargo install cargo-fuzz'; exit 1; }
	cd native && cargo +nightly fuzz run decode -- -max_len=600 $(or $(ARGS),-max_total_time=300)

test-slow: install ## Run the longer tests, and those of properties with more examples
	HYPOTHESIS_PROFILE=ci $(PYTEST) -n 2 $(BY_FILE) -m '(slow or network or hypothesis and not spark) and not crash' $(PYTEST_ARGS)

test-crash: install ## Run the tests that kill processes midway, and explore the whole model of the protocol
	$(PYTEST) -m crash -n 2 --dist worksteal $(call TESTS,tests/crash)

test-second-system: ## Run the unit tests on Debian 13, with Python 3.13, Java 21 and the kernel built there; as root
	scripts/second-system make test PYTEST_ARGS=tests/unit

test-all: install ## Run all of the tests, e.g. PYTEST_ARGS='tests/crash -k zombie'
	HYPOTHESIS_PROFILE=ci $(PYTEST) $(PYTEST_ARGS)

mutation: install ## Change the rules without I/O in thousands of ways, and count which changes no test notices; for three hours
	$(BIN)/python -m pip install --quiet --group mutation
	HYPOTHESIS_PROFILE=mutation $(BIN)/python -m mutmut run --max-children 2
	$(BIN)/python -m mutmut results

chaos: install ## Cause one fault after the other, and count: docs/explanations/reliability.md, e.g. ARGS='--minutes 5 --seed 7'
	$(BIN)/python -m tests.chaos $(ARGS)

##@ Shows

demo: install ## Follow flights over two clusters that come and go
	$(BIN)/python examples/flights/main.py

cast: install ## Record the demo as the animated picture of README
	$(BIN)/python scripts/cast.py docs/img/demo.svg $(BIN)/python examples/flights/main.py

changes: install ## Keep Delta tables up to date from a real PostgreSQL (which has to be installed), by Debezium
	$(BIN)/python -m examples.debezium.main

observe: install ## Watch a query with Prometheus while a cluster stops, e.g. ARGS=--keep
	$(BIN)/python -m examples.monitoring.main $(ARGS)

migrate: install ## Move a query from a cluster that dies to its mirror and back, and count its rows
	$(BIN)/python -m examples.migration.main

cluster: install ## Submit a job to a Spark cluster of two workers that get the package with it, and count its rows
	$(BIN)/python -m pytest -q -n 0 -m '' tests/spark/test_submit.py

bench: install ## Measure, e.g. BENCH_ARGS='--help'
	$(BIN)/python benchmarks/run.py $(BENCH_ARGS)

##@ Housekeeping

clean: ## Remove builds, caches and what Spark left behind; .venv stays
	rm -rf build dist artifacts native/target $(KERNEL) mutants spark-warehouse metastore_db derby.log
	rm -rf .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path "./.venv*" -prune -o -type d \( -name __pycache__ -o -name '*.egg-info' \) -exec rm -rf {} +
