"""The texts that scripts show: each goes through gettext, and reaches the page."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.staticfiles import finders
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import translation

from tests.conversations.pages.script_strings import (
    Literal,
    read_literals,
    script_literals,
)
from tests.conversations.scene import a_user, signed_in
from tests.programs import need_program

pytestmark = pytest.mark.django_db

TEMPLATES = Path(__file__).parents[3] / "templates"
OTHERS = [code for code, _ in settings.LANGUAGES if code != settings.LANGUAGE_CODE]

#: What these are given is no text of the page.
UNSHOWN = re.compile(
    r"(?:\$|find|Error|RangeError|querySelector(?:All)?|matches|closest|cloned|fetched"
    r"|element|entries|Set|includes|get|replace|matchMedia|supports|n?gettext)$"
)
#: What these are given, or set to, is read or heard.
SHOWN_BY = re.compile(r"(?:announce|notice|complain|setCustomValidity|alert|confirm)$")
SHOWN_IN = re.compile(
    r"\b(?:textContent|innerText|ariaLabel|title|alt|placeholder|words)\b\s*"
    r"(?:\?\?=|\|\|=|[:=])(?!=)[^,;]*$"
    r'|setAttribute\("(?:aria-label|aria-description|title|alt|placeholder)",[^,]*$'
)
LETTERS = re.compile(r"[^\W\d_]{2}")
WORDS = re.compile(r"[A-Za-z]{2,}[,;:]? [a-z]{2,}|^[A-Z][a-z]+[.!?…]?$")
COMPARED = re.compile(r"[!=]==\s*$")
#: Names, keys, selectors and values of attributes.
NAMES = frozenset(
    [
        *("Enter", "Tab", "Escape", "Backspace", "Delete", "Unidentified"),
        *("Shift", "Control", "Ctrl", "Alt", "Meta", "Files", "TeX", "… – Parley"),
        *("noopener noreferrer nofollow", "use strict", "system-ui, sans-serif"),
    ]
)
SELECTOR = re.compile(r"^[.#\[]|^[a-z]+(?:-[a-z]+)+$|\[\w+[\]=]")


def is_unwrapped(literal: Literal) -> bool:
    if UNSHOWN.search(literal.call) or literal.text in NAMES:
        return False
    if SELECTOR.search(literal.text) or COMPARED.search(literal.before):
        return False
    if SHOWN_BY.search(literal.call) or SHOWN_IN.search(literal.before):
        return LETTERS.search(literal.text.replace("…", "")) is not None
    return WORDS.search(literal.text.replace("…", "")) is not None


def describe(found: list[Literal]) -> list[str]:
    return [f"{literal.place} {literal.text}" for literal in found]


def test_each_text_of_a_script_goes_through_gettext():
    found = script_literals()
    assert sum(literal.call == "gettext" for literal in found) > 50
    assert describe([literal for literal in found if is_unwrapped(literal)]) == []


@pytest.mark.parametrize(
    "code",
    [
        'button.textContent = "Go";',
        'announce("gone");',
        'const words = isLost ? "Lost." : gettext("Found.");',
        "notice(`${count} files`);",
        'element("img", { alt: "drawing" });',
        'button.setAttribute("aria-label", isOpen ? "close" : "open");',
        'button.ariaLabel = `Remove ${gettext("it")}`;',
        'const TITLES = { x: "Searched the web" };',
        'this.#complain(why ?? "It was refused.");',
        'gettext(`Used ${name}`); show("Try again");',
    ],
)
def test_a_text_that_does_not_is_found(code: str):
    assert any(map(is_unwrapped, read_literals("x.js", code)))


def test_gettext_gets_no_text_with_values_in_it():
    found = script_literals()
    wrapped = [each for each in found if each.call in ("gettext", "ngettext")]
    assert describe([each for each in wrapped if "…" in each.text]) == []


# The catalogue as a script


def catalogue_url(language: str) -> str:
    headers = {"Accept-Language": language}
    page = signed_in(a_user("ada")).get("/", headers=headers).text
    found = re.findall(r'<script defer src="(/texts/[^"]+)"></script>', page)
    assert len(found) == 1, found
    before, _, _ = page.partition('<script type="module"')
    assert found[0] in before  # the modules need it
    return found[0]


@pytest.mark.parametrize("language", OTHERS)
def test_a_browser_keeps_the_catalogue_of_a_version(language: str):
    url = catalogue_url(language)
    answer = Client().get(url)
    assert answer.status_code == 200
    assert answer["Content-Type"] == "text/javascript; charset=utf-8"
    assert {"max-age=31536000", "public", "immutable"} <= set(
        answer["Cache-Control"].split(", ")
    )
    assert answer["ETag"].strip('"') in url
    again = signed_in(a_user("bea")).get(url)
    for each in (answer, again):  # one for all readers, so shared caches keep one
        assert not {"cookie", "accept-language"} & vary_of(each)


def test_a_page_varies_with_its_reader():
    answer = signed_in(a_user("ada")).get("/")
    assert {"cookie", "accept-language"} <= vary_of(answer)


def vary_of(answer: Any) -> set[str]:
    return set(answer.headers.get("Vary", "").lower().split(", "))


def test_a_catalogue_of_another_version_is_not_kept():
    answer = Client().get("/texts/de/0123456789abcdef.js")
    assert answer["Cache-Control"] == "no-cache"
    assert "Kopieren" in answer.text
    again = Client().get(
        "/texts/de/0123456789abcdef.js", headers={"If-None-Match": answer["ETag"]}
    )
    assert again.status_code == 304


@pytest.mark.parametrize("language", ["en", "tlh", "de-AT", "..", "zh-hant"])
def test_there_is_no_catalogue_of_other_languages(language: str):
    assert Client().get(f"/texts/{language}/0.js").status_code == 404


def test_an_english_page_loads_no_catalogue():
    page = signed_in(a_user("ada")).get("/", headers={"Accept-Language": "en-GB"})
    assert "/texts/" not in page.text
    assert "js/texts.js" in page.text


def test_a_catalogue_has_no_texts_of_other_apps():
    code = Client().get(catalogue_url("fr")).text
    assert "Copié" in code
    assert "Choisir tout" not in code  # of the admin
    assert len(gzip.compress(code.encode())) < 8 * 1024


RUN = """
import { readFileSync } from "node:fs";
globalThis.document = { documentElement: { lang: "LANGUAGE" } };
(0, eval)(readFileSync(0, "utf8"));
const texts = await import("./static/js/texts.js");
const { gettext, interpolate, ngettext, shortNumber } = texts;
const word = ["Done, %(count)s word.", "Done, %(count)s words."];
const done = (count) => interpolate(ngettext(...word, count), { count });
const words = [gettext("Copy"), gettext("no text of Parley")];
const counts = [done(1), done(2), done(1234567), shortNumber(3.44)];
console.log(JSON.stringify([...words, ...counts]));
"""


@pytest.mark.parametrize(
    ("language", "shown"),
    [
        (
            "en",
            [
                "Copy",
                "Done, 1 word.",
                "Done, 2 words.",
                "Done, 1,234,567 words.",
                "3.4",
            ],
        ),
        (
            "de",
            [
                "Kopieren",
                "Fertig, 1 Wort.",
                "Fertig, 2 Wörter.",
                "Fertig, 1.234.567 Wörter.",
                "3,4",
            ],
        ),
        (
            "es",
            [
                "Copiar",
                "Listo, 1 palabra.",
                "Listo, 2 palabras.",
                "Listo, 1.234.567 palabras.",
                "3,4",
            ],
        ),
        (
            "zh-hans",
            [
                "复制",
                "完成，1 个词。",
                "完成，2 个词。",
                "完成，1,234,567 个词。",
                "3.4",
            ],
        ),
    ],
)
def test_scripts_read_it(language: str, shown: list[str]):
    code = "" if language == "en" else Client().get(f"/texts/{language}/x.js").text
    done = subprocess.run(
        [
            need_program("node"),
            "--input-type=module",
            "-e",
            RUN.replace("LANGUAGE", language),
        ],
        input=code,
        capture_output=True,
        text=True,
        check=True,
        cwd=TEMPLATES.parent,
    )
    copy, unknown, *rest = json.loads(done.stdout)
    assert [copy, *rest] == shown
    assert unknown == "no text of Parley"


# The pages

_MODULE = re.compile(r"<script type=\"module\" src=\"{% static '(js/[^']+)' %}\"")
_IMPORTED = re.compile(r'\bfrom\s+"(\.[^"]+)"|\bimport\("(\.[^"]+)"\)')


def imports_of(path: Path, found: set[Path]) -> set[Path]:
    if path not in found:
        found.add(path)
        for one, other in _IMPORTED.findall(path.read_text()):
            imports_of((path.parent / (one or other)).resolve(), found)
    return found


@pytest.mark.parametrize(
    "template",
    [path for path in TEMPLATES.rglob("*.html") if _MODULE.search(path.read_text())],
    ids=lambda path: path.name,
)
def test_each_page_whose_scripts_have_texts_loads_the_catalogue(template: Path):
    text = template.read_text()
    modules: set[Path] = set()
    for name in _MODULE.findall(text):
        imports_of(Path(str(finders.find(name))).resolve(), modules)
    has_texts = any(module.name == "texts.js" for module in modules)
    before, _, _ = text.partition('<script type="module"')
    assert ("{% script_texts %}" in before) == has_texts


def test_the_month_of_may_and_the_permission_are_different_words():
    with translation.override("de"):
        assert translation.gettext("May") == "Mai"
        assert translation.pgettext("permission to run a tool", "May") == "Darf"
        assert translation.pgettext("role of a person", "May") == "Darf"


def test_a_refused_file_is_explained_in_the_readers_language(settings):
    settings.MAX_UPLOAD_SIZE = 1_500
    client = signed_in(a_user("ada"))
    data = {"text": "Hallo", "file": SimpleUploadedFile("lang.txt", b"x" * 2_345)}
    page = client.post("/", data, headers={"Accept-Language": "de"}).text
    shown = "„lang.txt“ hat 2,3 kB; die Grenze für eine Datei liegt bei 1,5 kB."
    assert shown in page
