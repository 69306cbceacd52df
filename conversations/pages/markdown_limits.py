"""Bounds of rendering Markdown: texts that would take too long, and a budget of a page.
Pure, linear time.

The parser searches for the end of a link from each bracket, for the scheme of a URL
from each "://", for the list of each checkbox, and for the other half of each emphasis
mark. Real texts have few of these in a row; 99 kB of nothing else take seconds to
minutes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_OPEN = 200  # unclosed or nested brackets in a paragraph
MAX_TASKS = 500  # checkboxes
MAX_MARKS = 5_000  # emphasis marks in a paragraph
#: Number of URLs times characters, in a run without blanks and in a paragraph.
MAX_IN_RUN = 1_000_000
MAX_IN_PARAGRAPH = 10_000_000

_PARAGRAPHS = re.compile(r"\n[ \t\r]*\n")
_TASK = re.compile(r"\[[ xX]\]")
_BRACKET = re.compile(r"[\[\]]")


@dataclass(slots=True)
class RenderingBudget:
    """Characters that a page may still render. Strangers may ask for a page again and
    again, and one has many answers."""

    left: int


def is_too_heavy(text: str) -> bool:
    if text.count("[") > MAX_TASKS and len(_TASK.findall(text)) > MAX_TASKS:
        return True
    paragraphs = _PARAGRAPHS.split(text)
    if any(_marks(paragraph) > MAX_MARKS for paragraph in paragraphs):
        return True
    return any(map(_has_open_brackets, paragraphs)) or _has_addresses(paragraphs)


def _marks(paragraph: str) -> int:
    return paragraph.count("*") + paragraph.count("_") + paragraph.count("~")


def _has_open_brackets(paragraph: str) -> bool:
    if paragraph.count("[") <= MAX_OPEN:
        return False
    depth = 0
    for found in _BRACKET.finditer(paragraph):
        depth = depth + 1 if found[0] == "[" else max(0, depth - 1)
        if depth > MAX_OPEN:
            return True
    return False


def _has_addresses(paragraphs: list[str]) -> bool:
    in_paragraphs = in_runs = 0
    for paragraph in paragraphs:
        if (count := paragraph.count("://")) < 2:
            continue
        in_paragraphs += count * len(paragraph)
        in_runs += sum(
            len(r) * n for r in paragraph.split() if (n := r.count("://")) > 1
        )
    return in_paragraphs > MAX_IN_PARAGRAPH or in_runs > MAX_IN_RUN
