"""The page of a conversation for paper: all turns, no controls, no scripts needed.

Its turns are rendered a few at a time while the page is sent.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.utils import translation
from django.utils.safestring import mark_safe
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from conversations.http.streamed_download import stream
from conversations.models import Conversation
from conversations.pages.transcript import render_line

_PAGE = "conversations/reading/print.html"
_TURN = "conversations/reading/_printed_turn.html"
_COMPARISON = "conversations/reading/_printed_comparison.html"


@login_required
@never_cache
@require_GET
def print_conversation(request: HttpRequest, conversation_id: str) -> HttpResponseBase:
    visible = Conversation.objects.visible_to(request.user)
    row = get_object_or_404(visible, pk=conversation_id)
    pieces = _pieces(request, row, translation.get_language())
    return stream(request, pieces, "text/html; charset=utf-8")


def _pieces(
    request: HttpRequest, row: Conversation, language: str | None
) -> Iterator[bytes]:
    """The page. It is read on other threads, where the language is not the reader's."""
    # A template is rendered as a whole, so the page is made without the turns first.
    mark = f"<!-- {secrets.token_hex()} -->"
    context = {"conversation": row, "turns": mark_safe(mark)}
    with translation.override(language):
        page = render_to_string(_PAGE, context, request)
    head, _, tail = page.partition(mark)
    yield head.encode()
    for turns in render_line(row, request.user):
        for shown in turns:
            template = _COMPARISON if shown.compared else _TURN
            with translation.override(language):
                html = render_to_string(template, {"shown": shown})
            yield html.encode(errors="replace")
    yield tail.encode()
