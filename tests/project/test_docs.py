"""Check that the names in the documents' backticks exist: files, modules, classes,
functions, events, settings and packages. Other tests execute the blocks of code."""

from __future__ import annotations

import builtins
import re
import subprocess
from functools import cache
from pathlib import PurePath

import pytest

from tests.serving import BASE

#: These list names of other programs and of their test cases. Only the names of this
#: project's files, modules and events are checked there.
ABOUT_OTHERS = {
    f"docs/{name}.md" for name in ("clients", "compatibility", "fidelity", "mcp")
}
#: Names that other programs and libraries define and this project's code does not use.
FOREIGN = {"AsyncHttpConsumer", "GZipMiddleware", "FLUSHDB", "VACUUM", "noeviction"}
FOREIGN |= {"Enum", "extra_body", "large_client_header_buffers", "acme.py"}
FOREIGN |= {"llm_providers.py"}

_GIT = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
_LISTING = subprocess.run(_GIT, cwd=BASE, check=True, capture_output=True, text=True)
FILES = {name for name in _LISTING.stdout.splitlines() if (BASE / name).is_file()}
PATHS = FILES | {str(folder) for name in FILES for folder in PurePath(name).parents}
TOP_FOLDERS = "|".join(sorted({name.split("/")[0] for name in FILES if "/" in name}))
DOCUMENT = re.compile(r"docs/.+\.md|(README|CONTRIBUTING|SECURITY)\.md")
DOCUMENTS = sorted(filter(DOCUMENT.fullmatch, FILES))
_CODE = re.compile(
    r"docs/settings\.md|static/vendor/README\.md|\w+"
    r"|(?!.*\.min\.js).+\.(py|js|html|css|toml|txt|conf|sh|ya?ml|example)"
)


# Read when a test runs: every test process imports this module.
@cache
def source() -> str:
    names = sorted(filter(_CODE.fullmatch, FILES - {"tests/project/test_docs.py"}))
    return "\n".join((BASE / name).read_text() for name in names)


@cache
def words() -> set[str]:
    hyphenated = re.findall(r"(?<![\w-])\w+(?:-\w+)+", source())
    return {*re.findall(r"\w+", source()), *hyphenated}


@cache
def classes() -> set[str]:
    imports = re.findall(r"\bimport\s+(\([^)]+\)|.+)", source())
    return {
        *re.findall(r"\bclass (\w+)", source()),
        *re.findall(r"^([A-Z]\w*)(?::.*)? = ", source(), re.MULTILINE),
        *re.findall(r"\w+", " ".join(imports)),
        *re.findall(r"""["'](\w+)["']""", source()),  # HTTP headers, keys of JSON
        *dir(builtins),
    }


def _is_path(name: str) -> bool:
    end = name.rstrip("/")
    return end in PATHS or any(path.endswith(f"/{end}") for path in PATHS)


def _is_module(name: str) -> bool:
    """Whether a module has that name, or contains the last or the last two parts."""
    parts = name.split(".")
    for length in range(len(parts), max(len(parts) - 3, 0), -1):
        for end in (".py", "/__init__.py"):
            path = "/".join(parts[:length]) + end
            if path in FILES:
                words = re.findall(r"\w+", (BASE / path).read_text())
                return set(parts[length:]) <= set(words)
    return False


def _is_event(name: str) -> bool:
    family, _, state = name.rpartition(".")
    return name in source() or (f"{family}.{{" in source() and state in words())


def missing_names(text: str, *, about_others: bool = False) -> set[str]:
    blocks = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
    # A block without a language may be a diagram, which names classes.
    diagrams = "".join(code for language, code in blocks.findall(text) if not language)
    names = set(re.findall(r"\b(?:[A-Z][a-z]+){2,}\b", diagrams))
    text = blocks.sub("", text)
    missing = set() if about_others else names - classes()
    for code in re.findall(r"`([^`\n]+)`", text):
        name = re.sub(r"[({=].*", "", code).strip()
        if name.startswith("../"):  # outside the repository
            found = False
        elif re.fullmatch(rf"({TOP_FOLDERS})/[\w./-]*", name):
            found = _is_path(name)
        elif re.fullmatch(rf"({TOP_FOLDERS})(\.\w+)+", name):
            found = _is_path(name) or _is_module(name)
        elif re.match(r"parley:\w", name):
            found = all(map(_is_event, re.findall(r"parley:[\w.]*\w", name)))
        elif about_others or name in FOREIGN:
            continue
        elif re.fullmatch(r"\w[\w./-]+\.(py|md)|[a-z_]+/", name):
            found = _is_path(name)
        elif re.fullmatch(r"[A-Z]\w*[a-z]\w*(\.\w+)?", name):
            class_name, _, member = name.partition(".")
            found = class_name in classes() | PATHS and (
                not member or member in words()
            )
        elif re.fullmatch(r"[A-Za-z]\w*([.-]\w+)*", name):
            found = name in words() or all(part in words() for part in name.split("."))
        else:
            continue
        if not found:
            missing.add(name)
    return missing


def test_every_event_is_described():
    """The clients' events that code sends beside the standard's."""
    sent = re.findall(
        r'(?:\bextension\(|"type":)\s*f?"(parley:[a-z_]+\.[a-z_.]*)', source()
    )
    described = "\n".join((BASE / name).read_text() for name in DOCUMENTS)
    assert {"parley:step.started", "parley:turn.queued"} <= {*sent}
    assert [name for name in sorted({*sent}) if name not in described] == []


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.parametrize("path", DOCUMENTS)
def test_names_in_backticks_exist(path: str):
    text = (BASE / path).read_text()
    assert missing_names(text, about_others=path in ABOUT_OTHERS) == set()


@pytest.mark.parametrize(
    "name",
    [
        "llm/http/absent.py",
        "llm/absent/",
        "absent.py",
        "llm.http.absent",
        "llm.http.client.absent_function",
        "AbsentClass",
        "Conversation.absent_column",
        "parley:absent.event",
        "ABSENT_SETTING",
        "absent-package",
    ],
)
def test_wrong_names_are_missing(name: str):
    assert missing_names(f"See `{name}`.") == {name}
