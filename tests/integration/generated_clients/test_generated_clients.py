"""Generators read the document without a warning, and their clients work."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from django.core.management import call_command

from tests.integration.generated_clients.tools import find_client_tools
from tests.serving import ServerProcess

#: The tools may have to be installed first, which takes a minute or two.
pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
#: What openapi-generator writes for every document, the smallest one too.
OF_EVERY_DOCUMENT = "Failed to get the schema name: null"
PATIENCE = 240  # seconds
BROKEN_BY_OPEN_RESPONSES = (
    "no-illogical-composition-keywords",
    "no-invalid-schema-examples",
    "no-unused-components",
)


@pytest.fixture(scope="module")
def tools() -> Path:
    return find_client_tools()


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("document") / "schema.json"
    call_command("spectacular", format="openapi-json", file=str(path))
    return path


@pytest.fixture
def access(shared_server: ServerProcess) -> Mapping[str, str]:
    return {"BASE_URL": shared_server.url, "TOKEN": shared_server.create_token()}


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    """The program's output; it may have no warning."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-4000:]
    return output


def warnings_of(output: str) -> list[str]:
    return [
        line
        for line in output.splitlines()
        if any(word in line for word in ("WARN", "Warning", "ERROR"))
        and OF_EVERY_DOCUMENT not in line
    ]


def generate(tools: Path, document: Path, language: str, target: Path) -> None:
    command = [tools / "bin/openapi-generator-cli", "generate", "-g", language]
    output = run(*command, "-i", document, "-o", target, folder=target.parent)
    assert warnings_of(output) == []


def compile_and_run(tools: Path, folder: Path, script: str, access: Mapping[str, str]):
    options = ["--module", "commonjs", "--target", "es2022", "--skipLibCheck"]
    types = ["--typeRoots", str(tools / "node_modules/@types"), "--types", "node"]
    run(
        tools / "node_modules/.bin/tsc",
        *options,
        *types,
        *("--strict", "--outDir", "built", script),
        folder=folder,
    )
    built = folder / "built" / Path(script).with_suffix(".js")
    return run("node", built, folder=folder, **access)


def test_openapi_python_client(
    tools: Path, document: Path, tmp_path: Path, access: Mapping[str, str]
):
    command = [tools / "bin/openapi-python-client", "generate", "--meta", "none"]
    target = tmp_path / "parley_client"
    output = run(
        *(*command, "--path", document, "--output-path", target),
        folder=tmp_path,
        PATH=f"{tools / 'bin'}:{os.environ['PATH']}",
    )
    assert warnings_of(output) == []
    script = HERE / "python_client_calls.py"
    python = tools / "bin/python"
    done = run(python, script, folder=tmp_path, PYTHONPATH=str(tmp_path), **access)
    assert done == "10 calls\n"


def test_openapi_generator_python(
    tools: Path, document: Path, tmp_path: Path, access: Mapping[str, str]
):
    generate(tools, document, "python", tmp_path / "made")
    script, python = HERE / "generator_calls.py", tools / "bin/python"
    path = str(tmp_path / "made")
    done = run(python, script, folder=tmp_path, PYTHONPATH=path, **access)
    assert done == "10 calls\n"


def test_openapi_generator_typescript(
    tools: Path, document: Path, tmp_path: Path, access: Mapping[str, str]
):
    generate(tools, document, "typescript-fetch", tmp_path / "client")
    (tmp_path / "calls.ts").write_text((HERE / "fetch_calls.ts").read_text())
    assert compile_and_run(tools, tmp_path, "calls.ts", access) == "10 calls\n"


def test_openapi_typescript(
    tools: Path, document: Path, tmp_path: Path, access: Mapping[str, str]
):
    program = tools / "node_modules/.bin/openapi-typescript"
    output = run(program, document, "-o", "schema.d.ts", folder=tmp_path)
    assert warnings_of(output.replace("npm warn", "")) == []
    (tmp_path / "calls.ts").write_text((HERE / "typed_calls.ts").read_text())
    assert compile_and_run(tools, tmp_path, "calls.ts", access) == "10 calls\n"


def test_redocly_reports_nothing(tools: Path, document: Path, tmp_path: Path):
    """Paths end with a slash, as Django's do."""
    program = tools / "node_modules/.bin/redocly"
    rule = ["--skip-rule", "no-path-trailing-slash"]
    output = run(
        *(program, "lint", *rule, document), folder=tmp_path, REDOCLY_TELEMETRY="off"
    )
    assert "Your API description is valid" in output
    assert warnings_of(output) == []


@pytest.fixture
def gateway_document(shared_server: ServerProcess, tmp_path: Path) -> Path:
    response = httpx.get(f"{shared_server.url}/api/schema/gateway/?format=json")
    path = tmp_path / "gateway.json"
    path.write_text(response.text, encoding="utf-8")
    return path


def test_redocly_reports_nothing_of_the_gateway(
    tools: Path, gateway_document: Path, tmp_path: Path
):
    """Beyond what it finds in the schemas of Open Responses, which are as published."""
    program = tools / "node_modules/.bin/redocly"
    rules = [f"--skip-rule={rule}" for rule in BROKEN_BY_OPEN_RESPONSES]
    output = run(
        *(program, "lint", *rules, gateway_document),
        folder=tmp_path,
        REDOCLY_TELEMETRY="off",
    )
    assert "Your API description is valid" in output
    assert warnings_of(output) == []


def test_the_types_of_the_gateway_compile(
    tools: Path, gateway_document: Path, tmp_path: Path
):
    program = tools / "node_modules/.bin/openapi-typescript"
    output = run(program, gateway_document, "-o", "schema.d.ts", folder=tmp_path)
    assert warnings_of(output.replace("npm warn", "")) == []
    compiler = tools / "node_modules/.bin/tsc"
    run(compiler, "--noEmit", "--strict", "schema.d.ts", folder=tmp_path)
