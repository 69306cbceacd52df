"""Marks in rendered Markdown that become links: artifacts, citations, footnotes.

Rendered text is cached and does not know its turn. So the renderer leaves marks, which
no text of a model can produce, and `Places.link` replaces them where the turn is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from itertools import count

from django.urls import reverse
from django.utils.translation import gettext as _

ARTIFACT = '<span class="artifact-here"></span>'
#: A citation's number in Markdown text, between control characters.
CITED = re.compile("\\{\x02(\\d{1,4})\x03\\}")

MIN_LINES = 5  # of an artifact; a shorter block is read where it stands
MAX_ARTIFACT = 80_000  # characters
_KINDS = {"html": "html", "svg": "svg", "markdown": "markdown", "md": "markdown"}
_CITE_HTML = re.compile(r'<sup class="cite">(\d+)</sup>')
_NOTE_REF = re.compile(r'<sup class="note-ref">(\d+)</sup>')
_NOTE = re.compile(r'<li class="note">')
_CONTROL = re.compile("[\x02\x03]")
#: A line that means something else with a mark at its end.
_UNMARKED = re.compile(
    # Possessive, so that a line of many blanks is read once.
    r"[\s>]*+(?:(?:[-+*]|\d{1,9}[.)])\s{1,4}){0,8}"
    r"(?:`{3}|~{3}|(?:#{1,6}|\d{1,9}[.)]|\+)\s*+$|[-=*_|:\s]*+$)"
)
_REST_OF_WORD = re.compile(r"[!-{}~]*")  # within a cell of a table


@dataclass(frozen=True, slots=True)
class Fence:
    """A block of code: what follows its opening marks, and its lines."""

    info: str
    content: str

    @property
    def language(self) -> str:
        return self.info.split(maxsplit=1)[0] if self.info else ""

    @property
    def kind(self) -> str:
        return kind_of(self.language)


def kind_of(language: str) -> str:
    """The kind of artifact that is written in this language; "" for none."""
    return _KINDS.get(language.lower(), "")


def is_previewable(language: str, code: str) -> bool:
    """Whether a block of code is shown as an artifact too."""
    is_known = language.lower() in _KINDS
    return is_known and len(code) <= MAX_ARTIFACT and code.count("\n") >= MIN_LINES


def mark_citations(text: str, marks: Iterable[tuple[int, int]]) -> str:
    """The text with marks; each is a position and the number to show there.

    A mark moves behind the word that it stands in, so that it breaks no address.
    """
    found = sorted({(_after_word(text, at), number) for at, number in marks})
    if not found:
        return text
    pieces, done = [], 0
    for at, number in found:
        pieces.append(_CONTROL.sub("", text[done:at]))
        done = at
        if _can_mark(text, at):
            pieces.append(f"{{\x02{number}\x03}}")
    return "".join([*pieces, _CONTROL.sub("", text[done:])])


def _after_word(text: str, at: int) -> int:
    found = _REST_OF_WORD.match(text, at)
    return found.end() if found else at


def _can_mark(text: str, at: int) -> bool:
    line = text.rfind("\n", 0, at) + 1
    ends_cell = at > line and text[at - 1] == "|"
    return not ends_cell and not _UNMARKED.match(text, line, at)


@dataclass(frozen=True, slots=True)
class Places:
    """Where the marks of one message lead."""

    turn_id: str
    key: str  # of the message within its turn
    citations: int = 0  # of the message
    has_artifacts: bool = True  # whether the reader may open them

    @property
    def prefix(self) -> str:
        """The beginning of the ids of its elements."""
        return f"{self.turn_id}-{self.key}"

    def link(self, html: str, *, window: int, artifacts: int) -> str:
        """`html` with links; `artifacts` is the number of those before it."""
        numbers = count(artifacts)
        html = re.sub(
            re.escape(ARTIFACT), lambda _: self._artifact(next(numbers)), html
        )
        html = _CITE_HTML.sub(lambda found: self._citation(int(found[1])), html)
        return self._link_notes(html, f"{self.prefix}-{window}")

    def _artifact(self, number: int) -> str:
        if not self.has_artifacts:
            return ""
        url = reverse("artifact", args=[self.turn_id, int(self.key), number])
        words = escape(_("Preview"))
        return f'<a class="artifact-link" data-artifact href="{url}">{words}</a>'

    def _citation(self, number: int) -> str:
        if not 0 < number <= self.citations:
            return ""
        target = f"#{self.prefix}-source-{number}"
        label = escape(_("Source %(number)s") % {"number": number})
        return (
            f'<sup class="cite"><a href="{target}" aria-label="{label}">{number}</a>'
            "</sup>"
        )

    @staticmethod
    def _link_notes(html: str, prefix: str) -> str:
        numbers, known = count(1), set()

        def refer(found: re.Match[str]) -> str:
            number = found[1]
            own_id = "" if number in known else f' id="{prefix}-ref-{number}"'
            known.add(number)
            label = escape(_("Footnote %(number)s") % {"number": number})
            return (
                f'<sup class="note-ref"><a{own_id} href="#{prefix}-note-{number}"'
                f' aria-label="{label}">{number}</a></sup>'
            )

        def note(_found: re.Match[str]) -> str:
            number = next(numbers)
            label = escape(_("Back to the text"))
            return (
                f'<li class="note" id="{prefix}-note-{number}">'
                f'<a class="note-back" href="#{prefix}-ref-{number}"'
                f' aria-label="{label}">↩</a>'
            )

        return _NOTE.sub(note, _NOTE_REF.sub(refer, html))
