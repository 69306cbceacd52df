"""Inlining of images and files that a request refers to by URL.

A part of a message or of a tool's output may contain a URL. Most providers download it.
For a provider that does not, and for one in our own network, which could reach private
addresses, the file is downloaded here and sent inline. Each URL is fetched once in a
turn.

In the current question a failed download is a BadRequest that names the file. In the
history a placeholder text replaces the file: an image that has been deleted since must
not end a conversation.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add
from typing import Any
from urllib.parse import unquote, urlsplit

from llm.errors import BadRequest
from llm.fetch import Fetched, Unfetched, fetch
from llm.options import question_at
from llm.provider import Endpoint
from llm.wire.items import Item
from llm.wire.past import folded
from llm.wire.request import Request

Part = Mapping[str, Any]

MAX_TOTAL = 50 * 1024 * 1024  # bytes fetched for one request
_AT_ONCE = 4
_KINDS = {"input_image": "image", "input_file": "file"}
_MEDIA = tuple(_KINDS)
#: Signatures of the image formats that every vision model accepts.
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_GONE = "[The {kind} {name!r} stood here; it can no longer be fetched.]"
_LOST = "input ({} not fetched)"


@dataclass(slots=True)
class Files:
    """Files that a turn has downloaded, or failed to; by URL."""

    found: dict[str, Fetched | Unfetched] = field(default_factory=dict)

    async def fetch(self, urls: Iterable[str]) -> None:
        room = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            for url in dict.fromkeys(urls):
                if url not in self.found:
                    tasks.create_task(self._fetch(url, room))

    async def _fetch(self, url: str, room: asyncio.Semaphore) -> None:
        async with room:
            try:
                self.found[url] = await fetch(url)
            except Unfetched as exc:
                self.found[url] = exc


async def inlined(
    request: Request, endpoint: Endpoint, files: Files
) -> tuple[Request, list[str]]:
    """Inline the files that the provider does not download; also return what was lost.

    Raises BadRequest.
    """
    urls = list(_unfollowed(request.items, endpoint))
    if not urls:
        return request, []
    await files.fetch(urls)
    writer = _Writer(endpoint, files)
    asked = question_at(request.items)
    items = [
        writer.item(item, is_past=number < asked)
        for number, item in enumerate(request.items)
    ]
    return replace(request, items=items), list(dict.fromkeys(writer.lost))


def follows(endpoint: Endpoint, part: Part, url: str) -> bool:
    """Whether the provider itself downloads the `url` of `part`."""
    does = getattr(endpoint.codec, "follows", None)
    return not _is_near(endpoint) and (does is None or does(part, url))


def address_in(part: Part) -> str:
    """The URL of an image or file that has no inline data, otherwise ""."""
    match part.get("type"):
        case "input_image":
            url = part.get("image_url")
            url = url.get("url") if isinstance(url, Mapping) else url
        case "input_file":
            url = None if part.get("file_data") else part.get("file_url")
        case _:
            return ""
    return url if isinstance(url, str) and _ADDRESS.match(url) else ""


def _unfollowed(items: Sequence[Item], endpoint: Endpoint) -> Iterator[str]:
    for part in folded(items, "addresses", _with_addresses, add):
        url = address_in(part)
        if not follows(endpoint, part, url):
            yield url


def _with_addresses(items: Sequence[Item]) -> list[Part]:
    found: list[Part] = []
    for item in items:
        parts = item.get(_place(item))
        if not isinstance(parts, list):
            continue
        for part in parts:
            # Runs for every part of a long conversation: the cheapest test is first.
            if (
                isinstance(part, dict)
                and part.get("type") in _MEDIA
                and address_in(part)
            ):
                found.append(part)
    return found


def _parts(item: Item) -> list[Part]:
    parts = item.get(_place(item))
    return [p for p in parts if isinstance(p, dict)] if isinstance(parts, list) else []


def _place(item: Item) -> str:
    kind = item.get("type", "message")
    return (
        "output" if kind != "message" and str(kind).endswith("_output") else "content"
    )


def _is_near(endpoint: Endpoint) -> bool:
    """True for a server in our own network, as far as its row tells."""
    usual = endpoint.provider.base_url.startswith("http://localhost")
    return endpoint.allow_private_network or (usual and not endpoint.base_url)


class _Writer:
    def __init__(self, endpoint: Endpoint, files: Files) -> None:
        self.lost: list[str] = []
        self._endpoint = endpoint
        self._files = files
        self._size = 0

    def item(self, item: Item, *, is_past: bool) -> Item:
        place, changed = _place(item), False
        parts: list[Any] = []
        for part in item[place] if _parts(item) else ():
            told = self._part(part, is_past) if isinstance(part, dict) else part
            changed |= told is not part
            parts.append(told)
        return {**item, place: parts} if changed else item

    def _part(self, part: dict[str, Any], is_past: bool) -> dict[str, Any]:
        url = address_in(part)
        if not url or follows(self._endpoint, part, url):
            return part
        kind, name = _KINDS[part["type"]], _shown(url)
        try:
            return self._with_data(part, url)
        except Unfetched as exc:
            if not is_past:
                raise BadRequest(
                    f"The {kind} {name!r} could not be fetched: {exc}. Send the {kind}"
                    " itself, or leave it out.",
                    param="input",
                ) from exc
            self.lost.append(_LOST.format(kind))
            return {"type": "input_text", "text": _GONE.format(kind=kind, name=name)}

    def _with_data(self, part: dict[str, Any], url: str) -> dict[str, Any]:
        found = self._files.found[url]
        if isinstance(found, Unfetched):
            raise found
        is_image = part["type"] == "input_image"
        kind = _image_type(found.data) if is_image else _file_type(found)
        self._size += len(found.data)
        if self._size > MAX_TOTAL:
            raise Unfetched(
                f"with the others it is larger than {MAX_TOTAL // 1024**2} MB"
            )
        data = f"data:{kind};base64,{b64encode(found.data).decode()}"
        if is_image:
            return {**part, "image_url": data}
        rest = {name: value for name, value in part.items() if name != "file_url"}
        return {"filename": _file_name(url), **rest, "file_data": data}


def _image_type(data: bytes) -> str:
    """By its first bytes: many servers send the same content type for every file."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    for beginning, kind in _IMAGES:
        if data.startswith(beginning):
            return kind
    raise Unfetched("it is no PNG, JPEG, GIF or WebP image")


def _file_type(found: Fetched) -> str:
    if found.data.startswith(b"%PDF-"):
        return "application/pdf"
    if not found.data:
        raise Unfetched("it is empty")
    kind = found.content_type
    if b"\0" not in found.data[:4096] and kind in ("", "application/octet-stream"):
        return "text/plain"
    return kind or "application/octet-stream"


def _file_name(url: str) -> str:
    return unquote(urlsplit(url).path.rpartition("/")[2])[:100] or "file"


def _shown(url: str) -> str:
    """Without the query, which may contain credentials."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("?")[0][:100]
    return f"{parts.hostname or ''}{parts.path}"[:100]
