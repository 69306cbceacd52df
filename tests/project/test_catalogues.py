"""Laws of the translation catalogues: complete, compiled, with all placeholders."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import polib
import pytest
from django.conf import settings
from django.core.management import call_command
from django.utils.translation import to_locale

from tests.conversations.pages.script_strings import script_literals
from tests.programs import need_program

LOCALES = [
    to_locale(code) for code, _ in settings.LANGUAGES if code != settings.LANGUAGE_CODE
]
#: Of pages and of their scripts, each with a number of texts that it exceeds.
DOMAINS = {"django": 1000, "djangojs": 70}
ROOT = Path(__file__).parents[2]
TRANSLATORS = {"_"} | {
    f"{name}{ending}"
    for name in ("gettext", "ngettext", "pgettext", "npgettext")
    for ending in ("", "_lazy", "_noop")
}
PLACEHOLDER = re.compile(r"%\([a-z_]+\)[sd]|%[sd%]|\{[a-z_0-9.]*(?::[^{}]*)?\}|<[^>]+>")


def folder_of(locale: str) -> Path:
    return Path(settings.LOCALE_PATHS[0]) / locale / "LC_MESSAGES"


def read(locale: str, domain: str) -> polib.POFile:
    return polib.pofile(str(folder_of(locale) / f"{domain}.po"))


def placeholders(text: str) -> list[str]:
    return sorted(PLACEHOLDER.findall(text))


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("locale", LOCALES)
def test_each_text_is_translated(locale: str, domain: str):
    catalogue = read(locale, domain)
    assert len(catalogue) > DOMAINS[domain]
    assert [entry.msgid for entry in catalogue if not entry.translated()] == []


def test_a_placeholder_may_have_a_format():
    assert placeholders("In {seconds:g} s, %(day)s") == ["%(day)s", "{seconds:g}"]


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("locale", LOCALES)
def test_translations_have_the_placeholders_of_their_source(locale: str, domain: str):
    catalogue = read(locale, domain)
    wrong = []
    for entry in catalogue:
        source = entry.msgid_plural or entry.msgid
        last = (
            entry.msgstr_plural[max(entry.msgstr_plural)]
            if entry.msgid_plural
            else entry.msgstr
        )
        if placeholders(last) != placeholders(source):
            wrong.append(entry.msgid)
    assert wrong == []


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("locale", LOCALES)
def test_a_plural_has_each_form_that_the_header_counts(locale: str, domain: str):
    catalogue = read(locale, domain)
    header = catalogue.metadata["Plural-Forms"]
    forms = list(range(int(re.search(r"nplurals\s*=\s*(\d+)", header)[1])))
    plurals = [entry for entry in catalogue if entry.msgid_plural]
    assert plurals
    assert [e.msgid for e in plurals if sorted(e.msgstr_plural) != forms] == []


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("locale", LOCALES)
def test_the_compiled_catalogue_is_that_of_its_source(locale: str, domain: str):
    written = read(locale, domain)
    compiled = polib.mofile(str(folder_of(locale) / f"{domain}.mo"))
    assert {(e.msgctxt, e.msgid): e.msgstr or e.msgstr_plural for e in compiled} == {
        (e.msgctxt, e.msgid): e.msgstr or e.msgstr_plural for e in written
    }


@pytest.mark.parametrize("locale", LOCALES)
def test_the_catalogue_of_scripts_has_each_of_their_texts(locale: str):
    catalogue = read(locale, "djangojs")
    collected = {text for e in catalogue for text in (e.msgid, e.msgid_plural) if text}
    written = {
        each.text for each in script_literals() if each.call in ("gettext", "ngettext")
    }
    assert collected == written


@pytest.mark.parametrize("locale", LOCALES)
def test_pages_and_their_scripts_use_the_same_words(locale: str):
    pages = {e.msgid: e.msgstr for e in read(locale, "django") if not e.msgctxt}
    scripts = {e.msgid: e.msgstr for e in read(locale, "djangojs")}
    both = pages.keys() & scripts.keys()
    assert len(both) > 40
    assert {text for text in both if pages[text] != scripts[text]} == set()


def calls_in(tree: ast.AST) -> Iterator[ast.Call]:
    return (each for each in ast.walk(tree) if isinstance(each, ast.Call))


def test_no_text_is_translated_inside_an_f_string():
    """There `makemessages` does not find it."""
    found = []
    for package in ("conversations", "llm", "project", "tools"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    found += [
                        f"{path.name}:{call.lineno}"
                        for call in calls_in(node)
                        if isinstance(call.func, ast.Name)
                        and call.func.id in TRANSLATORS
                    ]
    assert found == []


def test_collecting_texts_again_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    need_program("msgmerge")
    (tmp_path / "page.py").write_text('_("Send the message"); _("Send the messages")\n')
    catalogue = tmp_path / "locale" / "de" / "LC_MESSAGES" / "django.po"
    catalogue.parent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(settings, "LOCALE_PATHS", [tmp_path / "locale"])
    catalogue.write_text(
        'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        'msgid "Send the message"\nmsgstr "Nachricht senden"\n'
    )
    call_command("makemessages", locale=["de"], verbosity=0)
    first = catalogue.read_text()
    call_command("makemessages", locale=["de"], verbosity=0)
    assert catalogue.read_text() == first
    assert "Creation-Date" not in first
    found = {e.msgid: (e.msgstr, e.flags) for e in polib.pofile(str(catalogue))}
    assert found == {
        "Send the message": ("Nachricht senden", []),
        "Send the messages": ("", []),  # and no guess
    }
