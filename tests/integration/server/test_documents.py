"""The examples of the documents, as they stand there, against a fresh install.

A block is run by its language. One that no test can run is in `SKIPPED`, with the
reason; other blocks that need something special are in `SPECIAL`.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import yaml

from llm.providers import all_providers
from tests.llm.canned import canned
from tests.serving import BASE, ServerProcess
from tools.mcp.stdio_programs import parse_programs

pytestmark = pytest.mark.server

DOCUMENTS = [BASE / "README.md", *sorted((BASE / "docs").glob("**/*.md"))]
#: How a block begins that is not run here, and why.
SKIPPED = {
    "git clone": "installs a checkout: test_serve.py starts one",
    "make ": "starts other test runs, or servers that run until Ctrl-C",
    "pip install": "test_wheel.py installs the wheel",
    "uvx ": "test_wheel.py starts the wheel",
    "docker ": "needs Docker",
    "manage.py serve": "runs until Ctrl-C: test_gateway_processes.py",
    "manage.py restore": "needs a stopped server: test_restore.py",
    "manage.py migrate ": "needs a stopped server: test_downgrade.py",
    "python deploy/pin_images.py": "needs Docker",
    "vault ": "needs another program",
    "umask ": "needs Docker",
    "export DATABASE_URL": "tests/integration/scaled has this delivery",
    "uvicorn ": "test_both_servers.py starts it",
    "schemathesis ": "takes ten minutes: test_openapi_document.py is shorter",
    "python manage.py replay_recordings": "needs recordings: test_recordings.py",
    "python manage.py request_roundtrip": "needs recordings: test_request_roundtrip.py",
    "python manage.py migrate": "is for another project: test_wheel.py",
    "# settings.py": "is for another project: test_wheel.py",
    "codex ": "needs another program",
    "export ANTHROPIC_BASE_URL": "needs another program",
    "export OPENAI_API_BASE": "needs another program",
    "llm keys": "needs another program",
}
#: Documents whose Python examples another test executes, and checks what they do.
PYTHON_ELSEWHERE = {
    "audit.md": "tests/conversations/audit/test_chain.py",
    "library.md": "tests/llm/test_library_docs.py",
    "tools.md": "tests/tools/test_docs.py",
    "webhooks.md": "tests/conversations/webhooks/test_example.py",
}
#: Libraries of other clients, which are no dependencies of the tests.
OTHER_CLIENTS = {"agents", "langchain_anthropic", "langchain_openai", "litellm"}

_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_MANAGE = re.compile(r"^(?:\.venv/bin/)?(?:python )?manage\.py (.*)")
#: A command that begins a block, or continues it.
_COMMAND = re.compile(r"(?:\.venv/bin/)?(?:python )?manage\.py |curl |sqlite3 |export ")


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    code: str

    @property
    def reason_to_skip(self) -> str:
        begins = self.code.lstrip().startswith
        return next((why for start, why in SKIPPED.items() if begins(start)), "")


def blocks_of(document: Path) -> list[Block]:
    found = _BLOCK.findall(document.read_text())
    return [Block(language, textwrap.dedent(code)) for _, language, code in found]


@dataclass
class Install:
    """A fresh install that is served, and what the examples of one document leave."""

    server: ServerProcess
    token: str
    folder: Path
    names: dict[str, Any] = field(default_factory=dict)

    def run(self, document: str, block: Block) -> None:
        special = next(
            (run for (name, start), run in SPECIAL.items()
             if name == document and block.code.startswith(start)),
            None,
        )  # fmt: skip
        if special:
            special(self, block.code)
        elif block.language == "python":
            if document not in PYTHON_ELSEWHERE:
                self.run_python(block.code)
        elif block.language == "sh" or _COMMAND.match(block.code):
            self.run_shell(block.code)
        elif check := CHECKS.get(block.language):
            check(block.code)
        else:
            assert block.language == "", f"nothing runs {block.language}"

    def localize(self, code: str) -> str:
        """With this server's address, token and folder instead of the examples'."""
        address = self.server.url.removeprefix("http://")
        code = re.sub(r"\b(?:127\.0\.0\.1|localhost):8000\b", address, code)
        return code.replace("parley_…", self.token)

    def run_python(self, code: str) -> None:
        program = compile(self.localize(code), "document", "exec")
        modules = set(re.findall(r"^from (\w+)|^import (\w+)", code, re.MULTILINE))
        if OTHER_CLIENTS & {name for pair in modules for name in pair}:
            return
        with redirect_stdout(StringIO()):
            exec(program, self.names)

    def run_shell(self, code: str) -> None:
        """Management commands by themselves, all else by bash."""
        if all(map(_MANAGE.match, _lines(code))):
            for line in _lines(code):
                self.manage(line)
        else:
            self._run_bash(code)

    def manage(self, line: str) -> None:
        words = shlex.split(line, comments=True)
        words = words[words.index("manage.py") + 1 :]
        target = None
        if ">" in words:
            *words, _, target = words
        output = self.server.manage(*(self._place(word) for word in words))
        if target:
            Path(self._place(target)).write_text(output)

    def _place(self, word: str) -> str:
        """The path in our folder of a file or folder that an example names."""
        is_named = word == "/backup" or re.fullmatch(r"\w+\.(toml|sse)", word)
        return str(self.folder / word.lstrip("/")) if is_named else word

    def _run_bash(self, code: str) -> None:
        manage = shlex.join([sys.executable, str(BASE / "manage.py")])
        code = re.sub(r"(?:\.venv/bin/)?(?:python )?manage\.py", manage, code)
        code = re.sub(r"\b(conv|resp)_…", r"$(newest \1)", self.localize(code))
        script = [_PRELUDE, *self.names.setdefault("shell", [])]
        for line in _lines(code):
            if re.match(r"\w+(\(\)|=)", line):
                self.names["shell"].append(line)
                script.append(line)
            else:
                script.append(f"{{ {line}\n}} | tee -a outputs")
        done = subprocess.run(
            ["bash"],
            input="\n".join(script),
            cwd=self.folder,
            env=self.server.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    # Blocks that need something special

    def back_up(self, code: str) -> None:
        (self.folder / "data").symlink_to(self.server.data)
        (self.folder / "backup").mkdir(exist_ok=True)
        (self.server.data / "media").mkdir(exist_ok=True)  # as after an upload
        self._run_bash(code.replace("/backup/", f"{self.folder}/backup/"))
        assert (self.folder / "backup" / "parley.sqlite3").stat().st_size

    def take_field_of_a_response(self, code: str) -> None:
        """Fields of a body for `/v1/responses`."""
        body = {"model": "demo", "input": "What is 12*7+3?", **json.loads(code)}
        done = httpx.post(
            f"{self.server.url}/v1/responses",
            headers={"authorization": f"Bearer {self.token}"},
            json=body,
        )
        assert done.status_code == 200, done.text

    def call_function(self, code: str) -> None:
        """The body of a turn, and that of the next one with the call's output."""
        headers = {"authorization": f"Bearer {self.token}"}
        with httpx.Client(base_url=f"{self.server.url}/api", headers=headers) as web:
            if "turns" not in self.names:
                created = web.post("/conversations/", json={})
                assert created.is_success, created.text
                conversation = created.json()["id"]
                self.names["turns"] = f"/conversations/{conversation}/turns/"
            body = json.loads(code.replace("call_1", self.names.get("call_id", "")))
            done = web.post(self.names["turns"], json={**body, "wait": True})
        assert done.is_success, done.text
        for item in done.json()["output"]:
            if item["type"] == "function_call":
                self.names["call_id"] = item["call_id"]
        assert self.names["call_id"]

    def relay(self, code: str) -> None:
        """The stream of a provider, for a client that keeps what it is sent."""
        source = re.findall(r'source="(\w+)"', code)[0]
        codec = next(iter(all_providers()[source].codecs.values()))
        stream = canned(codec).stream
        written: list[Any] = []
        self.names["response"] = SimpleNamespace(iter_bytes=lambda: [stream])
        self.names["client"] = SimpleNamespace(write=written.append)
        self.run_python(code)
        assert written

    def relay_files(self, code: str) -> None:
        codec = next(iter(all_providers()["anthropic"].codecs.values()))
        (self.folder / "answer.sse").write_bytes(canned(codec).stream)
        first, piped = _lines(code)
        self.manage(first)
        assert "manage.py relay --from gemini --to anthropic -" in piped

    def add_provider(self, code: str) -> None:
        self.run_python(code)
        assert self.names["PROVIDER"].codecs

    def deviate(self, code: str) -> None:
        """It leaves out the imports of the page's first example."""
        self.names |= vars(__import__("llm.errors", fromlist=["ContextTooLarge"]))
        self.run_python(code)
        assert self.names["codecs"]

    def load_configuration(self, code: str) -> None:
        """Every file of the page loads, the first by the page's own commands."""
        page = (BASE / "docs" / "configuration.md").read_text()
        self._load_tables(page, _lines(code))

    def load_presets(self, code: str) -> None:
        page = (BASE / "docs" / "configuration.md").read_text()
        self._load_tables(page, [])
        (self.folder / "parley.toml").write_text(code)
        self.manage("manage.py load_config parley.toml")

    def _load_tables(self, page: str, commands: list[str]) -> None:
        """Into a data folder of its own: the file changes the default model."""
        data = self.folder / "configured"
        shutil.copytree(self.server.data, data, ignore=shutil.ignore_patterns("lock"))
        self.server = ServerProcess(data)
        first, *rest = (block for name, block in _toml(page))
        names = re.findall(r'"env:(\w+)"', page)
        names += re.findall(r'"env:(\w+)"', (BASE / "docs" / "context.md").read_text())
        self.server.environment |= dict.fromkeys(names, "secret-of-the-example")
        path = self.folder / "parley.toml"
        path.write_text(first)
        for command in commands or ["manage.py load_config parley.toml"]:
            self.manage(command)
        for block in rest:
            path.write_text(block)
            self.manage("manage.py load_config parley.toml")


