"""The values of a large JSON file, one after the other, in bounded memory. Pure.

In: a file that holds objects or arrays of objects, mostly one; JSON Lines and files put
together have several. Out: the bytes of each object. The file is mapped into memory and
searched for brackets outside of strings, so only one object is ever parsed at once.
Bytes between two values that are no JSON are passed over, and reported as a value that
cannot be read. Raises NotReadable where the file ends within a value, after all whole
objects before it.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO
from uuid import uuid4

import orjson
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from conversations.turns.file_kinds import format_size
from llm.wire.bounded_json import TooManyValues, check_values, loads_lenient

MAX_VALUE = 64 * 1024 * 1024  # bytes of one conversation, without attached files
MAX_DEPTH = 900  # levels of one conversation; some programs nest each answer
#: Values in one conversation; one of 2,000 messages has some 60,000. The parser holds
#: up all other threads, for a tenth of a second at this number.
MAX_MEMBERS = 500_000
#: Bytes that are searched at once, and between two reports of progress. A search holds
#: the GIL: a string of a gigabyte would stop all other threads.
PIECE = 64 * 1024
_STEP = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]|"', re.DOTALL)
_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_UTF16 = re.compile(
    rb"\xff\xfe(?:[ \t\r\n]\0)*+[\[{]\0|\xfe\xff(?:\0[ \t\r\n])*+\0[\[{]"
)
_BEGIN = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*+")
#: What may stand between two values beside white space, in files put together and in
#: JSON Lines: commas and values that are no conversation.
_BETWEEN = re.compile(
    rb"""[,\0]|(?:null|true|false|-?[0-9][0-9.eE+-]*+|"(?:[^"\\\r\n]++|\\.)*+")"""
    rb"(?=[,\s\0]|\Z)"
)
#: Where Parley's own format has the contents of files: in `attachments[].data`.
_FILE_DEPTH = 3
_IS_DATA = re.compile(rb'"data"[ \t\r\n]*:[ \t\r\n]*\Z')
_QUOTE, _OBJECT, _ARRAY = b'"{['
_BRACKETS = (b"{", b"[")


class NotReadable(Exception):
    """The file is no JSON that can be read; the message says where and why."""


class NoJSON(NotReadable):
    """It does not even begin as JSON: a picture, a text or another kind of file."""


@dataclass(frozen=True, slots=True)
class LongText:
    """The bytes between the quotes of a string in the file."""

    file: mmap.mmap
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin

    def read(self) -> bytes:
        return self.file[self.begin : self.end]


@dataclass(frozen=True, slots=True)
class Value:
    """An object of the file, or why it cannot be read."""

    data: bytes = b""
    problem: str = ""
    #: The contents of attached files, by the names that stand for them in the object,
    #: where it would be too large with them. They can be read until the next object is.
    texts: Mapping[str, LongText] = field(default_factory=dict)

    def parse(self) -> Any:
        """The object; its texts may have NUL and halves of surrogate pairs.

        Raises NotReadable.
        """
        if self.problem:
            raise NotReadable(self.problem)
        try:
            check_values(self.data, MAX_MEMBERS)
            return _loads(self.data)
        except TooManyValues as exc:
            raise NotReadable(_too_many_values()) from exc
        except (ValueError, RecursionError) as exc:
            raise NotReadable(_("It is no valid JSON.")) from exc


