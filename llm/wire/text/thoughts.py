"""Reasoning that a host without a parser of it leaves in the text of an answer. Pure.

`ThinkTags` splits it off a stream where the host's row says that it comes so. This is
for answers that are read as a whole: titles, summaries and verdicts.
"""

from __future__ import annotations

import re

_START = re.compile(r"<think(?:ing)?>")
_END = re.compile(r"</think(?:ing)?>")


def remove_thought(text: str) -> str:
    """Nothing is left of a thought that did not end. The beginning of one may be part
    of the model's template, so that only its end arrives."""
    end = _END.search(text)
    start = _START.search(text, 0, end.start() if end else len(text))
    if start and text[: start.start()].strip():
        return text  # it writes about such tags
    if end:
        return text[end.end() :]
    return "" if start else text
