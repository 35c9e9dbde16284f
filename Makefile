# Every target makes the virtual environment it needs: `make test` and `make demo` work in a fresh clone on a machine
# that has Python 3.11 or later, its venv module and a package index.  `make help` lists the targets.

VENV ?= .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python

# Processes that share the tests; 0 runs them in one, as a debugger needs.
WORKERS ?= auto

# The first interpreter that runs, is recent enough and can make an environment (some systems ship venv without pip).
USABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c '$(USABLE)' >/dev/null 2>&1 && { echo $$p; break; }; done)
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help install test test-near test-gpu test-machines demo check format bench study roofline golden fuzz notebooks docs site accuracy array-api stress size clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

$(RUN):
	@test -n "$(PYTHON)" || { echo >&2 "hybridml needs Python 3.11 or later with its venv module and found none on PATH: \
	install it (on Debian and Ubuntu: python3 and python3-venv), or name one with 'make PYTHON=/path/to/python'."; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)

# One stamp an extra of pyproject.toml: an environment is brought up to date when the file changes.
$(VENV)/.%: pyproject.toml | $(RUN)
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

install: $(VENV)/.dev  ## the development environment, in .venv

test: $(VENV)/.dev  ## the test suite (more arguments: make test ARGS="--slow -x")
	$(RUN) -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-near: $(VENV)/.dev  ## the tests of the rooms that differ from main (from elsewhere: make test-near BASE=HEAD~3)
	BASE=$(BASE) $(RUN) -m tests.near -n $(WORKERS) --dist worksteal $(ARGS)

test-gpu: $(VENV)/.dev  ## the slow tests of the simulated GPU: every row and sample, every planted bug
	$(RUN) -m pytest -n $(WORKERS) --dist worksteal --slow -m slow tests/targets/test_cuda_*.py $(ARGS)

test-machines: $(VENV)/.dev  ## the suite with the kernels of other processors (one of them: make test-machines ARGS=zen)
	$(RUN) -m tests.machines $(ARGS)

demo: $(VENV)/.demo  ## train three models in both styles and write one HTML report under build/
	$(RUN) -m hybridml demo $(ARGS)

check: $(VENV)/.dev  ## lint, format, types, budgets and the tiny tests, in under 30 s
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy
	$(RUN) -m pytest -q tests/test_tiny.py tests/test_repository.py

format: $(VENV)/.dev  ## rewrite the sources in the common format
	$(RUN) -m ruff check --fix-only --quiet
	$(RUN) -m ruff format

bench: $(VENV)/.bench  ## time eager and traced beside PyTorch, JAX and TensorFlow, and write the page of results
	$(RUN) -m benchmarks.compare --sections steady,start,scaling,limits --json benchmarks/results/compare.json $(ARGS)
	$(RUN) -m benchmarks.eager --json benchmarks/results/eager.json
	$(RUN) -m benchmarks.report

study: $(VENV)/.bench  ## run the networks of the literature in both styles beside PyTorch and JAX, and write a report
	$(RUN) -m hybridml study $(ARGS)

roofline: $(VENV)/.dev  ## time the launches of traced workloads beside the limits of the machine, and write the page
	$(RUN) -m benchmarks.roofline --json benchmarks/results/roofline.json $(ARGS)
	$(RUN) -m benchmarks.report

golden: $(VENV)/.dev  ## accept the present IR text as the expected one
	$(RUN) -m pytest --update-golden $(ARGS)

MINUTES ?= 5
fuzz: $(VENV)/.dev  ## random programs, damaged files, interrupts and kills: MINUTES=5 each (ARGS="--kinds kills --seed 7")
	$(RUN) -m tests.fuzz all --minutes $(MINUTES) $(ARGS)

notebooks: $(VENV)/.dev  ## execute a copy of every notebook under build/
	mkdir -p build/notebooks
	cp notebooks/*.ipynb build/notebooks
	$(BIN)/jupyter-execute --inplace build/notebooks/*.ipynb

docs: $(VENV)/.dev  ## write the pages that are generated from tables of the code and from its imports
	$(RUN) -m docs.generate

site: $(VENV)/.docs  ## the documentation site under build/site/html: pages, reference, notebooks, gallery
	$(RUN) -m docs.site

accuracy: $(VENV)/.dev  ## measure the errors of all rows, which the page of operations publishes
	$(RUN) -m tests.support.accuracy

array-api: $(VENV)/.dev  ## the suite of the array API standard, from the checkout ARRAY_API_TESTS (docs/array_api.md)
	$(RUN) tests/array_api_suite.py $(ARGS)

stress: $(VENV)/.dev  ## eight threads and forked children for minutes, with numbers checked (make stress ARGS=10)
	$(RUN) -m tests.stress.run $(ARGS)

size: $(RUN)  ## lines of code a folder, beside their budgets
	@$(RUN) tests/size.py

clean:  ## remove everything that the other targets made
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
