"""Sound, video and files in an answer, which no item has: a note stands for them.

A client that reads the provider's own bytes gets them; any other would see an answer
without content.
"""

from __future__ import annotations

import re

#: A note, with the blank line before it.
MEDIA_NOTE = re.compile(
    r"\n*\[[\w.+/-]{1,100}(, \d{1,12} kB)?: cannot be shown here\]", re.ASCII
)


def media_note(kind: str, size: int = 0) -> str:
    """A text for media of a `kind` ("audio/wav") whose base64 has `size` characters; 0
    if it is not known."""
    bytes = size * 3 // 4
    amount = f", {max(1, bytes // 1000)} kB" if bytes else ""
    return f"[{kind}{amount}: cannot be shown here]"
