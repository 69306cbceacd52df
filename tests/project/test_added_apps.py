"""PARLEY_APPS: a deployment adds apps to a server that it does not change."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.serving import BASE, ServerProcess, manage

PROVIDER = """
from llm.provider import Provider
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec

PROVIDER = Provider(
    name={name!r},
    label="A host of ours",
    base_url="https://api.acme.example/v1",
    codecs={{"openai_chat": OpenAIChatCodec()}},
    key_env="ACME_API_KEY",
    model_env="ACME_MODEL",
    default_model="acme-large",
)
"""
TOOL = """
from tools.registry import tool


@tool
def {name}(day: str) -> str:
    \"\"\"Tell when the office is open.\"\"\"
    return "9 to 5"
"""
MODEL = """
from django.db import models


class Visit(models.Model):
    at = models.DateTimeField()
"""
FOUND = """
import json
from django.apps import apps
from django.conf import settings
from llm.models import Provider
from tools.registry import python_tools

print(json.dumps({
    "labels": [app.label for app in apps.get_app_configs()],
    "tools": list(python_tools()),
    "models": [model._meta.label for model in apps.get_models()],
    "accounts": [account.kind for account in settings.ACCOUNTS],
    "base_url": (host := Provider(kind="acme").host) and host.base_url,
}))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "mycompany/__init__.py": "",
        "mycompany/tools.py": TOOL.format(name="office_hours"),
        "mycompany/llm_providers.py": PROVIDER.format(name="acme"),
        "mycompany/models.py": MODEL,
        "othercompany/__init__.py": "",
        "othercompany/tools/__init__.py": TOOL.format(name="shop_hours"),
        "othercompany/tools/models.py": MODEL,
        "thirdcompany/llm/__init__.py": "",
        "thirdcompany/llm/apps.py": "from django.apps import AppConfig\n\n\n"
        "class Config(AppConfig):\n    name, label = 'thirdcompany.llm', 'third'\n"
        "class Nameless(AppConfig):\n    default = False\n"
        "class Elsewhere(AppConfig):\n    name, default = 'no.such', False\n"
        "class Taken(AppConfig):\n    name, default = 'thirdcompany.llm', False\n"
        "class Plain:\n    pass\n",
        "broken/__init__.py": "def (",
        "broken/sub/__init__.py": "",
        "needy/__init__.py": "",
        "needy/apps.py": "import no_such_thing",
        "thirdcompany/llm/llm_providers/acme.py": PROVIDER.format(name="acme"),
    }
    for name, text in files.items():
        path = tmp_path / "apps" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def run(folder: Path, added: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **ServerProcess(folder / "data").environment,
        "PYTHONPATH": str(folder / "apps"),
        "PARLEY_APPS": added,
        "ACME_API_KEY": "acme-key",
    }
    return subprocess.run(
        manage("shell", "--no-imports", "--command", FOUND),
        cwd=BASE,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.smoke
def test_apps_bring_their_tools_providers_and_models(folder: Path):
    done = run(folder, "mycompany, othercompany.tools, mycompany")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["labels"][-2:] == ["mycompany", "othercompany_tools"]
    assert {"office_hours", "shop_hours", "calculator"} <= set(found["tools"])
    assert found["models"][-2:] == ["mycompany.Visit", "othercompany_tools.Visit"]
    assert found["accounts"] == ["acme", "demo"]
    assert found["base_url"] == "https://api.acme.example/v1"


@pytest.mark.slow
@pytest.mark.smoke
def test_an_app_may_be_named_by_its_configuration_class(folder: Path):
    """As INSTALLED_APPS accepts it. Its providers are found too."""
    done = run(folder, "thirdcompany.llm.apps.Config")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["labels"][-1] == "third"
    assert found["accounts"] == ["acme", "demo"]


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        ("thirdcompany.llm.apps.Nothing", "Nothing"),
        ("thirdcompany.llm.apps.Nameless", "name"),
        ("thirdcompany.llm.apps.Elsewhere", "no.such"),
        ("thirdcompany.llm.apps.Taken", "two apps have the label 'llm'"),
        ("thirdcompany.llm.apps.Plain", "AppConfig"),
        ("broken", "SyntaxError"),
        ("broken.sub", "SyntaxError"),
        ("needy", "no_such_thing"),
        ("sys", "filesystem location"),
        ("llm.models", "loaded"),
        (".x", "cannot be imported"),
        ("a..b", "cannot be imported"),
        ("mycompany tools", "cannot be imported"),
        ("/srv/apps", "cannot be imported"),
    ],
)
def test_a_wrong_app_stops_the_start_with_one_line(
    folder: Path, added: str, problem: str
):
    done = run(folder, added)
    assert done.returncode == 1
    line = done.stderr.removesuffix("\n")
    assert "\n" not in line
    assert line.startswith("PARLEY_APPS: ")
    assert problem in line


def test_two_providers_of_one_name_stop_the_start_with_one_line(folder: Path):
    done = run(folder, "mycompany,thirdcompany.llm")
    assert (done.returncode, done.stderr) == (
        1,
        "PARLEY_APPS: thirdcompany.llm has a provider 'acme', as Parley or another app"
        " has; rename it.\n",
    )


def test_containers_have_the_folder_of_apps_on_the_path():
    dockerfile = (BASE / "Dockerfile").read_text()
    [path] = re.findall(r"\bPYTHONPATH=(\S+)", dockerfile)
    process = yaml.safe_load((BASE / "compose.yaml").read_text())["x-parley"]
    mounts = [volume.split(":")[1] for volume in process["volumes"]]
    assert path in mounts
    assert "PARLEY_APPS" in process["environment"]
    assert f":{path}:" in (BASE / "docs" / "settings.md").read_text()
