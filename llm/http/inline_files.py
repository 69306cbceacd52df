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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add
from typing import Any
from urllib.parse import unquote, urlsplit

from llm.adaptation.input_modalities import question_start
from llm.errors import BadRequest
from llm.http.fetch import DownloadedFile, DownloadError, fetch
from llm.office.package import Unreadable
from llm.provider import Endpoint
from llm.wire.item_prefix_cache import fold_items
from llm.wire.items import Item
from llm.wire.request import Request

Part = Mapping[str, Any]

MAX_TOTAL = 50 * 1024 * 1024  # bytes fetched for one request
_MAX_CONCURRENT = 4
_KINDS = {"input_image": "image", "input_file": "file"}
_MEDIA = tuple(_KINDS)
#: Signatures of the image formats that every vision model accepts.
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_PLACEHOLDER = "[The {kind} {name!r} stood here; it can no longer be fetched.]"
_DEGRADED = "input ({} not fetched)"


@dataclass(slots=True)
class FileCache:
    """Files that a turn has downloaded, or failed to; by URL."""

    results: dict[str, DownloadedFile | DownloadError] = field(default_factory=dict)
    #: Texts of Office files, or why there are none; by the data of the part.
    office_texts: dict[str, str | Unreadable] = field(default_factory=dict)

    async def fetch(self, urls: Iterable[str]) -> None:
        semaphore = asyncio.Semaphore(_MAX_CONCURRENT)
        async with asyncio.TaskGroup() as tasks:
            for url in dict.fromkeys(urls):
                if url not in self.results:
                    tasks.create_task(self._fetch(url, semaphore))

    async def _fetch(self, url: str, semaphore: asyncio.Semaphore) -> None:
        async with semaphore:
            try:
                self.results[url] = await fetch(url)
            except DownloadError as exc:
                self.results[url] = exc


async def inline_files(
    request: Request, endpoint: Endpoint, files: FileCache
) -> tuple[Request, list[str]]:
    """Inline the files that the provider does not download; also return what was lost.

    Raises BadRequest.
    """
    if not (urls := find_urls(request.items, endpoint)):
        return request, []
    await files.fetch(urls)
    inliner = _Inliner(endpoint, files)
    question = question_start(request.items)
    items = [
        inliner.item(item, is_past=number < question)
        for number, item in enumerate(request.items)
    ]
    return replace(request, items=items), list(dict.fromkeys(inliner.lost))


def find_urls(items: Sequence[Item], endpoint: Endpoint) -> list[str]:
    """The URLs in the items that the provider does not download itself."""
    parts = fold_items(items, "addresses", _parts_with_url, add)
    return [
        url
        for part in parts
        if (url := url_in(part)) and not provider_fetches(endpoint, part, url)
    ]


def provider_fetches(endpoint: Endpoint, part: Part, url: str) -> bool:
    """Whether the provider itself downloads the `url` of `part`."""
    does = getattr(endpoint.codec, "fetches", None)
    return not _is_in_private_network(endpoint) and (does is None or does(part, url))


def url_in(part: Part) -> str:
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


def _parts_with_url(items: Sequence[Item]) -> list[Part]:
    found: list[Part] = []
    for item in items:
        if item.get("type") == "function_call":
            continue  # every second item of an agent's run
        parts = item.get(_content_key(item))
        if not isinstance(parts, list):
            continue
        for part in parts:
            # Runs for every part of a long conversation: the cheapest test is first.
            if isinstance(part, dict) and part.get("type") in _MEDIA and url_in(part):
                found.append(part)
    return found


def _parts(item: Item) -> list[Part]:
    parts = item.get(_content_key(item))
    return [p for p in parts if isinstance(p, dict)] if isinstance(parts, list) else []


def _content_key(item: Item) -> str:
    kind = item.get("type", "message")
    return (
        "output" if kind != "message" and str(kind).endswith("_output") else "content"
    )


def _is_in_private_network(endpoint: Endpoint) -> bool:
    """True for a server in our own network, according to its row."""
    usual = endpoint.provider.base_url.startswith("http://localhost")
    return endpoint.allow_private_network or (usual and not endpoint.base_url)


class _Inliner:
    def __init__(self, endpoint: Endpoint, files: FileCache) -> None:
        self.lost: list[str] = []
        self._endpoint = endpoint
        self._files = files
        self._size = 0

    def item(self, item: Item, *, is_past: bool) -> Item:
        key, changed = _content_key(item), False
        parts: list[Any] = []
        for part in item[key] if _parts(item) else ():
            replacement = self._part(part, is_past) if isinstance(part, dict) else part
            changed |= replacement is not part
            parts.append(replacement)
        return {**item, key: parts} if changed else item

    def _part(self, part: dict[str, Any], is_past: bool) -> dict[str, Any]:
        url = url_in(part)
        if not url or provider_fetches(self._endpoint, part, url):
            return part
        kind, name = _KINDS[part["type"]], _display_url(url)
        try:
            return self._with_data(part, url)
        except DownloadError as exc:
            if not is_past:
                raise BadRequest(
                    f"The {kind} {name!r} could not be fetched: {exc}. Send the {kind}"
                    " itself, or leave it out.",
                    param="input",
                ) from exc
            self.lost.append(_DEGRADED.format(kind))
            return {
                "type": "input_text",
                "text": _PLACEHOLDER.format(kind=kind, name=name),
            }

    def _with_data(self, part: dict[str, Any], url: str) -> dict[str, Any]:
        file = self._files.results[url]
        if isinstance(file, DownloadError):
            raise file
        is_image = part["type"] == "input_image"
        kind = _image_type(file.data) if is_image else _file_type(file)
        self._size += len(file.data)
        if self._size > MAX_TOTAL:
            raise DownloadError(
                "together with the other files it is larger than"
                f" {MAX_TOTAL // 1024**2} MB"
            )
        data = f"data:{kind};base64,{b64encode(file.data).decode()}"
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
    raise DownloadError("it is not a PNG, JPEG, GIF or WebP image")


def _file_type(file: DownloadedFile) -> str:
    if file.data.startswith(b"%PDF-"):
        return "application/pdf"
    if not file.data:
        raise DownloadError("it is empty")
    kind = file.content_type
    if b"\0" not in file.data[:4096] and kind in ("", "application/octet-stream"):
        return "text/plain"
    return kind or "application/octet-stream"


def _file_name(url: str) -> str:
    return unquote(urlsplit(url).path.rpartition("/")[2])[:100] or "file"


def _display_url(url: str) -> str:
    """Without the query, which may contain credentials."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("?")[0][:100]
    return f"{parts.hostname or ''}{parts.path}"[:100]
