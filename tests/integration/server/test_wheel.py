"""The wheel in an empty environment: as the product, and in another Django project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.llm.library_examples import blocks_of, settings_of
from tests.programs import need_program
from tests.serving import BASE, Deadline, free_port

pytestmark = [pytest.mark.server, pytest.mark.slow]

LIBRARY = BASE / "docs" / "library.md"
EXAMPLES = BASE / "tests" / "llm" / "library_examples.py"
PASSWORD = "tests-know-this-one"
#: Opens the pages of the admin that the two apps have in another project.
VISIT = """
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

client = Client()
client.force_login(User.objects.create_superuser("staff"))
for model in [*apps.get_app_config("llm").get_models(),
              *apps.get_app_config("tools").get_models()]:
    name = f"admin:{model._meta.label_lower.replace('.', '_')}"
    if not admin.site.is_registered(model):
        continue
    pages = [reverse(f"{name}_changelist")]
    row = model.objects.first()
    pages += [reverse(f"{name}_change", args=[row.pk])] if row else []
    for page in pages:
        status = client.get(page, headers={"host": "localhost"}).status_code
        assert status == 200, (page, status)
        print("visited", page)
"""
#: A module of another project; what it ignores, a type checker has to find.
TYPED = """
from contextlib import aclosing
from dataclasses import dataclass

from llm import api as models
from llm.errors import LLMError, TryAgain
from tools import api


@dataclass
class Parcel:
    kilos: float


@api.tool(timeout=5)
def cost(country: str, kilos: float) -> dict[str, float]:
    return {"euros": 4 + 1.5 * kilos}


async def ask(question: str) -> list[str]:
    answer: models.Result = await models.generate("fast", question, temperature=0.2)
    await models.generate("fast", question, temprature=0.2)  # type: ignore[call-arg]
    async with aclosing(api.stream("fast", question, tools=[cost])) as stream:
        types: list[str] = [event["type"] async for event in stream]
    return [answer.text, *types]


def weigh(question: str) -> Parcel | None:
    text: str = api.generate_text_sync(None, question, max_iterations=3)
    api.run_sync("fast", text, tols=[cost])  # type: ignore[call-arg]
    try:
        parcel: Parcel = api.generate_json_sync("fast", question, Parcel, tools=[cost])
        with api.stream_sync("fast", question, tools=["calculator"]) as stream:
            print([event["type"] for event in stream], stream.result.metadata["cost"])
    except TryAgain as exc:
        print(exc.retry_after + 1)  # type: ignore[operator]
    except LLMError as exc:
        print(exc.code)
    else:
        return parcel
    return None
"""


def uv(*arguments: str) -> None:
    """uv links packages from its cache, so that an environment takes seconds."""
    ours = sorted(BASE.glob(".tools/uv-*/bin/uv"))
    program = str(ours[-1]) if ours else need_program("uv")
    subprocess.run(
        [program, *arguments, "--quiet", "--no-config"], cwd=BASE, check=True
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--wheel", "--out-dir", str(folder))
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `bin` of an environment that has the wheel, in the locked versions."""
    environment = tmp_path_factory.mktemp("environment") / "empty"
    uv("venv", str(environment))
    python = str(environment / "bin" / "python")
    versions = ["--constraint", str(BASE / "requirements.txt")]
    uv("pip", "install", "--python", python, *versions, str(wheel))
    return environment / "bin"


@pytest.fixture
def variables(tmp_path: Path, programs: Path) -> dict[str, str]:
    """An environment that names no setting, and nothing of this repository."""
    return {"HOME": str(tmp_path / "home"), "PATH": f"{programs}{os.pathsep}/bin"}


@contextmanager
def running(
    command: list[str], folder: Path, environment: Mapping[str, str], last_line: str
) -> Iterator[None]:
    """The program, from the line that begins with `last_line` to the block's end."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: list[str] = []
    with process:
        with Deadline(process):
            for line in process.stdout or ():
                lines.append(line.rstrip("\n"))
                if line.startswith(last_line):
                    break
        try:
            assert lines[-1:], "it printed nothing"
            assert lines[-1].startswith(last_line), lines
            yield
        finally:
            process.terminate()


def test_the_wheel_has_every_file(wheel: Path):
    listed = subprocess.run(
        [
            "git",
            "ls-files",
            "project",
            "conversations",
            "tools",
            "llm",
        ],
        cwd=BASE,
        capture_output=True,
        text=True,
        check=True,
    )
    assets = [
        path.relative_to(BASE)
        for folder in ("templates", "static")
        for path in (BASE / folder).rglob("*")
        if path.is_file()
    ]
    expected = {path for path in listed.stdout.split() if (BASE / path).is_file()}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert expected <= names
    assert {f"project/assets/{path}" for path in assets} <= names


def test_the_command_starts_the_product(
    programs: Path, variables: dict[str, str], tmp_path: Path
):
    port = free_port()
    variables |= {"PORT": str(port), "PARLEY_ADMIN_PASSWORD": PASSWORD}
    with (
        running(["parley", "serve"], tmp_path, variables, "Next: "),
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as web,
    ):
        assert web.get("/readyz").status_code == 200
        assert "<form" in web.get("/login/").text
        assert web.get("/static/css/chat.css").status_code == 200
        assert web.get("/static/admin/css/base.css").status_code == 200
        token = subprocess.run(
            ["parley", "create_token", "admin"],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[-1]
        answer = web.post(
            "/v1/responses",
            headers={"authorization": f"Bearer {token}"},
            json={"model": "demo", "input": "What is 12*7+3?"},
        ).json()
        assert answer["status"] == "completed"
    data = tmp_path / "home" / ".local" / "share" / "parley" / "data"
    assert (data / "parley.sqlite3").exists()


def test_the_page_about_the_library_is_true_in_a_new_project(
    programs: Path, variables: dict[str, str], tmp_path: Path
):
    page = LIBRARY.read_text()
    _, *commands, serve_demo = commands_of(page)  # the first installs the wheel
    django = [str(programs / "django-admin"), "startproject", "shop", str(tmp_path)]
    subprocess.run(django, env=variables, check=True)
    shutil.copy(EXAMPLES, tmp_path)
    with (tmp_path / "shop" / "settings.py").open("a") as settings:
        settings.write(settings_of(page))
        settings.write(f'SELF_URL = "http://127.0.0.1:{free_port()}"\n')
    for command in commands:
        run(command.split(), tmp_path, variables)
    with running(serve_demo.split(), tmp_path, variables, "The demo provider"):
        variables["DJANGO_SETTINGS_MODULE"] = "shop.settings"
        examples = ["python", EXAMPLES.name, str(LIBRARY)]
        assert "check_access: ok" in run(examples, tmp_path, variables)
    visit = ["python", "manage.py", "shell", "--command", VISIT]
    assert "/admin/tools/tool/1/change/" in run(visit, tmp_path, variables)
    for check in (["check"], ["makemigrations", "--check"]):
        run(["python", "manage.py", *check], tmp_path, variables)


def test_a_type_checker_knows_the_library_in_another_project(
    programs: Path, tmp_path: Path
):
    (tmp_path / "parcels.py").write_text(TYPED)
    strictly = ["--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache")]
    their = ["--python-executable", str(programs / "python"), "parcels.py"]
    checker = [sys.executable, "-m", "mypy", *strictly, *their]
    assert "Success" in run(checker, tmp_path, os.environ)


def commands_of(page: str) -> list[str]:
    lines = "".join(blocks_of(page, "sh")).splitlines()
    return [line.partition("#")[0].strip() for line in lines]


def run(command: list[str], folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
