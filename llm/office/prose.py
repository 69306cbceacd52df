"""Paragraphs, headings, lists and tables of Word documents and of slides."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from llm.office.package import Unreadable
from llm.office.signs import sign_of

_MAX_LEVEL = 6  # of a heading in Markdown
_MAX_BASES = 10  # styles that are based on one another
_MAX_NESTED = 20  # tables in one another: each level copies the text
_MAX_ROW = 2_000_000  # characters of a paragraph, or of a row of a table
_MAX_CELLS = 16_384  # of a row of a table; Word's own limit is 63
_HEADING = re.compile(r"heading (\d)", re.IGNORECASE)
#: A second version of the same content; text that was moved away; how Japanese is
#: pronounced; positions of tabulators.
_PASSED_OVER = frozenset({"Fallback", "moveFrom", "rt", "tabs"})
_COUNTS = frozenset(map(str, range(64)))  # of columns of a table, Word's own
_NOTE_REFERENCES = frozenset({"endnoteReference", "footnoteReference"})
_SIGNS = {"br": "\n", "cr": "\n", "noBreakHyphen": "-", "tab": "\t"}
#: Of a formula, before what they stand for.
_FRACTION_SIGNS = {"num": "(", "den": "/(", "sup": "^("}
_PICTURES = frozenset({"graphicFrame", "pic"})  # of slides; charts are the former
_TITLES = frozenset({"ctrTitle", "title"})
#: Fields of a slide that are not its content.
_FRAME = frozenset({"dt", "ftr", "hdr", "sldImg", "sldNum"})
#: Notes that only draw a line.
_SEPARATORS = frozenset({"continuationNotice", "continuationSeparator", "separator"})


class Styles:
    """The levels of headings, by the ids of the styles of a Word document.

    The ids are in the language of the program that wrote it, the names are not.
    """

    def __init__(self) -> None:
        self._levels: dict[str, int] = {}
        self._bases: dict[str, str] = {}
        self._style = ""

    def level(self, style: str) -> int:
        """0 for what is no heading."""
        for _ in range(_MAX_BASES):
            if style in self._levels:
                return self._levels[style]
            style = self._bases.get(style, "")
        return 0

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        value = attributes.get("val", "")
        if name == "style":
            self._style = attributes.get("styleId", "")
        elif name == "name" and (found := _HEADING.fullmatch(value)):
            self._levels[self._style] = int(found[1])
        elif name == "name" and value.lower() == "title":
            self._levels[self._style] = 1
        elif name == "basedOn":
            self._bases[self._style] = value
        elif name == "outlineLvl":
            self._levels.setdefault(self._style, _outline_level(value))

    def end(self, name: str) -> None:
        if name == "style":
            self._style = ""

    def text(self, text: str) -> None:
        pass


class Prose:
    """Writes what it reads of a part as lines. With `only`, slides' fields of this kind
    alone; with `numbers_notes`, a note's number before it."""

    def __init__(
        self,
        write: Callable[[str], None],
        styles: Styles | None = None,
        *,
        only: str = "",
        numbers_notes: bool = False,
    ) -> None:
        self._write = write
        self._styles = styles or Styles()
        self._only = only
        self._numbers_notes = numbers_notes
        self._passed_over = 0  # open elements that are not read
        self._in_text = False
        self._paragraphs: list[_Paragraph] = []  # a text box has some inside another
        self._cells: list[list[str]] = []  # open cells of tables, the inmost last
        self._rows: list[list[str]] = []
        self._columns: dict[int, int] = {}  # that open cells have more, by their depth
        self._is_title = False
        self._is_muted = bool(only)
        self._mark = ""  # before the next paragraph
        self._has_pictures = self._has_text = False
        self._size = 0  # characters that are not written yet

    @property
    def has_only_pictures(self) -> bool:
        return self._has_pictures and not self._has_text

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._passed_over or name in _PASSED_OVER:
            self._passed_over += 1
        elif name == "t":
            self._in_text = True
        elif name == "p":
            self._paragraphs.append(_Paragraph(self._mark))
            self._mark = ""
        elif name == "tr":
            self._rows.append([])
        elif name == "tc":
            if len(self._cells) == _MAX_NESTED:
                raise Unreadable("damaged")
            self._cells.append([])
        elif name == "tbl" and not self._cells:
            self._emit("")
        elif name in _PICTURES:
            self._has_pictures = True
        elif name in ("gridSpan", "gridBefore") and self._rows:
            self._note_columns(name, attributes.get("val", ""))
        elif name == "ph":
            self._note_field(attributes.get("type", ""))
        elif name in ("footnote", "endnote") and self._numbers_notes:
            self._is_muted = attributes.get("type") in _SEPARATORS
            self._mark = f"[^{attributes.get('id', '')}]: "
        elif self._paragraphs:
            self._note_property(self._paragraphs[-1], name, attributes)

    def end(self, name: str) -> None:
        if self._passed_over:
            self._passed_over -= 1
        elif name == "t":
            self._in_text = False
        elif name == "p" and self._paragraphs:
            self._end_paragraph(self._paragraphs.pop())
        elif name in _FRACTION_SIGNS and self._paragraphs:
            self._paragraphs[-1].end_group(_FRACTION_SIGNS[name])
        elif name == "tc" and self._cells:
            cell = " ".join(self._cells.pop())
            if self._rows:
                self._rows[-1].append(" ".join(cell.split()))
                self._rows[-1] += [""] * self._columns.pop(len(self._cells), 0)
                if len(self._rows[-1]) > _MAX_CELLS:
                    raise Unreadable("too_large")
        elif name == "tr" and self._rows:
            row = self._rows.pop()
            self._emit("\t".join(row) if not self._cells else " ".join(row))
        elif name == "tbl" and not self._cells:
            self._emit("")
        elif name == "sp":
            self._is_title, self._is_muted = False, bool(self._only)

    def text(self, text: str) -> None:
        if self._in_text and not self._passed_over and self._paragraphs:
            self._size += len(text)
            if self._size > _MAX_ROW:
                raise Unreadable("too_large")
            self._paragraphs[-1].add(text)

    def _note_columns(self, name: str, value: str) -> None:
        count = int(value) if value in _COUNTS else 0
        if name == "gridBefore":
            self._rows[-1] = self._rows[-1] or [""] * count
        elif self._cells and count:
            self._columns[len(self._cells) - 1] = count - 1

    def _note_field(self, kind: str) -> None:
        self._is_title = kind in _TITLES
        self._is_muted = kind != self._only if self._only else kind in _FRAME

    def _note_property(
        self, paragraph: _Paragraph, name: str, attributes: Mapping[str, str]
    ) -> None:
        value = attributes.get("val", "")
        if sign := _SIGNS.get(name):
            paragraph.pieces.append(sign)
        elif name == "sym":
            font, code = attributes.get("font", ""), attributes.get("char", "")
            paragraph.add(sign_of(font, code))
        elif name in _FRACTION_SIGNS:
            paragraph.pieces.append(_FRACTION_SIGNS[name])
        elif name == "r":
            paragraph.begin_run()
        elif name == "vertAlign":
            paragraph.is_superscript = value == "superscript"
        elif name == "pStyle":
            paragraph.level = self._styles.level(value)
        elif name == "outlineLvl":
            paragraph.level = _outline_level(value)
        elif name == "numPr":
            paragraph.is_listed = True
        elif name in _NOTE_REFERENCES:
            paragraph.pieces.append(f"[^{attributes.get('id', '')}]")

    def _end_paragraph(self, paragraph: _Paragraph) -> None:
        text = "".join(paragraph.pieces).strip()
        if not text or self._is_muted:
            return
        self._has_text = True
        level = 2 if self._is_title else min(paragraph.level, _MAX_LEVEL)
        if level and not self._cells:
            heading = " ".join(text.split())
            self._emit(f"\n{'#' * level} {heading}\n")
        elif paragraph.is_listed:
            self._emit(f"- {text}")
        else:
            self._emit(f"{paragraph.mark}{text}")

    def _emit(self, line: str) -> None:
        if self._cells:
            self._cells[-1].append(line)
        else:
            self._size = 0
            self._write(f"{line}\n")


class _Paragraph:
    __slots__ = (
        *("is_listed", "is_raised", "is_superscript", "level", "mark", "pieces"),
        "was_raised",
    )

    def __init__(self, mark: str) -> None:
        self.pieces: list[str] = []
        self.level = 0
        self.is_listed = False
        self.is_superscript = False  # this run
        self.is_raised = self.was_raised = False  # text of this run, and the one before
        self.mark = mark

    def begin_run(self) -> None:
        self.was_raised, self.is_raised = self.is_raised, False
        self.is_superscript = False

    def add(self, text: str) -> None:
        """Add text of a run, with a caret before what is raised."""
        if self.is_superscript and not self.is_raised:
            if self.pieces and not self.was_raised:
                self.pieces.append("^")
            self.is_raised = True
        self.pieces.append(text)

    def end_group(self, sign: str) -> None:
        """End a part of a formula. Nothing is written of an exponent without text."""
        if sign == _FRACTION_SIGNS["sup"] and self.pieces[-1:] == [sign]:
            self.pieces.pop()
        else:
            self.pieces.append(")")


def _outline_level(value: str) -> int:
    """Word counts from 0, and 9 is the text itself."""
    return int(value) + 1 if value in tuple("012345678") else 0
