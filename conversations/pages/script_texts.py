"""The catalogue of the texts that scripts show, for pages that are not in English.

It is a script of its own, at an address that names its language and its version, so
that browsers keep it. static/js/texts.js reads what it sets. The texts of scripts are
written in English, so an English page loads no catalogue.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import translation
from django.utils.cache import patch_cache_control
from django.views.decorators.http import etag, require_safe
from django.views.i18n import JSONCatalog

_YEAR = 365 * 24 * 3600  # seconds


def _etag(request: HttpRequest, language: str, version: str) -> str | None:
    return f'"{_catalogue(language)[1]}"' if _has_catalogue(language) else None


@require_safe
@etag(_etag)
def script_texts(request: HttpRequest, language: str, version: str) -> HttpResponse:
    if not _has_catalogue(language):
        raise Http404
    code, current = _catalogue(language)
    response = HttpResponse(code, content_type="text/javascript; charset=utf-8")
    if version == current:
        patch_cache_control(response, public=True, max_age=_YEAR, immutable=True)
    else:  # of a page that another release has rendered
        patch_cache_control(response, no_cache=True)
    return response


def texts_url(language: str | None) -> str:
    """The address of the catalogue; "" for English."""
    if language is None or not _has_catalogue(language):
        return ""
    _code, version = _catalogue(language)
    return reverse("script-texts", args=[language, version])


def _has_catalogue(language: str) -> bool:
    return language != settings.LANGUAGE_CODE and language in dict(settings.LANGUAGES)


@cache
def _catalogue(language: str) -> tuple[str, str]:
    """The script and its version."""
    with translation.override(language):
        # Only Parley's own texts: the admin brings a catalogue for its scripts.
        answer = JSONCatalog(packages=["project"]).get(HttpRequest())
    found = json.loads(answer.content)
    texts = json.dumps(found["catalog"], ensure_ascii=False, sort_keys=True)
    plural = f"(n) => {found['plural'] or 'n != 1'}"
    code = f"globalThis.parleyTexts = {{texts: {texts}, plural: {plural}}};\n"
    return code, hashlib.sha256(code.encode()).hexdigest()[:16]
