"""Artifacts: blocks of HTML, SVG or Markdown in answers that can be shown as documents.

An artifact is named by its turn, the place of its message in the turn's output, and its
number within the message. Earlier and later artifacts of its branch with the same kind
and title are its versions: not those of other branches, or of answers to be compared
with its own. An artifact without a title has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import unescape
from typing import Any

from django.db.models import Q
from django.utils.text import slugify
from django.utils.translation import gettext as _

from conversations.models import Item, Tree, Turn
from conversations.pages.reading.link_marks import Fence, kind_of
from llm.wire.items import text_of

MAX_VERSIONS = 50
MAX_PLACE = 10_000  # of a message in an answer, and of an artifact in a message
MAX_SCANNED = 300  # messages of the conversation that are searched for versions
MAX_PARSED = 500_000  # characters of those that are parsed: some two seconds
_CHUNK = 20  # messages that are read at once; one may have two megabytes
_FENCE = re.compile(r"(?:`{3,}|~{3,})[ \t]*(\S+)")
_WORD = re.compile(r"[A-Za-z0-9]+")
_MAX_TITLE = 80  # characters
_ENDINGS = {"html": "html", "svg": "svg", "markdown": "md"}
_TYPES = {"html": "text/html", "svg": "image/svg+xml", "markdown": "text/markdown"}
_TITLES = {
    "html": re.compile(r"<title[^>]{0,200}>([^<]{1,300})", re.IGNORECASE),
    "svg": re.compile(r"<title[^>]{0,200}>([^<]{1,300})", re.IGNORECASE),
    "markdown": re.compile(r"^#{1,6}[ \t]+(\S[^\n]{0,300})", re.MULTILINE),
}
_NAMED = re.compile(r"""(?:title|filename|name)=["']?([^"'\n]{1,200})""")
_SHELL = (
    '<!doctype html><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width">'
    "<style>:root{{color-scheme:light}}pre{{overflow:auto}}"
    "body{{margin:{margin};font:1rem/1.6 system-ui,sans-serif}}"
    "svg{{max-width:100%;height:auto}}</style>{body}"
)


@dataclass(frozen=True, slots=True)
class Artifact:
    turn_id: str
    item: int  # place of the message in the turn's output
    number: int  # within the message, from 0
    kind: str
    title: str
    source: str
    version: int = 0  # from 1, once versions are known

    @property
    def address(self) -> tuple[str, int, int]:
        return self.turn_id, self.item, self.number

    @property
    def label(self) -> str:
        return self.title or _("Untitled")

    @property
    def file_name(self) -> str:
        return f"{slugify(self.title) or 'artifact'}.{_ENDINGS[self.kind]}"

    @property
    def file_type(self) -> str:
        return _TYPES[self.kind]

    @property
    def document(self) -> str:
        """The HTML page that shows it, to be run in a sandbox only."""
        match self.kind:
            case "html":
                return self.source
            case "svg":
                return _SHELL.format(margin="0", body=self.source)
        # Imported here: at the top it would delay the start by loading the parser.
        from conversations.pages.markdown import render

        return _SHELL.format(margin="1.5rem", body=render(self.source))


def find_artifact(turn: Turn, item: int, number: int) -> Artifact | None:
    if max(item, number) > MAX_PLACE:
        return None
    rows = turn.items.filter(origin=Item.Origin.OUTPUT).order_by("position")
    if (row := rows[item : item + 1].first()) is None:
        return None
    found = list(_artifacts_of(row.payload, turn.pk, item))
    return found[number] if number < len(found) else None


def versions_of(turn: Turn, artifact: Artifact) -> Sequence[Artifact]:
    """All versions in the order of the conversation, `artifact` among them."""
    if not artifact.title:
        return [
            replace(artifact, version=1)
        ]  # nothing says which others are its versions
    tree = Tree.of(turn.conversation_id)
    branch = {*tree.lineage(turn.pk), *tree.descendants(turn.pk)}
    rows = Item.objects.filter(
        Q(payload__icontains="```") | Q(payload__icontains="~~~"),
        turn_id__in=branch,
        origin=Item.Origin.OUTPUT,
        type="message",
    )
    newest = rows.order_by("-turn__created_at", "-turn_id", "-position")
    alike = list(_versions_in(newest[:MAX_SCANNED].iterator(_CHUNK), artifact))
    del alike[MAX_VERSIONS:]
    if not any(each.address == artifact.address for each in alike):
        alike[MAX_VERSIONS - 1 :] = [artifact]  # older than the others
    return [replace(found, version=n) for n, found in enumerate(alike[::-1], 1)]


def _versions_in(rows: Iterable[Item], artifact: Artifact) -> Iterator[Artifact]:
    """The versions in these messages, the newest first. To parse a message takes
    seconds for a megabyte, so only those are parsed that may have one, and only until
    there are enough."""
    count = characters = 0
    for row in rows:
        text = text_of(row.payload)
        if len(text) > MAX_PARSED or not _could_contain_version(text, artifact):
            continue
        characters += len(text)
        if characters > MAX_PARSED or count >= MAX_VERSIONS:
            return
        found = list(_artifacts_of(row.payload, row.turn_id, 0))
        wanted = (artifact.kind, artifact.title)
        same = [each for each in found if (each.kind, each.title) == wanted]
        count += len(same)
        number = _place_of(row) if same else 0
        yield from (replace(each, item=number) for each in reversed(same))


def _could_contain_version(text: str, artifact: Artifact) -> bool:
    """Whether the message may have a version: a block of the kind, and the words of the
    title, which HTML may write with references such as `&#38;`."""
    languages = {found[1] for found in _FENCE.finditer(text)}
    if artifact.kind not in map(kind_of, languages):
        return False
    return "&#" in text or all(word in text for word in _WORD.findall(artifact.title))


def _place_of(row: Item) -> int:
    outputs = Item.objects.filter(turn_id=row.turn_id, origin=Item.Origin.OUTPUT)
    return outputs.filter(position__lt=row.position).count()


def _artifacts_of(payload: Any, turn_id: str, item: int) -> Iterable[Artifact]:
    # Imported here: at the top it would delay the start by loading the parser.
    from conversations.pages.markdown import previewable_fences

    for number, fence in enumerate(previewable_fences(text_of(payload))):
        title = _title_of(fence)
        yield Artifact(turn_id, item, number, fence.kind, title, fence.content)


def _title_of(fence: Fence) -> str:
    named = _NAMED.search(fence.info) or _TITLES[fence.kind].search(fence.content)
    return " ".join(unescape(named[1]).split())[:_MAX_TITLE] if named else ""
