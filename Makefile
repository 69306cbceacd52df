# Two commands:  make run  |  make test      (needs only make, git and python >= 3.11 with venv)
PY ?= python3
UV_VERSION := 0.13.8
UV := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)
UV_FLAGS := -q --no-config
export UV_PYTHON_DOWNLOADS = never

COMPILE := pip compile $(UV_FLAGS) --universal --generate-hashes --no-emit-index-url --no-annotate --no-header --python-version 3.11 pyproject.toml

.PHONY: run test lint lock bench

run: .venv/run.stamp
	@.venv/bin/python manage.py serve

test: .venv/dev.stamp
	.venv/bin/python -m pytest -q -n auto

lint: .venv/dev.stamp
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/lint-imports --no-cache
	.venv/bin/mypy .
	.venv/bin/djlint --check --quiet templates

bench: .venv/dev.stamp
	.venv/bin/python -m benchmarks

lock: | $(UV)  # pins with hashes, and no index named in the files
	$(UV) $(COMPILE) -o requirements.txt
	$(UV) $(COMPILE) --group test --group lint -o requirements-dev.txt

.venv/run.stamp: requirements.txt | $(UV)
	@$(UV) venv $(UV_FLAGS) --allow-existing --python $(PY) .venv
	@$(UV) pip install $(UV_FLAGS) --require-hashes -r $<
	@touch $@

.venv/dev.stamp: requirements-dev.txt | $(UV)
	@$(UV) venv $(UV_FLAGS) --allow-existing --python $(PY) .venv
	@$(UV) pip install $(UV_FLAGS) --require-hashes -r $<
	@touch $@ .venv/run.stamp

.tools/bin/uv:
	@$(PY) -m venv .tools
	@.tools/bin/pip install -q --disable-pip-version-check "uv==$(UV_VERSION)"
