"""The values of a large JSON file, one after the other, in bounded memory. Pure.

In: a file that holds one object, or an array of objects. Out: the bytes of each object.
The file is mapped into memory and searched for brackets outside of strings, so only one
object is ever parsed at once. Raises NotReadable, after all whole objects before the
fault.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson
from django.utils.translation import gettext as _

from llm.wire.bounded_json import check_values, loads_lenient

MAX_VALUE = 64 * 1024 * 1024  # bytes of one conversation
MAX_DEPTH = 900  # levels of one conversation; some programs nest each answer
MAX_MEMBERS = 2_000_000  # values in one conversation
STEPS = 100_000  # between two reports of progress
_STEP = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]|"', re.DOTALL)
_UTF16 = re.compile(
    rb"\xff\xfe(?:[ \t\r\n]\0)*+[\[{]\0|\xfe\xff(?:\0[ \t\r\n])*+\0[\[{]"
)
_BEGIN = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*")


class NotReadable(Exception):
    """The file is no JSON that can be read; the message says where and why."""


class NoJSON(NotReadable):
    """It does not even begin as JSON: a picture, a text or another kind of file."""


@dataclass(frozen=True, slots=True)
class Value:
    """An object of the file, or why it cannot be read."""

    data: bytes = b""
    problem: str = ""

    def parse(self) -> Any:
        """The object; its texts may have NUL and halves of surrogate pairs.

        Raises NotReadable.
        """
        if self.problem:
            raise NotReadable(self.problem)
        try:
            check_values(self.data, MAX_MEMBERS)
            return _loads(self.data)
        except (ValueError, RecursionError) as exc:
            raise NotReadable(_("It is no valid JSON.")) from exc


def _too_large() -> Value:
    words = _("It has more than %(limit)s MB, the limit of one conversation.")
    return Value(problem=words % {"limit": MAX_VALUE // 1024 // 1024})


def _too_deep() -> Value:
    words = _("It is nested more than %(limit)s levels deep.")
    return Value(problem=words % {"limit": MAX_DEPTH})


def read_values(
    file: BinaryIO, on_progress: Callable[[], None] = lambda: None
) -> Iterator[Value]:
    """The object in the file, or the objects of its array. Other values of the array
    are passed over. `on_progress` is called also on a long way without an object."""
    file.seek(0, 2)
    if not file.tell():
        raise NotReadable(_("The file is empty."))
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        begin = _BEGIN.match(data)
        at = begin.end() if begin else 0
        outermost = data[at : at + 1]
        if _UTF16.match(data):
            raise NotReadable(_("The file is no readable JSON: save it in UTF-8."))
        if outermost not in (b"{", b"["):
            raise NoJSON(_("The file is no JSON: it begins neither with { nor [."))
        yield from _objects(data, at, 0 if outermost == b"{" else 1, on_progress)


def _objects(
    data: mmap.mmap, at: int, level: int, on_progress: Callable[[], None]
) -> Iterator[Value]:
    """The objects that begin at this level of nesting."""
    depth, deepest, begin = 0, 0, -1
    for number, step in enumerate(_STEP.finditer(data, at)):
        if number % STEPS == 0:
            on_progress()
        match step[0]:
            case b"{" | b"[":
                if depth == level and step[0] == b"{":
                    begin, deepest = step.start(), depth
                depth += 1
                deepest = max(deepest, depth)
            case b"}" | b"]":
                depth -= 1
                if depth == level and begin >= 0:
                    is_deep = deepest - level > MAX_DEPTH
                    yield _too_deep() if is_deep else _cut(data, begin, step.end())
                    begin = -1
                if depth <= 0:
                    return
            case b'"':
                raise NotReadable(_("The file ends in the middle of a text."))
    raise NotReadable(_("The file ends in the middle of a value; it was cut off."))


def _cut(data: mmap.mmap, begin: int, end: int) -> Value:
    return _too_large() if end - begin > MAX_VALUE else Value(data[begin:end])


def _loads(value: bytes) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return loads_lenient(value.decode())
