"""What makes the pages an installable app: manifest, service worker, offline page.

The service worker stores the offline page and the files that it needs, and nothing
else: no page with content and no answer of an API. For a browser that is not signed in
`/sw.js` is a worker that removes itself and what was stored.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles import finders
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import reverse
from django.utils import translation
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe

_FONT = "vendor/atkinson-hyperlegible/atkinson-hyperlegible-next-latin-wght-normal"
#: The static files of the offline page.
SHELL = (
    "css/base.css",
    "css/dark.css",
    "css/chat.css",
    "css/cards.css",
    "css/people.css",
    "img/favicon.svg",
    f"{_FONT}.woff2",
    "js/people/offline-page.js",
    "js/people/waiting.js",
)
_WORKER = "js/people/service-worker.js"
_REMOVAL = "js/people/service-worker-removal.js"


@require_safe
def manifest(request: HttpRequest) -> HttpResponse:
    icons = [
        {"src": static("img/icon-192.png"), "sizes": "192x192", "type": "image/png"},
        {"src": static("img/icon-512.png"), "sizes": "512x512", "type": "image/png"},
        {
            "src": static("img/icon-maskable-512.png"),
            "sizes": "512x512",
            "type": "image/png",
            "purpose": "maskable",
        },
    ]
    content = {
        "id": "/",
        "name": "Parley",
        "short_name": "Parley",
        "description": _("Chat with every language model, on your own server."),
        "start_url": reverse("chat"),
        "scope": "/",
        "display": "standalone",
        "background_color": "#f6f8f8",
        "theme_color": "#f6f8f8",
        "icons": icons,
        "shortcuts": [
            {"name": _("New chat"), "url": reverse("chat")},
            {"name": _("Settings"), "url": reverse("settings")},
        ],
    }
    return JsonResponse(content, content_type="application/manifest+json")


@require_safe
@cache_control(no_cache=True)
def service_worker(request: HttpRequest) -> HttpResponse:
    is_user = request.user.is_authenticated
    code = _worker(get_language() or "") if is_user else _read(_REMOVAL)
    return HttpResponse(code, content_type="text/javascript; charset=utf-8")


@require_safe
def offline(request: HttpRequest) -> HttpResponse:
    """Shown where the server cannot be reached. It has nothing of the user's.

    The worker fetches it without cookies, so the address names the language.
    """
    language = request.GET.get("language", "")
    if language not in dict(settings.LANGUAGES):
        language = get_language() or settings.LANGUAGE_CODE
    with translation.override(language):
        return render(request, "conversations/pwa/offline.html")


@lru_cache
def _worker(language: str) -> str:
    with translation.override(language):
        offline_page = render_to_string("conversations/pwa/offline.html")
    texts = [_path(name).read_bytes() for name in (*SHELL, _WORKER)]
    texts.append(offline_page.encode())
    version = hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]
    files = [static(name) for name in SHELL]
    page = f"{reverse('offline')}?language={language}"
    names = {"version": version, "page": page, "files": files}
    return f"const SHELL = {json.dumps(names)};\n{_read(_WORKER)}"


def _read(name: str) -> str:
    return _path(name).read_text()


def _path(name: str) -> Path:
    found = finders.find(name)
    assert isinstance(found, str), name
    return Path(found)
