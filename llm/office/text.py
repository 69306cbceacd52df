"""The text of a Word, Excel or PowerPoint file, for models and for a preview."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from llm.office.package import Package, Reader, Unreadable
from llm.office.prose import Prose, Styles
from llm.office.sheets import NumberFormats, SharedStrings, Sheet, Workbook
from llm.office.written_text import Full, WrittenText

ONLY_PICTURES = "[This slide has only pictures.]"
_ARCHIVE = b"PK\x03\x04"
#: Files of the old formats, and new ones with a password.
_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
#: Office programs write this part first, or among the first; archives have none.
_LIST_OF_TYPES = b"[Content_Types].xml"


def is_office_file(data: bytes) -> bool:
    """Whether the bytes are those of an Office file, perhaps a damaged one."""
    if data.startswith(_COMPOUND):
        return True
    return data.startswith(_ARCHIVE) and _LIST_OF_TYPES in data


def extract_text(data: bytes, limit: int) -> str:
    """The text, of at most `limit` bytes in UTF-8; a longer one is cut, and its end
    says so. Raises Unreadable."""
    if data.startswith(_COMPOUND):
        raise Unreadable("protected")
    package, text = Package(data), WrittenText(limit)
    try:
        _write(package, text)
    except Full:
        return str(text)
    if text.is_blank:
        raise Unreadable("empty")
    return str(text)


def _write(package: Package, text: WrittenText) -> None:
    main = _find(package, "", "officeDocument")
    root = _Root()
    if main:
        with suppress(_Seen):
            package.read(main, root)
    match root.name:
        case "document":
            _write_document(package, main, text)
        case "workbook":
            _write_workbook(package, main, text)
        case "presentation":
            _write_slides(package, main, root.slides, text)
        case _:  # another file that is packed in the same way
            raise Unreadable("unknown")


def _write_document(package: Package, main: str, text: WrittenText) -> None:
    styles = Styles()
    _read_if_there(package, _find(package, main, "styles"), styles)
    package.read(main, Prose(text.write, styles))
    for kind in ("footnotes", "endnotes"):
        if (notes := _find(package, main, kind)) in package:
            text.write("\n")
            package.read(notes, Prose(text.write, styles, numbers_notes=True))


def _write_workbook(package: Package, main: str, text: WrittenText) -> None:
    workbook, strings, formats = Workbook(), SharedStrings(), NumberFormats()
    package.read(main, workbook)
    _read_if_there(package, _find(package, main, "sharedStrings"), strings)
    _read_if_there(package, _find(package, main, "styles"), formats)
    relations = package.relations(main)
    make = partial(
        Sheet, text.write, strings.strings, formats.kinds, workbook.first_day
    )
    for title, part in workbook.sheets:
        found = relations.get(part)
        if found is not None and found.kind == "worksheet":
            text.write_name(f"\n# Sheet: {title}\n\n")
            package.read(found.path, make())


def _write_slides(
    package: Package, main: str, slides: list[str], text: WrittenText
) -> None:
    relations = package.relations(main)
    for number, part in enumerate(slides, 1):
        if (found := relations.get(part)) is None:
            continue
        text.write_name(f"\n# Slide {number}\n")
        prose = Prose(text.write)
        package.read(found.path, prose)
        if prose.has_only_pictures:
            text.write_name(f"{ONLY_PICTURES}\n")
        if (notes := _find(package, found.path, "notesSlide")) in package:
            spoken: list[str] = []
            package.read(notes, Prose(spoken.append, only="body"))
            if any(map(str.strip, spoken)):
                text.write("\nNotes:\n" + "".join(spoken))


def _find(package: Package, path: str, kind: str) -> str:
    """The part of this kind to which a part refers; "" without one."""
    relations = package.relations(path).values()
    return next((each.path for each in relations if each.kind == kind), "")


def _read_if_there(package: Package, path: str, reader: Reader) -> None:
    if path in package:
        package.read(path, reader)


class _Seen(Exception):
    """The rest of the part need not be read."""


class _Root:
    """The name of a part's first element, and the ids of the slides of a presentation;
    another part is read only so far."""

    def __init__(self) -> None:
        self.name = ""
        self.slides: list[str] = []

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self.name = self.name or name
        if self.name != "presentation":
            raise _Seen
        if name == "sldId":
            self.slides.append(attributes.get("r:id", ""))

    def end(self, name: str) -> None:
        pass

    def text(self, text: str) -> None:
        pass