Run = Callable[[Install, str], None]
SPECIAL: dict[tuple[str, str], Run] = {
    ("adding-a-provider.md", "from "): Install.add_provider,
    ("adding-a-provider.md", "codecs = "): Install.deviate,
    ("configuration.md", "manage.py "): Install.load_configuration,
    ("context.md", "[[sources]]"): Install.load_presets,
    ("gateway.md", '{"tools"'): Install.take_field_of_a_response,
    ("operations.md", "sqlite3 "): Install.back_up,
    ("relay.md", "from "): Install.relay,
    ("relay.md", "python manage.py "): Install.relay_files,
    ("tools.md", '{\n  "input"'): Install.call_function,
    ("tools.md", '{"input"'): Install.call_function,
    ("mcp.md", '{"mcpServers"'): lambda _, code: _is_true(parse_programs(code)),
}


def check_image(code: str) -> None:
    """An image on Parley's (no container engine runs here) has its Python and user."""
    own = (BASE / "Dockerfile").read_text()
    words = {line.partition(" ")[0] for line in code.splitlines()}
    assert words <= {"FROM", "USER", "RUN", "COPY", "ENV"}
    [python] = re.findall(r"--python (\S+)", code)
    assert f"--python {python} " in own
    assert code.rpartition("USER ")[2].split()[0] in re.findall(
        r"^USER (\S+)", own, re.M
    )


