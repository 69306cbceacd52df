"""Addresses in a text without marks of Markdown: they end before their sentence does.

static/js/markdown.js has the same rule; tests/js/address_cases.json tests both.
"""

from __future__ import annotations

from typing import Any

from linkify_it import LinkifyIt
from linkify_it.main import Match

_END_OF_SENTENCE = frozenset(".,;:!?'\"…。，；：！？、")
_MOST_TRIMMED = 10  # characters


class AddressFinder(LinkifyIt):
    """As the library, which leaves `?` of `?!` and `…` in the address."""

    def match(self, text: str) -> list[Any] | None:
        found = super().match(text)
        return found and [_trim(each) for each in found]

    def match_at_start(self, text: str) -> Any:
        found = super().match_at_start(text)
        return found and _trim(found)


def _trim(found: Match) -> Match:
    address = found.raw
    end = len(address)
    while end > len(address) - _MOST_TRIMMED and _is_over(address[:end]):
        end -= 1
    if end < len(address):
        found.raw = found.text = found.url = address[:end]
        found.last_index = found.index + end
    return found


def _is_over(address: str) -> bool:
    is_unopened = address[-1:] == ")" and address.count(")") > address.count("(")
    return address[-1:] in _END_OF_SENTENCE or is_unopened
