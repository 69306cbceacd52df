"""How much script a chat page loads, and that it loads all of it at once."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.staticfiles import finders

from tests.conversations.scene import a_user, signed_in

pytestmark = pytest.mark.django_db

LIMIT = 150 * 1024  # bytes, compressed
#: Loaded only where an answer has a formula or a diagram.
_RENDERERS = ("vendor/katex/", "vendor/mermaid/")
_LOADED = re.compile(
    r'<script[^>]*\bsrc="([^"]+)"|rel="modulepreload"[^>]*href="([^"]+)"'
)
_IMPORTED = re.compile(r'\b(?:from|import)\s*\(?\s*"(\.[^"]+)"')


_IMPORTED_AT_ONCE = re.compile(r'^(?:import|export)\b[^;"]*"(\.\.?/[^"]+)"', re.M)


def _imported_at_once(path: Path, found: set[Path]) -> set[Path]:
    for name in _IMPORTED_AT_ONCE.findall(path.read_text()):
        module = (path.parent / name).resolve()
        if module not in found:
            found.add(module)
            _imported_at_once(module, found)
    return found


def _with_imports(path: Path, found: set[Path]) -> None:
    """Add the module and all that it imports, at once or later."""
    if path in found:
        return
    found.add(path)
    for name in _IMPORTED.findall(path.read_text()):
        _with_imports((path.parent / name).resolve(), found)


@pytest.mark.parametrize("language", [code for code, _ in settings.LANGUAGES])
def test_a_chat_page_loads_at_most_150_kb_of_script(language: str):
    client = signed_in(a_user("ada"))
    page = client.get("/", headers={"Accept-Language": language}).text
    loaded = [one or other for one, other in _LOADED.findall(page)]
    texts = [url for url in loaded if url.startswith("/texts/")]
    assert len(texts) == (language != settings.LANGUAGE_CODE)
    loaded = [url for url in loaded if url not in texts]
    modules: set[Path] = set()
    for url in loaded:
        _with_imports(_file_of(url), modules)
    own = [m for m in modules if not any(part in str(m) for part in _RENDERERS)]
    assert len(own) >= 20  # else the page's modules were not found
    scripts = {module.name: module.read_bytes() for module in own}
    scripts |= {url: client.get(url).content for url in texts}
    sizes = {name: len(gzip.compress(code, 6)) for name, code in scripts.items()}
    assert sum(sizes.values()) <= LIMIT, sizes


def test_a_chat_page_names_all_modules_that_it_needs_at_once():
    """One that only another module names is asked for when that has come."""
    page = signed_in(a_user("ada")).get("/").text
    entries = re.findall(r'<script type="module" src="([^"]+)"', page)
    preloaded = re.findall(r'rel="modulepreload"\s+href="([^"]+)"', page)
    assert len(entries) == 3
    needed: set[Path] = set()
    for url in entries:
        _imported_at_once(_file_of(url), needed)
    assert sorted(map(_file_of, preloaded)) == sorted(needed)


def _file_of(url: str) -> Path:
    path = finders.find(url.removeprefix(settings.STATIC_URL))
    assert path, url
    return Path(path).resolve()
