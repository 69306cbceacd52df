"""Characters that a page does not show, which may carry orders for a model. Pure.

Tags (U+E0000 to U+E007F), zero-width characters and direction marks look like nothing
to staff who review a tool's description, but a model reads them.
Source: https://unicode.org/reports/tr36/ and the categories of Unicode.
"""

from __future__ import annotations

import re
import unicodedata

_JOINERS = "\u200c\u200d\ufe00-\ufe0f"  # of emoji and scripts, harmless one at a time
_USUAL_PAIR = f"\ufe0f\u200d(?![{_JOINERS}])"  # in ❤️‍🔥
#: Letters and signs without a shape, and what selects variants of rare characters.
_SHAPELESS = "\u115f\u1160\u2800\u3164\uffa0\U000e0100-\U000e01ef"
_ARABIC_SIGNS = "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2"  # which have a shape
_HIDDEN = re.compile(f"(?!{_USUAL_PAIR})[{_JOINERS}]{{2,}}|[{_SHAPELESS}]")
_OTHERS = re.compile(f"[^\\t\\n\\r -~{_JOINERS}{_SHAPELESS}{_ARABIC_SIGNS}]")
_HIDDEN_CATEGORIES = {"Cc", "Cf", "Zl", "Zp"}


def reveal(text: str) -> str:
    """The text with each hidden character as its code point, such as ‹U+200B›."""
    revealed = _HIDDEN.sub(lambda found: _code_points(found[0]), text)
    return _OTHERS.sub(
        lambda found: _code_points(found[0]) if _is_hidden(found[0]) else found[0],
        revealed,
    )


def count_hidden(text: str) -> int:
    runs = sum(len(found[0]) for found in _HIDDEN.finditer(text))
    return runs + sum(_is_hidden(found[0]) for found in _OTHERS.finditer(text))


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN_CATEGORIES


def _code_points(characters: str) -> str:
    return "".join(f"‹U+{ord(each):04X}›" for each in characters)
