"""Receipts and citations of Google's own tools as canonical items.

Source: https://ai.google.dev/gemini-api/docs/google-search
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llm.wire.codecs.gemini.original_parts import Part
from llm.wire.items import Item

_SEARCHES = frozenset({"GOOGLE_SEARCH_WEB", "GOOGLE_SEARCH_IMAGE"})
_FETCHED = "URL_RETRIEVAL_STATUS_SUCCESS"
#: Outcomes of code, as words and as numbers (`enum-encoding=int`).
_SUCCEEDED = (None, "OUTCOME_OK", "OUTCOME_UNSPECIFIED", 0, 1)
MAX_SEARCHED = 20_000_000  # characters, in which quotations of one text are searched
_BLOCK = 4096  # bytes
_CONTINUATION = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that begin no character


class Receipts:
    """Receipts of the tools that ran in one answer; each waits for its result."""

    __slots__ = ("_files", "_item_types", "_open", "queries")

    def __init__(self) -> None:
        self._files: list[tuple[int, Item]] = []  # file searches that wait for the end
        self._open: list[tuple[int, str, Item]] = []  # key, the tool's own id, item
        self._item_types: set[str] = set()  # types of the items
        self.queries: list[str] = []  # of searches of the web that an item reports

    def begin(self, key: int, part: Part) -> Item:
        code = part.get("executableCode")
        item = _code(code) if code is not None else _tool(part["toolCall"] or {})
        id = (code or part.get("toolCall") or {}).get("id") or ""
        self._open.append((key, id, item))
        self.queries += (item.get("action") or {}).get("queries") or ()
        self._item_types.add(item["type"])
        return item

    def end(self, part: Part) -> tuple[int, Item] | None:
        """Add a result; returns the key and the finished item of its call."""
        result = part.get("codeExecutionResult") or part.get("toolResponse") or {}
        id = result.get("id") or ""
        for entry in self._open:
            if not id or entry[1] in ("", id):
                self._open.remove(entry)
                item = {**entry[2], **_outcome(result, part)}
                if item["type"] == "file_search_call":
                    self._files.append((entry[0], item))
                return entry[0], item
        return None

    def of_file_searches(
        self, grounding: dict[str, Any]
    ) -> Iterator[tuple[int | str, Item]]:
        """Keys and finished items. All results are in the last search, because Google
        does not report which search found them."""
        results = [_result(chunk) for chunk in _chunks(grounding) if _is_file(chunk)]
        yield from self._files[:-1]
        for key, item in self._files[-1:]:
            yield key, {**item, "results": results or None}
        if results and "file_search_call" not in self._item_types:
            yield "files", {**_file_search([]), "results": results}

    def of_searches(
        self, grounding: dict[str, Any], urls: dict[str, Any], *, is_cited: bool
    ) -> Iterator[Item]:
        """Searches and fetched pages that only the metadata reports. `is_cited`: a text
        has the sources."""
        if "web_search_call" in self._item_types:
            return
        queries = grounding.get("webSearchQueries") or []
        links = [_link(chunk) for chunk in _chunks(grounding) if not _is_file(chunk)]
        if queries or (not is_cited and any(url for url, _ in links)):
            yield _search(queries, links)
        for page in filter(None, map(_object, urls.get("urlMetadata") or ())):
            fetched = page.get("urlRetrievalStatus", _FETCHED) == _FETCHED
            yield {
                "type": "web_search_call",
                "status": "completed" if fetched else "failed",
                "action": {"type": "open_page", "url": page.get("retrievedUrl") or ""},
            }


def citations(grounding: dict[str, Any], text: str) -> Iterator[dict[str, Any]]:
    """`url_citation`s of `text`. Google counts bytes of UTF-8; the result counts
    characters."""
    chunks, quotes = _chunks(grounding), _QuotedText(text)
    for support in map(_object, grounding.get("groundingSupports") or ()):
        segment = _object(support.get("segment"))
        if (span := quotes.find(segment)) is None:
            continue  # it refers to an earlier message
        for index in support.get("groundingChunkIndices") or ():
            url, title = _link(chunks[index]) if index < len(chunks) else ("", "")
            if url:
                yield _citation(url, title, span)


def recitations(metadata: dict[str, Any], text: str) -> Iterator[dict[str, Any]]:
    """Sources of long quotations. Vertex and Gemini name the list differently."""
    quotes = _QuotedText(text)
    sources = metadata.get("citationSources") or metadata.get("citations")
    for source in map(_object, sources if isinstance(sources, list) else ()):
        if url := source.get("uri"):
            start, end = source.get("startIndex") or 0, source.get("endIndex") or 0
            span = (quotes.characters(start), quotes.characters(end))
            yield _citation(url, source.get("title") or "", span)


def image_of(part: Part) -> Item | None:
    """The receipt of an image that the model created."""
    data = part.get("inlineData") or {}
    kind, _, form = (data.get("mimeType") or "").partition("/")
    if kind != "image" or not data.get("data"):
        return None
    return {
        "type": "image_generation_call",
        "result": data["data"],
        "output_format": form,
    }


def media_of(part: Part) -> tuple[str, int] | None:
    """Type and size of sound, video or a file that the model created. A size of 0 is
    not known."""
    inline, stored = part.get("inlineData"), part.get("fileData")
    media = inline if isinstance(inline, dict) else stored
    if not isinstance(media, dict) or not media.get("mimeType"):
        return None
    return str(media["mimeType"]), len(media.get("data") or "")


def _code(code: dict[str, Any]) -> Item:
    return {
        "type": "code_interpreter_call",
        "code": code.get("code") or "",
        "container_id": "",
        "outputs": [],
    }


def _tool(call: dict[str, Any]) -> Item:
    kind, args = str(call.get("toolType") or ""), call.get("args") or {}
    queries = args.get("queries") or []
    if kind in _SEARCHES:
        return _search(queries, [])
    if kind == "URL_CONTEXT":
        url = next(iter(args.get("urls") or ()), "")
        return {
            "type": "web_search_call",
            "action": {"type": "open_page", "url": url},
        }
    if kind == "FILE_SEARCH":
        return _file_search(queries)
    return {"type": "parley:hosted_tool_call", "name": kind.lower(), "arguments": args}


def _file_search(queries: list[str]) -> Item:
    return {"type": "file_search_call", "queries": queries, "results": None}


def _is_file(chunk: dict[str, Any]) -> bool:
    return bool(chunk.get("retrievedContext"))


def _result(chunk: dict[str, Any]) -> dict[str, Any]:
    found = chunk["retrievedContext"]
    attributes = {
        each.get("key"): _value(each) for each in found.get("customMetadata") or ()
    }
    return {
        "file_id": found.get("uri") or found.get("fileSearchStore") or "",
        "filename": found.get("title") or "",
        "text": found.get("text") or "",
        "attributes": attributes,
    }


def _value(metadata: dict[str, Any]) -> Any:
    return next((v for name, v in metadata.items() if name.endswith("Value")), None)


def _search(queries: list[str], links: list[tuple[str, str]]) -> Item:
    sources = [_source(url, title) for url, title in links if url]
    return {
        "type": "web_search_call",
        "action": {
            "type": "search",
            "query": queries[0] if queries else "",
            "queries": queries,
            "sources": sources,
        },
    }


def _source(url: str, title: str) -> dict[str, str]:
    source = {"type": "url", "url": url}
    return {**source, "title": title} if title else source


def _outcome(result: dict[str, Any], part: Part) -> Item:
    if "codeExecutionResult" not in part:
        return {}
    output = result.get("output") or ""
    outcome: Item = {"outputs": [{"type": "logs", "logs": output}] if output else []}
    if result.get("outcome") not in _SUCCEEDED:
        outcome["status"] = "failed"
    return outcome


def uses_maps(grounding: dict[str, Any]) -> bool:
    return any(chunk.get("maps") for chunk in _chunks(grounding))


def _chunks(grounding: dict[str, Any]) -> list[dict[str, Any]]:
    chunks = grounding.get("groundingChunks")
    # Supports name chunks by their number, so an invalid one stays as {}.
    return [_object(chunk) for chunk in (chunks if isinstance(chunks, list) else ())]


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _link(chunk: dict[str, Any]) -> tuple[str, str]:
    """Address and title of a source; "" if it has no address (a stored file)."""
    source: dict[str, Any] = next((v for v in chunk.values() if _object(v)), {})
    return source.get("uri") or "", source.get("title") or ""


class _QuotedText:
    """A text whose quotations are found by offsets in its UTF-8."""

    def __init__(self, text: str) -> None:
        self._text, self._data = text, text.encode(errors="replace")
        self._left = MAX_SEARCHED
        self._blocks: list[int] = []  # characters before each block of `_BLOCK` bytes

    def find(self, segment: dict[str, Any]) -> tuple[int, int] | None:
        """First and last offset of a segment, in characters."""
        start, end = segment.get("startIndex") or 0, segment.get("endIndex") or 0
        quoted = segment.get("text") or ""
        if not quoted or self._has(quoted.encode(errors="replace"), start, end):
            return self.characters(start), self.characters(end)
        # Counted from the beginning of another part: search for the quoted text.
        self._left -= len(self._text)
        found = self._text.find(quoted) if self._left >= 0 else -1
        return (found, found + len(quoted)) if found >= 0 else None

    def characters(self, count: int) -> int:
        """The number of complete characters in the first `count` bytes."""
        count = min(max(count, 0), len(self._data))
        if self._text.isascii() or count == len(self._data):
            return min(count, len(self._text))
        return self._leading_bytes(count + 1) - 1

    def _has(self, quoted: bytes, start: int, end: int) -> bool:
        end = min(end, len(self._data))
        return end - start == len(quoted) and self._data.startswith(quoted, start)

    def _leading_bytes(self, count: int) -> int:
        """How many of the first `count` bytes begin a character."""
        if not self._blocks:
            self._blocks.append(0)
            for at in range(0, len(self._data), _BLOCK):
                block = self._data[at : at + _BLOCK].translate(None, _CONTINUATION)
                self._blocks.append(self._blocks[-1] + len(block))
        number, rest = divmod(count, _BLOCK)
        last = self._data[number * _BLOCK : number * _BLOCK + rest]
        return self._blocks[number] + len(last.translate(None, _CONTINUATION))


def _citation(url: str, title: str, span: tuple[int, int]) -> dict[str, Any]:
    return {
        "type": "url_citation",
        "url": url,
        "title": title,
        "start_index": span[0],
        "end_index": span[1],
    }
