"""Responses whose bytes are made while they are sent: downloads, and long pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse
from django.utils.http import content_disposition_header
from django.utils.translation import get_language, override


def download(
    request: Any, pieces: Iterator[bytes], content_type: str, name: str
) -> StreamingHttpResponse:
    """The response; `pieces` as in `stream`."""
    response = stream(request, pieces, content_type)
    response["Content-Disposition"] = content_disposition_header(True, name)
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "private, no-store"
    return response


def stream(
    request: Any, pieces: Iterator[bytes], content_type: str
) -> StreamingHttpResponse:
    """The response. `pieces` may query the database; it is read on a thread, in the
    language of the request, which is over by then."""
    pieces = _translated(pieces, get_language())
    # Under ASGI Django would first collect all that a synchronous iterator yields.
    is_async = hasattr(request, "scope")
    return StreamingHttpResponse(
        _read_on_thread(pieces) if is_async else pieces, content_type=content_type
    )


def _translated(pieces: Iterator[bytes], language: str | None) -> Iterator[bytes]:
    piece: bytes | None = b""
    while piece is not None:
        if piece:
            yield piece
        with override(language):
            piece = _next(pieces)


async def _read_on_thread(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (piece := await sync_to_async(_next)(pieces)) is not None:
        yield piece


def _next(pieces: Iterator[bytes]) -> bytes | None:
    return next(pieces, None)
