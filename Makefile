# Two commands: `make run` shows the product, `make test` runs the whole suite. Both set up what they need.

PYTHON := $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$p && break; done)
RUN := .venv/run/bin/python
DEV := .venv/dev/bin/python
SOURCES := src tests bench tools

.PHONY: run test check format lint types imports coverage bench lock clean

run: $(RUN)  ## the product, end to end, in under a minute
	@$(RUN) -m holdfast demo

test: $(DEV)  ## the whole suite
	$(DEV) -m pytest -n 2

check: lint types imports test coverage  ## everything that must be green

format: $(DEV)
	$(DEV) -m ruff format $(SOURCES)
	$(DEV) -m ruff check --fix $(SOURCES)

lint: $(DEV)
	$(DEV) -m ruff format --check $(SOURCES)
	$(DEV) -m ruff check $(SOURCES)

types: $(DEV)
	$(DEV) -m mypy

imports: $(DEV)
	.venv/dev/bin/lint-imports --no-cache

coverage: $(DEV)  ## core and registry: every branch
	$(DEV) -m coverage run -m pytest -q -p no:randomly tests/core tests/registry tests/scenarios \
		tests/test_store_contract.py -m "not slow"
	$(DEV) -m coverage report --fail-under=100 --skip-covered

bench: $(DEV)  ## our verbs beside a bare script that writes the same rows
	PYTHONPATH=src $(DEV) bench/run.py

lock: $(DEV)  ## pin every dependency by hash, without naming a host
	$(DEV) -m uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header \
		--python-version 3.11 pyproject.toml -o requirements.lock
	$(DEV) -m uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header \
		--python-version 3.11 --group dev -o requirements-dev.lock

clean:
	rm -rf .venv .hypothesis .mypy_cache .ruff_cache .coverage dist

$(RUN): requirements.lock | .venv/run/bin/pip
	@echo "Setting up (once) ..."
	@$(RUN) -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	@$(RUN) -m pip install -q --disable-pip-version-check --no-deps -e .
	@touch $(RUN)

$(DEV): requirements-dev.lock pyproject.toml | .venv/dev/bin/pip
	$(DEV) -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(DEV) -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(DEV)

.venv/%/bin/pip: | need-python
	@$(PYTHON) -m venv .venv/$* 2>/dev/null || { \
		echo "Installing python3-venv, which this Python lacks ..."; \
		apt-get -qq update && apt-get -qq install -y python3-venv >/dev/null && $(PYTHON) -m venv .venv/$*; }

.PHONY: need-python
need-python:
	@test -n "$(PYTHON)" || { echo "holdfast needs Python 3.11 or newer; none was found on PATH."; exit 1; }
