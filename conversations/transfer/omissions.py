"""What an import leaves out of a conversation, and the words for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import ngettext_lazy

_WORDS: dict[str, Any] = {
    "messages without a beginning": ngettext_lazy(
        "%d message without a beginning", "%d messages without a beginning"
    ),
    "messages of tools": ngettext_lazy("%d message of a tool", "%d messages of tools"),
    "calls of tools and reasoning": ngettext_lazy(
        "%d call of a tool or part of the reasoning",
        "%d calls of tools and parts of the reasoning",
    ),
    "pictures and files": ngettext_lazy("%d picture or file", "%d pictures and files"),
    "options that cannot be set": ngettext_lazy(
        "%d option that cannot be set", "%d options that cannot be set"
    ),
    "items that cannot be read": ngettext_lazy(
        "%d item that cannot be read", "%d items that cannot be read"
    ),
    "files that cannot be read": ngettext_lazy(
        "%d file that cannot be read", "%d files that cannot be read"
    ),
    "files that the virus scanner refuses": ngettext_lazy(
        "%d file that the virus scanner refuses",
        "%d files that the virus scanner refuses",
    ),
}


def describe(left_out: Mapping[str, int]) -> str:
    """The parts and their numbers, in the language of the reader; "" for none."""
    return ", ".join(
        str(_WORDS[what] % number) for what, number in left_out.items() if number
    )
