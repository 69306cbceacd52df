# Two commands:  make run  |  make test      (they need make, git and Python >= 3.11 with venv)

# The first of these that is new enough; a pyenv shim may exist and not run.
PY ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
UV_VERSION := 0.13.8
UV_HOME := .tools/uv-$(UV_VERSION)
UV := $(UV_HOME)/bin/uv
UV_FLAGS := --quiet --no-config
export UV_PYTHON_DOWNLOADS = never
export PYTHONDONTWRITEBYTECODE =  # a start that compiles everything takes twice as long

# What holds in both deliveries is tested in both.
SCALED_TESTS := $(addprefix tests/conversations/test_, engine.py leases.py rows.py redis_log.py schedule.py engine_status.py retention.py broken_text.py background.py claims.py)

COMPILE := pip compile $(UV_FLAGS) --universal --generate-hashes --no-emit-index-url --no-annotate --no-header --python-version 3.11 pyproject.toml

.PHONY: run test test-fast scaled lint lock bench chaos

run: .venv/run.stamp
	@exec .venv/bin/python manage.py serve

test: .venv/dev.stamp
	.venv/bin/python -m pytest -q -n auto -m "not scaled"
	.venv/bin/python -m pytest -q -m scaled
	.venv/bin/python -m pytest -q --ds=tests.settings_scaled $(SCALED_TESTS)

test-fast: .venv/dev.stamp  # no browser, no server processes, no PostgreSQL or Redis
	.venv/bin/python -m pytest -q -n auto -m "not scaled and not browser and not server"

scaled: .venv/run.stamp
	@exec deploy/scaled.sh

lint: .venv/dev.stamp
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/python tests/style/names.py --strict
	.venv/bin/lint-imports --no-cache
	.venv/bin/mypy .
	.venv/bin/djlint --check --quiet templates

bench: .venv/dev.stamp
	.venv/bin/python -m benchmarks

chaos: .venv/dev.stamp  # CHAOS='--seed 7 --turns 50 --delivery embedded'
	.venv/bin/python -m tests.chaos $(CHAOS)

lock: | $(UV)  # pins with hashes, and no index named in the files
	$(UV) $(COMPILE) -o requirements.txt
	$(UV) $(COMPILE) --group test --group lint -o requirements-dev.txt

.venv/run.stamp: requirements.txt | $(UV)
	@echo "Installing into .venv ..."
	@$(UV) venv $(UV_FLAGS) --allow-existing --python $(PY) .venv
	@$(UV) pip install $(UV_FLAGS) --require-hashes -r $<
	@touch $@

.venv/dev.stamp: requirements-dev.txt | $(UV)
	@echo "Installing into .venv ..."
	@$(UV) venv $(UV_FLAGS) --allow-existing --python $(PY) .venv
	@$(UV) pip install $(UV_FLAGS) --require-hashes -r $<
	@touch .venv/run.stamp $@  # which hold the same versions

$(UV):
	@test -n "$(PY)" || { echo "Parley needs Python 3.11 or newer; install it or name it: make PY=/path/to/python3" >&2; exit 1; }
	@echo "Fetching uv ..."
	@$(PY) -m venv $(UV_HOME)
	@$(UV_HOME)/bin/pip install -qq --disable-pip-version-check "uv==$(UV_VERSION)"
