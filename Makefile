# make demo    see it work, without a key
# make quick   the core in a minute: the first case of each of its tests that is not slow and not left out of the coverage, on one
#              event loop, with few examples; no proofs, and none of the clients, the command line and the rooms around
# make test    the tests; every run tries the same examples. The fast ones of the pure core must cover it.
#              A test that fails is run again, alone; if it passes then, the last lines name it
#              What starts a server, a browser or programs, and what takes more than a second, such as proofs that play
#              sessions for minutes, are left to `make check`
# make check   everything that a change must pass, as CI runs it: lint, types, the tests, those with servers, browsers and
#              programs (`make services`), the slow ones (`make plays`), the figures of the page of evidence that take seconds,
#              `make frameworks` and `make installs`. Its result is the same each time
# make properties    the property tests with random examples, to find new ones; it prints their seed, and
#              `make properties SEED=…` tries the same ones
# make frameworks    the adapters, each with the newest release of its framework and with the oldest one that is supported.
#              `make frameworks FRAMEWORKS='--only langchain --newest'` for a part of it
# make docs    the documentation as a site, in build/site; a broken link fails
# make installs      the wheel and the sdist in fresh environments, with each Python from 3.11 on that is on this machine
# make bench   the benchmarks' tables
# make evidence    measures docs/evidence.md again, without a key, in about ten minutes, and fails where the page says something
#              else; what cannot run here is skipped and named. `make evidence EVIDENCE=--short` as CI does, and
#              `EVIDENCE=--write` for new figures
# make live    30 calls against a real inference server: a small open model is served here, which compiles llama.cpp once, or
#              `make live LIVE_URL=http://localhost:8000/v1 LIVE_MODEL=name`. What cannot run here is skipped and named
# make prove   the long proofs: every crash, every failing system call, kills, forgeries; up to 3 hours, continues where
#              it stopped. `make prove PROVE='--minutes 10 --only crash'` for a part of it. Its draws are random, and it
#              prints their seed: `--seed N` draws the same
#
# Each starts from a clean clone: Python 3.11 or newer, pip and make are enough.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
STAMP := .venv/.installed
DEMO_STAMP := .venv/.installed-for-demo
INSTALLED := --editable '.[cli,otel,anthropic,openai,proxy,view,fast]' --group dev
PROVE ?=
FRAMEWORKS ?=
EVIDENCE ?=
LIVE_URL ?=
LIVE_MODEL ?=
PYTEST := $(BIN)/python -m pytest
TESTS := $(BIN)/python scripts/run_tests.py
PARALLEL := --numprocesses=auto --maxprocesses=4 --dist=worksteal
NOT_QUICK := ab cli frameworks llm prove recordings replay serve telemetry testing view
QUICK := --first-case $(NOT_QUICK:%=--ignore=tests/%) -m 'not slow and not service and not not_measured' -k 'not trio'
ifndef SEED
SEED := $(strip $(shell od -An -N4 -tu4 /dev/urandom))
endif

# Compiled modules are kept: the tests start hundreds of processes, and rewrite the assertions of all test modules.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup quick test services plays properties frameworks installs demo docs check lint types bench evidence short-evidence live prove clean

setup: $(STAMP)

# A Python without ensurepip (Debian's, without python3-venv) gets its pip from the pip that runs outside.
define make_venv
@test -n "$(PYTHON)" || { echo "ctxfs needs Python 3.11 or newer: install one, or name it: make PYTHON=/path/to/python3"; exit 1; }
@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv || \
	{ $(PYTHON) -m venv --clear --without-pip .venv && $(PYTHON) -m pip --python $(BIN)/python install pip; }
endef

$(STAMP): pyproject.toml
	$(make_venv)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1' uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python $(INSTALLED) || \
		{ echo "uv could not install it: pip does, which takes a minute longer"; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check $(INSTALLED); }
	@touch $@ $(DEMO_STAMP)

# The demo needs a tenth of what the tests need: a visitor does not wait for the rest.
$(DEMO_STAMP): pyproject.toml
	$(make_venv)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cli,view]'
	@touch $@

quick: $(STAMP)
	HYPOTHESIS_PROFILE=quick $(PYTEST) $(PARALLEL) $(QUICK)

test: $(STAMP)
	$(TESTS) $(PARALLEL) -m 'not slow and not service' --cov --cov-report=
	@$(BIN)/python scripts/pure_core_coverage.py

properties: $(STAMP)
	HYPOTHESIS_PROFILE=random $(PYTEST) $(PARALLEL) -m hypothesis --hypothesis-seed=$(SEED)

services: $(STAMP)
	$(TESTS) $(PARALLEL) -m service

plays: $(STAMP)
	$(TESTS) $(PARALLEL) -m 'slow and not service'

frameworks: $(STAMP)
	$(BIN)/python scripts/run_frameworks.py $(FRAMEWORKS)

installs: $(STAMP)
	$(BIN)/python scripts/run_installs.py

demo: $(DEMO_STAMP)
	@$(BIN)/ctxfs demo

docs: .venv-docs/.installed
	@rm -rf build/site
	PYTHONPATH=src .venv-docs/bin/zensical build --strict --clean
	@! grep -rhoE '<(script|link|img)[^>]*https?://[^>]*>' build/site --include='*.html' | sort -u | grep . || \
		{ echo "the site loads this from elsewhere: a reader's pages must not"; exit 1; }

# What builds the site needs an environment of its own: it must not change that of tests that run at the same time.
.venv-docs/.installed: pyproject.toml $(STAMP)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-docs
	$(BIN)/uv pip install --quiet --python .venv-docs --group docs
	@touch $@

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

# The import layers, the public names, the examples and those in README and docs are tests too. The longest come first, so
# that no core is idle at the end, and those that wait (`services`, `frameworks`) run beside those that compute.
check: lint types docs services test plays frameworks installs short-evidence

bench: $(STAMP)
	$(BIN)/python benchmarks/run.py

evidence: $(STAMP)
	$(BIN)/python scripts/evidence.py $(EVIDENCE)

short-evidence: $(STAMP)
	$(BIN)/python scripts/evidence.py --short

live: $(STAMP)
	$(BIN)/python scripts/live.py $(if $(LIVE_URL),--url $(LIVE_URL)) $(if $(LIVE_MODEL),--model $(LIVE_MODEL))

prove: $(STAMP)
	$(BIN)/python tests/prove/run.py $(PROVE)

clean:
	rm -rf .venv .venv-docs .venv-frameworks .cache .prove .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage htmlcov dist build
