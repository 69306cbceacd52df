"""How much script a chat page loads."""

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
        path = finders.find(url.removeprefix(settings.STATIC_URL))
        assert path, url
        _with_imports(Path(path).resolve(), modules)
    own = [m for m in modules if not any(part in str(m) for part in _RENDERERS)]
    assert len(own) >= 20  # else the page's modules were not found
    scripts = {module.name: module.read_bytes() for module in own}
    scripts |= {url: client.get(url).content for url in texts}
    sizes = {name: len(gzip.compress(code, 6)) for name, code in scripts.items()}
    assert sum(sizes.values()) <= LIMIT, sizes
