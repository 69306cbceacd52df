"""Parts of an Office file: a ZIP archive of XML, read piece by piece within bounds.

A file comes from anybody. What it unpacks to is counted, whatever it says of its size;
document type definitions, and so entities, are refused; macros are never read.
"""

from __future__ import annotations

import posixpath
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Literal, Protocol
from xml.parsers import expat

Reason = Literal["damaged", "empty", "protected", "too_large", "unknown"]

MAX_PARTS = 20_000  # files in the archive
MAX_UNPACKED = 50_000_000  # bytes of all parts that are read
MAX_ELEMENTS = 1_000_000  # of all parts that are read: each takes time
MAX_DEPTH = 200  # of elements in one another
_MAX_ATTRIBUTES = 500  # of one element
_MAX_NAMES = 5_000  # of elements and attributes in the file; the parser stores each
_MAX_NAME = 1_000  # characters of a name, or of the address of a namespace
_MAX_DIRECTORY = 8_000_000  # bytes of the archive's list of files
#: Bytes that are unpacked at once. Older versions of expat read a long tag anew with
#: each piece; a tag of more than two is refused.
_PIECE = 1024 * 1024
_OPENING = 1_000  # bytes that opening a part counts as: even an empty one takes time
#: Python unpacks the other methods into memory without a limit.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1  # flag of an archive's entry
#: What `zipfile` and expat raise for a file that is damaged.
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    expat.ExpatError,
    NotImplementedError,
    RuntimeError,
    EOFError,
    UnicodeError,
    OverflowError,
    struct.error,
    ValueError,
)


class Unreadable(Exception):
    """The file has no text that can be read; `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class Reader(Protocol):
    """Reads the elements of a part, whose names come without their namespace."""

    def start(self, name: str, attributes: Mapping[str, str]) -> None: ...

    def end(self, name: str) -> None: ...

    def text(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Relation:
    """A part to which another part refers."""

    kind: str  # `worksheet`, `notesSlide` …
    path: str


class Package:
    """Raises Unreadable, as its methods do."""

    def __init__(self, data: bytes) -> None:
        try:
            self._archive = zipfile.ZipFile(_BoundedReads(data))
        except _DAMAGED as exc:
            raise Unreadable("damaged") from exc
        if len(self._archive.filelist) > MAX_PARTS:
            raise Unreadable("too_large")
        self._entries = {_key(each.filename): each for each in self._archive.filelist}
        self._left = MAX_UNPACKED
        self._elements = _Elements()

    def __contains__(self, path: str) -> bool:
        return _key(path) in self._entries

    def read(self, path: str, reader: Reader) -> None:
        """Give the elements of a part to the reader. What the reader raises ends it."""
        elements = self._elements.of_part(reader)
        # Expat would copy the address of the namespace with each name.
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = _refuse_doctype
        parser.StartElementHandler = elements.start
        parser.EndElementHandler = elements.end
        parser.CharacterDataHandler = reader.text
        try:
            self._feed(path, parser)
        except _DAMAGED as exc:
            raise Unreadable("damaged") from exc

    def relations(self, path: str = "") -> dict[str, Relation]:
        """What a part refers to, by id; what the file itself does without `path`."""
        folder, name = posixpath.split(path)
        listed = posixpath.join(folder, "_rels", f"{name}.rels")
        reader = _Relations(folder)
        if listed in self:
            self.read(listed, reader)
        return reader.found

    def _feed(self, path: str, parser: expat.XMLParserType) -> None:
        if (entry := self._entries.get(_key(path))) is None:
            raise Unreadable("damaged")
        if entry.flag_bits & _ENCRYPTED:
            raise Unreadable("protected")
        if entry.compress_type not in _METHODS:
            raise Unreadable("damaged")
        self._count(_OPENING)
        size = 0
        with self._archive.open(entry) as packed:
            while piece := packed.read(_PIECE):
                self._count(len(piece))
                size += len(piece)
                parser.Parse(piece, False)
                if size - parser.CurrentByteIndex > 2 * _PIECE:
                    raise Unreadable("too_large")
        parser.Parse(b"", True)

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise Unreadable("too_large")


class _Elements:
    """Gives elements to a reader without the prefixes of their names, and refuses too
    many."""

    def __init__(self) -> None:
        self._left = MAX_ELEMENTS
        self._names: dict[str, str] = {}  # without its prefix, by the name
        self._reader: Reader = _Relations("")
        self._depth = 0
        self._relation_prefixes: set[str] = set()

    def of_part(self, reader: Reader) -> _Elements:
        self._reader, self._depth = reader, 0
        self._relation_prefixes = set()
        return self

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._left -= 1
        self._depth += 1
        if (
            self._left < 0
            or self._depth > MAX_DEPTH
            or len(attributes) > _MAX_ATTRIBUTES
        ):
            raise Unreadable("too_large")
        for key, value in attributes.items():
            if key.startswith("xmlns"):
                self._note_namespace(key, value)
        self._reader.start(
            self._local(name),
            {
                self._attribute(key): value
                for key, value in attributes.items()
                if not key.startswith("xmlns")
            },
        )

    def end(self, name: str) -> None:
        self._depth -= 1
        self._reader.end(self._local(name))

    def _note_namespace(self, key: str, address: str) -> None:
        if len(address) > _MAX_NAME:
            raise Unreadable("too_large")
        prefix = self._local(key)
        if address.endswith("/relationships"):
            self._relation_prefixes.add(prefix)
        else:
            self._relation_prefixes.discard(prefix)

    def _attribute(self, name: str) -> str:
        """`r:id` for the id of a relation, which may stand beside another `id`."""
        local = self._local(name)
        is_relation = name.partition(":")[0] in self._relation_prefixes
        return f"r:{local}" if is_relation and local != name else local

    def _local(self, name: str) -> str:
        if (local := self._names.get(name)) is None:
            if len(self._names) >= _MAX_NAMES or len(name) > _MAX_NAME:
                raise Unreadable("too_large")
            local = self._names[name] = name.rpartition(":")[2]
        return local


class _BoundedReads(BytesIO):
    """The list of files is read at once, before their number is known."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MAX_DIRECTORY:
            raise Unreadable("too_large")
        return super().read(size)


class _Relations:
    def __init__(self, folder: str) -> None:
        self.found: dict[str, Relation] = {}
        self._folder = folder

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name != "Relationship" or attributes.get("TargetMode") == "External":
            return
        target = posixpath.join("/", self._folder, attributes.get("Target", ""))
        kind = attributes.get("Type", "").rpartition("/")[2]
        path = posixpath.normpath(target).lstrip("/")
        self.found[attributes.get("Id", "")] = Relation(kind, path)

    def end(self, name: str) -> None:
        pass

    def text(self, text: str) -> None:
        pass


def _key(path: str) -> str:
    """Names of parts are compared without regard to case."""
    return path.replace("\\", "/").lower()


def _refuse_doctype(*_: object) -> None:
    raise Unreadable("damaged")
