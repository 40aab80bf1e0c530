# make demo    see it work, without a key
# make quick   the tests that answer soonest: one event loop, few examples, no proofs, no programs, no coverage
# make test    the tests; every run tries the same examples. Those that do the same every time must cover the pure core
# make check   everything that a change must pass, as CI runs it: lint, types, `make test`, and the property tests
#              once more with random examples. It prints their seed: `make properties SEED=…` tries the same ones;
#              and `make frameworks`
# make frameworks    the adapters, each with the newest release of its framework and the oldest one that is supported.
#              `make frameworks FRAMEWORKS='--only langchain --newest'` for a part of it
# make bench   the benchmarks' tables
# make prove   the long proofs: every crash, every failing system call, kills, forgeries; up to 3 hours, goes on where
#              it ended. `make prove PROVE='--minutes 10 --only crash'` for a part of it. Its draws are random, and it
#              prints their seed: `--seed N` draws the same
#
# Each starts from a clean clone: Python 3.11 or newer, pip and make are enough.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
STAMP := .venv/.installed
DEMO_DIR ?= src
PROVE ?=
FRAMEWORKS ?=
PYTEST := $(BIN)/python -m pytest
PARALLEL := --numprocesses=auto --maxprocesses=4 --dist=worksteal
QUICK := --ignore=tests/prove --ignore=tests/cli/test_process.py --ignore=tests/test_examples.py -k 'not trio'
ifndef SEED
SEED := $(strip $(shell od -An -N4 -tu4 /dev/urandom))
endif

# Compiled modules are kept: the tests start hundreds of processes, and rewrite the assertions of all test modules.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup quick test properties frameworks demo check lint types bench prove clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "ctxfs needs Python 3.11 or newer: install one, or name it: make PYTHON=/path/to/python3"; exit 1; }
	@# A Python without ensurepip (Debian's, without python3-venv) gets its pip from the pip that runs outside.
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv || \
		{ $(PYTHON) -m venv --clear --without-pip .venv && $(PYTHON) -m pip --python $(BIN)/python install pip; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cli,openai,mcp,proxy,fast]' --group dev
	@touch $@

quick: $(STAMP)
	HYPOTHESIS_PROFILE=quick $(PYTEST) $(PARALLEL) $(QUICK)

test: $(STAMP)
	$(PYTEST) $(PARALLEL) --cov --cov-report=
	@$(BIN)/python scripts/pure_core_coverage.py

properties: $(STAMP)
	HYPOTHESIS_PROFILE=random $(PYTEST) -m hypothesis --hypothesis-seed=$(SEED)

frameworks: $(STAMP)
	$(BIN)/python scripts/run_frameworks.py $(FRAMEWORKS)

demo: $(STAMP)
	@$(BIN)/ctxfs demo $(DEMO_DIR)

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

# The import layers, the public names, the examples and those in README and docs are tests too.
check: lint types properties test frameworks

bench: $(STAMP)
	$(BIN)/python benchmarks/run.py

prove: $(STAMP)
	$(BIN)/python tests/prove/run.py $(PROVE)

clean:
	rm -rf .venv .venv-frameworks .prove .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage htmlcov dist build
