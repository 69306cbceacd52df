"""The texts of *Connect an app* run as they are, against a real server, those of all
programs that PyPI and npm have, except aider, whose packages take minutes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conversations.pages.connect.snippets import GROUPS
from tests.integration.generated_clients.tools import find_client_tools
from tests.programs import need_program
from tests.serving import ServerProcess

#: The programs may have to be installed first, which takes a minute or two.
pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

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
    (tmp_path / "node_modules").symlink_to(find_client_tools() / "node_modules")
    program = tmp_path / "program.mjs"
    program.write_text(filled(shared_server, slug), encoding="utf-8")
    output = output_of("node", str(program))
    assert output.strip() or "console.log" not in SNIPPETS[slug].text


@pytest.mark.parametrize("slug", ["langchain", "openai-agents"])
def test_libraries_of_python(shared_server: ServerProcess, slug: str):
    python = find_client_tools() / "bin" / "python"
    assert output_of(str(python), "-c", filled(shared_server, slug)).strip()


def run_agent(*command: str | Path, folder: Path, **environment: str) -> str:
    """The output of a program of npm or PyPI that has only this folder."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "NO_PROXY": "127.0.0.1",
            **environment,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return done.stdout


def test_llm(shared_server: ServerProcess, tmp_path: Path):
    text = filled(shared_server, "llm")
    (tmp_path / "extra-openai-models.yaml").write_text(text, encoding="utf-8")
    program = find_client_tools() / "bin" / "llm"
    key = shared_server.create_token()
    options = ["-m", "parley", "--key", key, "Hello"]
    output = run_agent(program, *options, folder=tmp_path, LLM_USER_PATH=str(tmp_path))
    assert output.strip()


def test_codex(shared_server: ServerProcess, tmp_path: Path):
    text = filled(shared_server, "codex")
    (tmp_path / "config.toml").write_text(text, encoding="utf-8")
    program = find_client_tools() / "node_modules" / ".bin" / "codex"
    output = run_agent(
        *(program, "exec", "--skip-git-repo-check", "Hello"),
        folder=tmp_path,
        CODEX_HOME=str(tmp_path),
        PARLEY_API_KEY=shared_server.create_token(),
    )
    assert output.strip()


def test_claude_code(shared_server: ServerProcess, tmp_path: Path):
    *exports, program = filled(shared_server, "claude-code").split()
    assert program == "claude"
    named = dict(each.split("=", 1) for each in exports if "=" in each)
    path = find_client_tools() / "node_modules" / ".bin" / "claude"
    assert run_agent(path, "-p", "Hello", folder=tmp_path, **named).strip()


def test_opencode(shared_server: ServerProcess, tmp_path: Path):
    text = filled(shared_server, "opencode")
    (tmp_path / "opencode.json").write_text(text, encoding="utf-8")
    program = find_client_tools() / "node_modules" / ".bin" / "opencode"
    options = ["run", "--model", f"parley/{MODEL}", "Hello"]
    assert run_agent(program, *options, folder=tmp_path).strip()
