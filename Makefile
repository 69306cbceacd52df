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

PYTEST := .venv/bin/python -m pytest -q
UNITS := $(PYTEST) -n auto --ignore=tests/integration
QUICK := --hypothesis-profile=quick --rows  # 10 examples of a property instead of 30, N rows of a table
# No test that costs more than so many seconds of CPU by tests/costs.txt, except the cheapest
# of its file. Fails if a test turns out to cost far more.
BUDGET := --budget
# Each test worker that starts processes waits more than it computes: more of them than cores.
# What a browser, a killed process, a thread or a server of this machine did wrong once is
# run once more, and both are reported: one such test in 13,000 would refuse a good change.
TWICE := --reruns 1 -rR
INTEGRATION := $(PYTEST) -n 4 --dist loadfile --no-loadscope-reorder $(TWICE) tests/integration

# Run over SQLite with the others, and over PostgreSQL and Redis by themselves.
# (The pages of test_open_connections.py would leave connections to Redis behind with their event loop.)
BOTH := $(addprefix tests/conversations/,both_deliveries transfer search/test_filters.py library policy webhooks staff/test_tool_months.py) \
	tests/conversations/audit tests/llm/pricing/test_usage_sums.py \
	$(filter-out %/test_open_connections.py,$(wildcard tests/conversations/sharing/test_*.py))

# Run once more over PostgreSQL without Redis.
ALONE := tests/conversations/both_deliveries tests/conversations/access/test_rate_limits.py tests/project/test_migrate.py tests/project/test_downgrade.py

SCALED := $(PYTEST) -n 3 $(TWICE) --ds=tests.settings_scaled $(BOTH)
POSTGRESQL := $(PYTEST) -n 3 $(TWICE) --ds=tests.settings_postgresql $(ALONE)

COMPILE := pip compile $(UV_FLAGS) --universal --generate-hashes --no-emit-index-url --no-annotate --no-header --python-version 3.11 pyproject.toml

.PHONY: run test test-all test-ci test-fast costs test-nightly scaled lint lock sbom messages bench bench-check chaos

run: .venv/run.stamp
	@exec .venv/bin/python manage.py serve

test: .venv/dev.stamp  # some six minutes on two cores
	$(UNITS) $(QUICK) 1 $(BUDGET) 0.2 -m "smoke or not (slow or server)"
	$(INTEGRATION) $(QUICK) 1 -m "not scaled and (smoke or not slow)"

test-all: .venv/dev.stamp  # everything: also every row, crashes, storms, and the scaled delivery
	$(UNITS) $(TWICE) -m "not nightly"
	$(INTEGRATION) -m "not nightly"
	$(SCALED)
	$(POSTGRESQL)

test-ci: .venv/dev.stamp  # what .ci/run runs: as test-all, with fewer rows of dear tables and fewer examples
	$(UNITS) $(TWICE) --hypothesis-profile=quick --row-budget 1 -m "not nightly"
	$(INTEGRATION) $(QUICK) 1 -m "not nightly"
	$(SCALED)
	$(POSTGRESQL)

test-fast: .venv/dev.stamp  # at most 90 seconds: no browser, no server processes, no PostgreSQL or Redis
	$(UNITS) $(QUICK) 1 $(BUDGET) 0.04 -m "not server and not slow"

costs: .venv/dev.stamp  # measure the tests again that `make test` and `make test-fast` may choose
	$(UNITS) $(QUICK) 2 --write-costs -m "smoke or not slow"

test-nightly: .venv/dev.stamp  # properties with 400 examples instead of 30, axe on every page, chats without WebSockets
	$(UNITS) --hypothesis-profile=nightly
	$(PYTEST) -n 4 --dist loadfile tests/integration -m nightly

scaled: .venv/run.stamp
	@exec deploy/scaled.sh

lint: .venv/dev.stamp
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/python tests/style/names.py --strict
	.venv/bin/python tests/style/cycles.py
	.venv/bin/lint-imports --no-cache
	.venv/bin/mypy .
	.venv/bin/djlint --check --quiet templates
	$(PYTEST) --collect-only -qq tests/integration >.venv/collected.txt || { tail -n 40 .venv/collected.txt; false; }

bench: .venv/dev.stamp
	.venv/bin/python -m benchmarks summary

bench-all: .venv/dev.stamp
	.venv/bin/python -m benchmarks

bench-check: .venv/dev.stamp
	.venv/bin/python -m benchmarks check

chaos: .venv/dev.stamp  # CHAOS='--seed 7 --turns 50 --delivery embedded'
	.venv/bin/python -m tests.chaos $(CHAOS)

LANGUAGES := de fr es zh_Hans
COLLECT := --no-obsolete --add-location file $(addprefix -l ,$(LANGUAGES)) $(addprefix -i ,'tests/*' 'benchmarks/*' 'deploy/*' 'static/vendor/*')

messages: .venv/dev.stamp  # collects the texts of pages and scripts and compiles the translations; needs GNU gettext
	.venv/bin/python manage.py makemessages $(COLLECT)
	.venv/bin/python manage.py makemessages $(COLLECT) -d djangojs
	.venv/bin/python manage.py compilemessages --ignore .venv

lock: | $(UV)  # pins with hashes, and no index named in the files
	$(UV) $(COMPILE) --extra otel --extra s3 -o requirements-image.txt
	$(UV) $(COMPILE) -c requirements-image.txt -o requirements.txt
	$(UV) $(COMPILE) -c requirements-image.txt --group test --group lint -o requirements-dev.txt

sbom: .venv/run.stamp  # dist/parley.cdx.json: what a release consists of, as CycloneDX
	.venv/bin/python deploy/sbom.py

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
