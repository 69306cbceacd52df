"""The texts of *Connect an app* run as they are, against a real server.

Those of Node's SDKs run from the folder API_CLIENT_TOOLS, which
`tests/integration/generated_clients/install.sh` fills.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conversations.pages.connect.snippets import GROUPS
from tests.programs import need_program
from tests.serving import ServerProcess

pytestmark = [pytest.mark.server, pytest.mark.slow]

SNIPPETS = {each.slug: each for group in GROUPS for each in group.snippets}
MODEL = "demo/demo"
PATIENCE = 60  # seconds
#: The package that a text imports.
NODE = {
    "openai-node": "openai",
    "anthropic-node": "@anthropic-ai/sdk",
    "vercel": "@ai-sdk/openai",
}


def filled(server: ServerProcess, slug: str) -> str:
    values = {"BASE": server.url, "V1": f"{server.url}/v1", "MODEL": MODEL}
    return SNIPPETS[slug].fill({**values, "TOKEN": server.create_token()})


def output_of(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_curl(shared_server: ServerProcess):
    need_program("curl")
    answer = output_of("sh", "-c", filled(shared_server, "curl"))
    assert '"object":"chat.completion"' in answer.replace(" ", "")


@pytest.mark.parametrize("slug", ["openai-python", "anthropic-python"])
def test_python(shared_server: ServerProcess, slug: str):
    assert output_of(sys.executable, "-c", filled(shared_server, slug)).strip()


@pytest.mark.parametrize("slug", NODE)
def test_node(shared_server: ServerProcess, slug: str, tmp_path: Path):
    modules = Path(os.environ.get("API_CLIENT_TOOLS", "/none")) / "node_modules"
    if not (modules / NODE[slug]).exists():
        pytest.skip(f"API_CLIENT_TOOLS names no folder with {NODE[slug]}")
    (tmp_path / "node_modules").symlink_to(modules)
    program = tmp_path / "program.mjs"
    program.write_text(filled(shared_server, slug), encoding="utf-8")
    output = output_of("node", str(program))
    assert output.strip() or "console.log" not in SNIPPETS[slug].text
