"""Cells of Excel workbooks, as lines of values between tabulators."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal

from llm.office.package import Unreadable

_MAX_COLUMNS = 16_384  # Excel's own
_MAX_CELL = 32_767  # characters, Excel's own
_MAX_READ = 4 * _MAX_CELL  # characters of a cell, before its spaces are joined
_MAX_CODE = 255  # characters of a number's format, Excel's own
_MAX_NUMBER = 50  # characters
_MAX_ROW = 2_000_000  # characters
_MAX_STRINGS = 2_000_000  # of the table that all sheets share
_COLUMN = re.compile(r"[A-Z]{1,3}")
#: Numbers of formats of dates and times that no workbook declares.
_DATES = frozenset((*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)))
#: What of a declared format is no part of a date: words, escapes, colours, conditions.
_LITERAL = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?!h+\]|m+\]|s+\])[^\]]*\]', re.IGNORECASE)
#: A total of hours, minutes or seconds, which does not end with the day.
_TOTAL = re.compile(r"\[(h+|m+|s+)\]", re.IGNORECASE)
_BUILTIN_TOTAL = "46"
_DATE_LETTER = re.compile(r"[dmyhs]", re.IGNORECASE)
_FIRST_DAY = datetime(1899, 12, 30)
_FIRST_DAY_1904 = datetime(1904, 1, 1)
_LAST_DAY = 2_958_466  # of the year 9999
_EXACT = 10**15  # from here on a float has no more digits than its text


class Workbook:
    """The names of the sheets, each with the id of its part."""

    def __init__(self) -> None:
        self.sheets: list[tuple[str, str]] = []
        self.first_day = _FIRST_DAY

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "sheet":
            hidden = attributes.get("state", "visible") != "visible"
            title = attributes.get("name", "") + (" (hidden)" if hidden else "")
            self.sheets.append((title, attributes.get("r:id", "")))
        elif name == "workbookPr" and attributes.get("date1904") in ("1", "true"):
            self.first_day = _FIRST_DAY_1904

    def end(self, name: str) -> None:
        pass

    def text(self, text: str) -> None:
        pass


class SharedStrings:
    """The texts to which cells refer by number."""

    def __init__(self) -> None:
        self.strings: list[str] = []
        self._text = _CellText()
        self._in_text = False
        self._in_reading = False  # how Japanese is pronounced

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "t":
            self._in_text = not self._in_reading
        elif name == "rPh":
            self._in_reading = True

    def end(self, name: str) -> None:
        if name == "t":
            self._in_text = False
        elif name == "rPh":
            self._in_reading = False
        elif name == "si":
            if len(self.strings) >= _MAX_STRINGS:
                raise Unreadable("too_large")
            self.strings.append(_on_one_line(str(self._text)))
            self._text = _CellText()

    def text(self, text: str) -> None:
        if self._in_text:
            self._text.add(text)


class _CellText:
    """The text of a cell, as far as there is room for it."""

    __slots__ = ("_pieces", "_room")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._room = _MAX_READ

    def add(self, text: str) -> None:
        if self._room > 0:
            self._pieces.append(text)
            self._room -= len(text)

    def __str__(self) -> str:
        return "".join(self._pieces)


Kind = Literal["date", "duration", "number"]


class NumberFormats:
    """As what the formats of cells show a number."""

    def __init__(self) -> None:
        self.kinds: list[Kind] = []
        self._declared: dict[str, Kind] = {}
        self._in_cells = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        number = attributes.get("numFmtId", "")
        if name == "numFmt":
            code = _LITERAL.sub("", attributes.get("formatCode", "")[:_MAX_CODE])
            self._declared[number] = _kind_of_code(code)
        elif name == "cellXfs":
            self._in_cells = True
        elif name == "xf" and self._in_cells:
            self.kinds.append(self._declared.get(number) or _builtin_kind(number))

    def end(self, name: str) -> None:
        if name == "cellXfs":
            self._in_cells = False

    def text(self, text: str) -> None:
        pass


class Sheet:
    """Writes each row as a line."""

    def __init__(
        self,
        write: Callable[[str], None],
        strings: Sequence[str],
        kinds: Sequence[Kind],
        first_day: datetime,
    ) -> None:
        self._write = write
        self._strings = strings
        self._kinds = kinds
        self._first_day = first_day
        self._row: list[str] = []
        self._cell: Mapping[str, str] = {}
        self._texts: dict[str, _CellText] = {}  # by element: `v`, `f`, `t`
        self._element = ""
        self._in_reading = False
        self._size = 0  # characters of the row
        self._is_after_gap = True

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "row":
            self._row, self._size = [], 0
        elif name == "c":
            self._cell, self._texts = attributes, {}
        elif name == "rPh":
            self._in_reading = True
        elif name in ("v", "f", "t") and not self._in_reading:
            self._element = name

    def end(self, name: str) -> None:
        if name == "row":
            self._end_row()
        elif name == "c":
            self._end_cell()
        elif name == "rPh":
            self._in_reading = False
        elif name == self._element:
            self._element = ""

    def text(self, text: str) -> None:
        if self._element:
            self._texts.setdefault(self._element, _CellText()).add(text)

    def _end_cell(self) -> None:
        if not (value := self._value()):
            return
        column = _column(self._cell.get("r", ""), len(self._row))
        self._row += [""] * (column - len(self._row))
        self._row.append(value)
        self._size += len(value) + 1
        if self._size > _MAX_ROW:  # one text, to which many cells refer
            self._write("\t".join(self._row))
            self._row, self._size = [], 0

    def _end_row(self) -> None:
        """Rows without a value are shown as one empty line."""
        if self._row or not self._is_after_gap:
            self._write("\t".join(self._row) + "\n")
        self._is_after_gap = not self._row

    def _value(self) -> str:
        text = {name: str(each) for name, each in self._texts.items()}
        value = text.get("v", "").strip()
        kind = self._cell.get("t", "n")
        if kind == "inlineStr":
            return _on_one_line(text.get("t", ""))
        if kind == "str":
            return _on_one_line(text.get("v", ""))
        if not value:
            return _on_one_line(f"={text['f']}") if text.get("f") else ""
        if kind == "s":
            index = _index(value)
            return self._strings[index] if index < len(self._strings) else ""
        if kind == "b":
            return "TRUE" if value == "1" else "FALSE"
        return self._number(value) if kind == "n" else _on_one_line(value)

    def _number(self, value: str) -> str:
        try:
            number = float(value[:_MAX_NUMBER])
        except ValueError:
            return _on_one_line(value)
        style = _index(self._cell.get("s", ""))
        kind = self._kinds[style] if style < len(self._kinds) else "number"
        if kind == "duration" and abs(number) < _LAST_DAY:
            return _duration(number)
        if kind == "date" and 0 <= number < _LAST_DAY:
            with suppress(OverflowError):  # in the last second, or after 1904
                return _date(number, self._first_day)
        if not math.isfinite(number) or abs(number) >= _EXACT:
            return _on_one_line(value)
        return f"{number:.15g}"


def _kind_of_code(code: str) -> Kind:
    if _TOTAL.search(code):
        return "duration"
    return "date" if _DATE_LETTER.search(code) else "number"


def _builtin_kind(number: str) -> Kind:
    if number == _BUILTIN_TOTAL:
        return "duration"
    is_date = number.isascii() and number.isdecimal() and _index(number) in _DATES
    return "date" if is_date else "number"


def _duration(days: float) -> str:
    minutes, seconds = divmod(abs(round(days * 86_400)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{'-' if days < 0 else ''}{hours}:{minutes:02}:{seconds:02}"


def _date(number: float, first_day: datetime) -> str:
    moment = first_day + timedelta(seconds=round(number * 86_400))
    if number < 1:
        return moment.strftime("%H:%M:%S")
    is_day = float(number).is_integer()
    return moment.date().isoformat() if is_day else moment.isoformat(" ")


def _on_one_line(text: str) -> str:
    return " ".join(text.split())[:_MAX_CELL]


def _index(number: str) -> int:
    """An index beyond every list where it is no number."""
    is_index = number.isascii() and number.isdecimal() and len(number) < 10
    return int(number) if is_index else sys.maxsize


def _column(reference: str, after: int) -> int:
    """The index of the column of a cell `C5`; `after` where it is before that."""
    found = _COLUMN.match(reference)
    column = 0
    for letter in found[0] if found else "":
        column = column * 26 + ord(letter) - ord("A") + 1
    if column > _MAX_COLUMNS:
        raise Unreadable("damaged")
    return max(column - 1, after)