def describe_limit() -> str:
    words = _("It has more than %(limit)s MB, the limit of one conversation.")
    return words % {"limit": MAX_VALUE // 1024 // 1024}


def _too_many_values() -> str:
    words = _("It has more than %(count)s values, the limit of one conversation.")
    return words % {"count": number_format(MAX_MEMBERS, force_grouping=True)}


def _too_deep() -> Value:
    words = _("It is nested more than %(limit)s levels deep.")
    return Value(problem=words % {"limit": MAX_DEPTH})


def read_values(
    file: BinaryIO, on_progress: Callable[[], None] = lambda: None
) -> Iterator[Value]:
    """The objects in the file and in its arrays. Other values of an array are passed
    over. `on_progress` is called also on a long way without an object."""
    file.seek(0, 2)
    if not file.tell():
        raise NotReadable(_("The file is empty."))
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if _UTF16.match(data, 0, PIECE):
            raise NotReadable(_("The file is no readable JSON: save it in UTF-8."))
        at = _pass_space(data, 0)
        if data[at : at + 1] not in _BRACKETS:
            raise NoJSON(_("The file is no JSON: it begins neither with { nor [."))
        while at < len(data):
            if data[at : at + 1] in _BRACKETS:
                level = 1 if data[at] == _ARRAY else 0
                end = yield from _objects(data, at, level, on_progress)
            else:
                end = _pass_line(data, at, on_progress)
                yield _no_json(end - at)
            at = _pass_between(data, end, on_progress)


def _pass_space(data: mmap.mmap, at: int) -> int:
    """Where white space and a byte order mark end."""
    while begin := _BEGIN.match(data, at, at + PIECE):
        if begin.end() == at:
            break
        at = begin.end()
    return at


def _pass_between(data: mmap.mmap, at: int, on_progress: Callable[[], None]) -> int:
    """Where the next object or array begins, or something that is no JSON."""
    while between := _BETWEEN.match(data, at := _pass_space(data, at), at + PIECE):
        on_progress()
        at = between.end()
    return at


def _pass_line(data: mmap.mmap, at: int, on_progress: Callable[[], None]) -> int:
    """Where the next line begins that may be JSON; else the end of the file."""
    while (line := data.find(b"\n", at)) >= 0:
        on_progress()
        at = _pass_space(data, line)
        if data[at : at + 1] in _BRACKETS:
            return at
    return len(data)


def _no_json(size: int) -> Value:
    words = _("%(size)s at this place are not JSON and were skipped.")
    return Value(problem=words % {"size": format_size(size)})


def _objects(
    data: mmap.mmap, at: int, level: int, on_progress: Callable[[], None]
) -> Generator[Value, None, int]:
    """The objects that begin at this level of nesting in the value. Returns its end."""
    depth, deepest, begin = 0, 0, -1
    contents: list[tuple[int, int]] = []
    for start, end, byte in _steps(data, at, on_progress):
        if byte == _QUOTE:
            if depth == level + _FILE_DEPTH and _is_content(data, start, end):
                contents.append((start + 1, end - 1))
            continue
        if byte in (_OBJECT, _ARRAY):
            if depth == level and byte == _OBJECT:
                begin, deepest, contents = start, depth, []
            depth += 1
            deepest = max(deepest, depth)
            continue
        depth -= 1
        if depth == level and begin >= 0:
            is_deep = deepest - level > MAX_DEPTH
            yield _too_deep() if is_deep else _cut(data, begin, end, contents)
            begin = -1
        if depth <= 0:
            return end
    raise NotReadable(_("The file ends in the middle of a value; it was cut off."))


def _steps(
    data: mmap.mmap, at: int, on_progress: Callable[[], None]
) -> Iterator[tuple[int, int, int]]:
    """Begin, end and first byte of the brackets outside of strings, and of strings that
    go on behind a piece, from `at` on."""
    while at < len(data):
        on_progress()
        end = at + PIECE
        for step in _STEP.finditer(data, at, end):
            start = step.start()
            if (byte := data[start]) != _QUOTE:
                yield start, start + 1, byte
            elif step.end() == start + 1:  # a string that goes on behind the piece
                end = _end_of_string(data, start + 1, on_progress)
                yield start, end, byte
                break
        at = end


def _end_of_string(data: mmap.mmap, at: int, on_progress: Callable[[], None]) -> int:
    while piece := _IN_STRING.match(data, at, at + PIECE):
        on_progress()
        if data[piece.end() : piece.end() + 1] == b'"':
            return piece.end() + 1
        if piece.end() == at:
            break
        at = piece.end()
    raise NotReadable(_("The file ends in the middle of a text."))


def _is_content(data: mmap.mmap, begin: int, end: int) -> bool:
    before = data[max(0, begin - 20) : begin]
    return end - begin > PIECE and _IS_DATA.search(before) is not None


def _cut(
    data: mmap.mmap, begin: int, end: int, contents: Sequence[tuple[int, int]]
) -> Value:
    if end - begin <= MAX_VALUE:
        return Value(data[begin:end])
    if end - begin - sum(b - a for a, b in contents) > MAX_VALUE:
        return Value(problem=describe_limit())
    pieces, texts = [], {}
    for first, last in contents:
        name = uuid4().hex
        texts[name] = LongText(data, first, last)
        pieces += [data[begin:first], name.encode()]
        begin = last
    return Value(b"".join([*pieces, data[begin:end]]), texts=texts)


def _loads(value: bytes) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return loads_lenient(value.decode())
