"""Addresses in a text without marks of Markdown: they end before their sentence does.

static/js/reading/addresses.js has the same rule; tests/js/address_cases.json tests
both.
"""

from __future__ import annotations

import re
from typing import Any

from linkify_it import LinkifyIt
from linkify_it.main import Match

_END_OF_SENTENCE = frozenset(".,;:!?'\"…。，；：！？、")
_MOST_TRIMMED = 10  # characters
#: What is between marks that are written without blanks around them.
_WORDS = re.compile("[^。，；！？、「」『』《》〈〉【】〔〕“”]+")


class AddressFinder(LinkifyIt):
    """As the library, which leaves `?` of `?!` and `…` in the address."""

    def match(self, text: str) -> list[Any] | None:
        found = []
        for words in _WORDS.finditer(text):
            for each in super().match(words.group()) or []:
                each.index += words.start()
                each.last_index += words.start()
                found.append(_trim(each))
        return found or None

    def match_at_start(self, text: str) -> Any:
        found = super().match_at_start(text)
        return found and _trim(found)


def _trim(found: Match) -> Match:
    address = found.raw
    words = _WORDS.match(address)
    end = most = _unopened(words.group() if words else address)
    while end > most - _MOST_TRIMMED and _is_over(address[:end]):
        end -= 1
    if end < len(address):
        found.raw = found.text = found.url = address[:end]
        found.last_index = found.index + end
    return found


def _unopened(address: str) -> int:
    """Up to where no wide parenthesis is closed that was not opened."""
    opened = 0
    for position, character in enumerate(address):
        opened += (character == "（") - (character == "）")
        if opened < 0:
            return position
    return len(address)


def _is_over(address: str) -> bool:
    is_unopened = address[-1:] == ")" and address.count(")") > address.count("(")
    return address[-1:] in _END_OF_SENTENCE or is_unopened
