# Two commands: `make run` shows the product, `make test` runs the whole suite. Both set up what they need.

PYTHON := $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$p && break; done)
RUN := .venv/run/bin/python
DEV := .venv/dev/bin/python
PIP := -m pip install -q --disable-pip-version-check
SOURCES := src tests bench examples tools verify
# The tests start a thousand programs of ours: none of them is to compile what another has compiled.
export PYTHONDONTWRITEBYTECODE =

.PHONY: run test test-long check format lint types imports coverage zombie verify bench bench-full bench-peers freeze proto lock clean

run: .venv/run/.ready  ## the product, end to end, in under a minute
	@$(RUN) -m holdfast demo

test: .venv/dev/.ready  ## the whole suite; half of its time is waiting, so four share two cores
	$(DEV) -m pytest -n 4 --dist worksteal -m "not long"

test-long: .venv/dev/.ready  ## what `make test` shows in a short form only: benchmarks' frames, zombies, races, seeds
	$(DEV) -m pytest -n 3 --dist worksteal -m long

check: lint types imports test test-long coverage  ## everything that must be green

format: .venv/dev/.ready
	$(DEV) -m ruff format $(SOURCES)
	$(DEV) -m ruff check --fix $(SOURCES)

lint: .venv/dev/.ready
	$(DEV) -m ruff format --check $(SOURCES)
	$(DEV) -m ruff check $(SOURCES)

types: .venv/dev/.ready
	$(DEV) -m mypy

imports: .venv/dev/.ready
	.venv/dev/bin/lint-imports --no-cache

coverage: .venv/dev/.ready  ## core and registry: every branch
	$(DEV) -m coverage run -m pytest -q -p no:randomly tests/core tests/registry tests/scenarios tests/stores/sqlite \
		tests/stores/test_store_contract.py tests/outputs/test_bulk.py -m "not slow and not long"
	$(DEV) -m coverage report --fail-under=100 --skip-covered

zombie: .venv/dev/.ready  ## freeze workers in the middle of writing, and see who refuses what they do next
	@$(DEV) -m verify.zombie

verify: .venv/dev/.ready  ## every proof in its long form, an hour; saves verify/results/verify.md
	$(DEV) -m verify

bench: .venv/dev/.ready  ## have we become slower? shares of a bare script, two minutes; exit 1 at a loss of a third
	@PYTHONPATH=src $(DEV) bench/short.py

bench-full: .venv/dev/.ready  ## our verbs, the real worker and guards beside bare scripts, figure by figure; half an hour
	PYTHONPATH=src $(DEV) bench/run.py --store sqlite
	PYTHONPATH=src $(DEV) bench/run.py --store postgres
	PYTHONPATH=src $(DEV) bench/worker.py
	PYTHONPATH=src $(DEV) bench/guards.py
	PYTHONPATH=src $(DEV) bench/wire.py
	PYTHONPATH=src $(DEV) bench/rest.py
	PYTHONPATH=src $(DEV) bench/outputs.py

bench-peers: .venv/dev/.ready  ## holdfast beside fifteen other systems in one run; an hour, needs the network
	PYTHONPATH=src $(DEV) bench/peers/run.py

freeze: .venv/dev/.ready  ## a frozen worker, here and in twelve other systems; seventeen minutes, needs the network
	PYTHONPATH=src $(DEV) bench/freeze/run.py

proto: .venv/dev/.ready  ## the code that says our messages, from proto/
	cd proto && PATH="$(CURDIR)/.venv/dev/bin:$$PATH" buf lint && PATH="$(CURDIR)/.venv/dev/bin:$$PATH" buf generate

lock: .venv/dev/.ready  ## pin every dependency by hash, without naming a host
	$(DEV) -m uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header \
		--python-version 3.11 pyproject.toml -o requirements.lock
	$(DEV) -m uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header \
		--python-version 3.11 --group dev -o requirements-dev.lock

clean:
	rm -rf .venv .hypothesis .mypy_cache .ruff_cache .coverage dist

.venv/run/.ready: requirements.lock pyproject.toml | .venv/run/bin/pip
	@echo "Setting up (once) ..."
	@$(RUN) $(PIP) --require-hashes -r requirements.lock
	@$(RUN) $(PIP) --no-deps -e .
	@touch $@

.venv/dev/.ready: requirements-dev.lock pyproject.toml | .venv/dev/bin/pip
	$(DEV) $(PIP) --require-hashes -r requirements-dev.lock
	$(DEV) $(PIP) --no-deps --no-build-isolation -e .
	@touch $@

.venv/%/bin/pip: | need-python
	@$(PYTHON) -m venv .venv/$* 2>/dev/null || { \
		echo "Installing python3-venv, which this Python lacks ..."; \
		apt-get -qq update && apt-get -qq install -y python3-venv >/dev/null && $(PYTHON) -m venv .venv/$*; }

.PHONY: need-python
need-python:
	@test -n "$(PYTHON)" || { echo "holdfast needs Python 3.11 or newer; none was found on PATH."; exit 1; }