def check_nginx(code: str) -> None:
    """Every directive is one that the nginx file of `deploy` has."""
    known = set(re.findall(r"[a-z_]+", (BASE / "deploy" / "nginx.conf").read_text()))
    assert set(re.findall(r"(?:[;{}]|^)\s*([a-z_]+)", code, re.M)) <= known


CHECKS: dict[str, Callable[[str], Any]] = {
    "dockerfile": check_image,
    "nginx": check_nginx,
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
    "js": lambda code: None,  # the SDKs for it are no dependencies
}
_PRELUDE = """
set -euo pipefail
touch outputs
curl() { command curl --fail-with-body --max-time 30 "$@"; }
newest() { grep -oE "$1_[0-9A-Za-z]+" outputs | tail -n 1; }
"""


def _lines(code: str) -> list[str]:
    """The commands, each in one line."""
    joined = code.replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip()]


def _toml(page: str) -> list[tuple[str, str]]:
    return [(name, code) for _, name, code in _BLOCK.findall(page) if name == "toml"]


def _is_true(value: Any) -> None:
    assert value


@pytest.fixture(scope="module")
def token(shared_server: ServerProcess) -> str:
    return shared_server.create_token()


@pytest.fixture
def install(shared_server: ServerProcess, token: str, tmp_path: Path) -> Install:
    return Install(shared_server, token, tmp_path)


@pytest.mark.parametrize(
    "document", [path for path in DOCUMENTS if blocks_of(path)], ids=lambda p: p.name
)
def test_the_examples_of_a_document_work(document: Path, install: Install):
    for block in blocks_of(document):
        if not block.reason_to_skip:
            install.run(document.name, block)


def test_every_exception_is_needed():
    codes = [b.code.lstrip() for path in DOCUMENTS for b in blocks_of(path)]
    for start in SKIPPED:
        assert any(code.startswith(start) for code in codes), start
    for name, path in PYTHON_ELSEWHERE.items():
        assert name in (BASE / path).read_text()
