from __future__ import annotations

import re
from pathlib import Path

import pytest

from llm.providers import all_providers
from project.settings import env
from tests.serving import BASE

ROW = re.compile(r"^\| `(\S+)` \| (.+?) \| (.+) \|$", re.MULTILINE)
SETTINGS = (BASE / "docs" / "settings.md").read_text()
TABLE = {name: (default, meaning) for name, default, meaning in ROW.findall(SETTINGS)}


def documented_as(name: str) -> str:
    """The row of the table that documents this variable."""
    for kind in sorted(all_providers(), key=len, reverse=True):
        word = kind.upper().replace("-", "_")
        if name not in TABLE and word in name:
            return name.replace(word, "<PROVIDER>")
    return name


def test_the_table_lists_exactly_the_variables_that_are_read():
    assert {documented_as(name) for name in env.names} == set(TABLE)


def test_the_tables_defaults_are_the_real_ones():
    for name, default in env.names.items():
        documented, _ = TABLE[documented_as(name)]
        if documented.startswith("`"):
            assert documented.strip("`").lower() == default.lower(), name


def test_every_plain_default_is_documented():
    for name, default in env.names.items():
        documented, _ = TABLE[documented_as(name)]
        is_plain = re.fullmatch(r"[A-Z]+|True|False|[\d.]+", default)
        assert documented.startswith("`") or not is_plain, name


def test_the_example_knows_only_real_variables():
    example = (BASE / ".env.example").read_text()
    names = re.findall(r"^#([A-Z_]+)=", example, re.MULTILINE)
    assert set(names) <= set(env.names)


DOCUMENTS = [*BASE.glob("*.md"), *BASE.glob("docs/**/*.md")]


@pytest.mark.parametrize(
    ("name", "most"), [("README.md", 90), ("docs/performance.md", 150)]
)
def test_a_document_is_short(name: str, most: int) -> None:
    assert len((BASE / name).read_text().splitlines()) <= most


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(path: Path):
    links = re.findall(r"(?<!!)\[[^]]*\]\(([^)#:]+)\)", path.read_text())
    missing = [link for link in links if not (path.parent / link).exists()]
    assert missing == []


def test_decisions_are_all_listed():
    folder = BASE / "docs" / "decisions"
    listed = set(
        re.findall(r"\((\d{4}-[\w-]+\.md)\)", (folder / "README.md").read_text())
    )
    assert listed == {path.name for path in folder.glob("0*.md")}
