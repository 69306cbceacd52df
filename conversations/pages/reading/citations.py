"""Sources that a message cites: pages and files, their quotations, and the marks in its
text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from conversations.pages.reading.link_marks import mark_citations
from conversations.turns.tool_display import shorten
from llm.wire.items import CITED_TEXT, LONGEST_QUOTATION, text_of
from llm.wire.items import Item as ItemPayload

MAX_QUOTES = 3  # of a cited page
MAX_QUOTE = 240  # characters
MAX_MARKS = 500  # citations shown in a message's text
MIN_INDEX = 4  # of a place; a smaller one may be the number of a file

_WEB = re.compile(r"https?://", re.IGNORECASE)
#: Where a sentence of an answer begins.
_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’»)\]]*\s+|(?<=[。！？])|\n")
#: Behind these no sentence ends: what opens a bracket, a heading, a list item, a cell.
_OPENING = re.compile(r"[(\[{<]\Z|(?:\A|\s)[#*+|-]+\Z")
_MARKDOWN = re.compile(r"\*\*|__|`|\]\([^)\s]*\)|\[(?=[^\]]*\]\()")  # in a sentence


@dataclass(frozen=True, slots=True)
class Citation:
    url: str  # "" of a file
    title: str
    quotes: Sequence[str] = ()


def citations_of(item: ItemPayload) -> list[Citation]:
    """The pages and files that a message cites, each once."""
    found: dict[str, Citation] = {}
    quotes: dict[str, list[str]] = {}
    text = text_of(item)
    for source, note, span in _cited_sources(item):
        words = quotes.setdefault(source, [])
        is_page = note["type"] == "url_citation"
        title = (note.get("title") or _host(source)) if is_page else source
        found[source] = Citation(source if is_page else "", title, words)
        quote = _quote(text, note, span)
        if quote and quote not in words and len(words) < MAX_QUOTES:
            words.append(quote)
    return list(found.values())


def marked_text(item: ItemPayload) -> str:
    """The text with a mark where it cites a source, numbered as in `citations_of`."""
    numbers: dict[str, int] = {}
    marks: list[tuple[int, int]] = []
    for source, _note, span in _cited_sources(item):
        number = numbers.setdefault(source, len(numbers) + 1)
        if span and len(marks) < MAX_MARKS:
            marks.append((span[1], number))
    return mark_citations(text_of(item), marks)


def _cited_sources(
    item: ItemPayload,
) -> Iterator[tuple[str, dict[str, Any], tuple[int, int] | None]]:
    """Sources by address or name, each with its annotation, and its place in the text
    where it has one."""
    parts = item["content"] if isinstance(item["content"], list) else []
    before = 0  # characters of the parts before
    for part in parts:
        text = part.get("text") or part.get("refusal") or ""
        for note in part.get("annotations") or ():
            match note:
                case {"type": "url_citation", "url": str(url)} if _WEB.match(url):
                    yield url, note, _span(note, before, len(text))
                case {"type": "file_citation", "filename": str(name)} if name:
                    span = _span(note, before, len(text))
                    yield name, note, span or _sentence_span(note, before, text)
        before += len(text)


def _span(note: dict[str, Any], before: int, length: int) -> tuple[int, int] | None:
    start, end = note.get("start_index"), note.get("end_index")
    if type(start) is not int or type(end) is not int or not 0 <= start < end <= length:
        return None
    return before + start, before + end


def _sentence_span(
    note: dict[str, Any], before: int, text: str
) -> tuple[int, int] | None:
    """The sentence that a file is cited for. OpenAI's `index` is the position at its
    end; other hosts, which quote the file, number the files by it."""
    end = note.get("index")
    if type(end) is not int or not 0 < end <= len(text) or CITED_TEXT in note:
        return None
    if end < MIN_INDEX or (text[end - 1 : end + 1].isalnum() and end < len(text)):
        return None  # at the very beginning, or within a word: a number of a file
    first = max(0, end - LONGEST_QUOTATION)
    end = first + len(text[first:end].rstrip())
    if _OPENING.search(text, max(first, end - MIN_INDEX), end):
        return None
    starts = [found.end() for found in _SENTENCE.finditer(text, first, end)]
    start = max((each for each in starts if each < end), default=first)
    has_letter = any(each.isalpha() for each in text[start:end])
    return (before + start, before + end) if has_letter else None


def _quote(text: str, note: dict[str, Any], span: tuple[int, int] | None) -> str:
    """The words of the source, else those of the message that refer to it."""
    words = note.get(CITED_TEXT)  # a host of the same API may send anything
    if isinstance(words, str) and words:
        return shorten(words[:LONGEST_QUOTATION], MAX_QUOTE)
    if span is None:
        return ""
    said = _MARKDOWN.sub("", text[span[0] : span[1]][:MAX_QUOTE])
    return shorten(said, MAX_QUOTE)


def _host(url: str) -> str:
    return url.split("/")[2]
