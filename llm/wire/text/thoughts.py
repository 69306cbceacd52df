"""Reasoning that a host without a parser of it leaves in the text of an answer. Pure.

`ThinkTags` splits it off a stream where the host's row says that it comes so. This is
for answers that are read as a whole: titles, summaries and verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_START = re.compile(r"<think(?:ing)?>")
_END = re.compile(r"</think(?:ing)?>")

#: An end whose beginning is part of the model's template: at the start of a line, after
#: a sentence, or before the end of a line. Text that mentions the tag has it in a
#: sentence.
_LONE_END = re.compile(
    r"""(?:^[ \t]*</think(?:ing)?>(?=\S|[ \t]*$)
    |(?<=[.!?…。！？])</think(?:ing)?>
    |(?<=[^\s`'"“„«(])</think(?:ing)?>(?=\s*\Z|[ \t]*\n))""",
    re.MULTILINE | re.VERBOSE,
)
#: In a text of a few words, which hardly ever mentions the tag.
_END_IN_FEW_WORDS = re.compile(r"""(?<![`'"“„«(])</think(?:ing)?>""")
_FENCE = "```"  # of code, which may be a template


def remove_thought(text: str, *, is_short: bool = False) -> str:
    """Nothing is left of a thought that did not end. The beginning of one may be part
    of the model's template, so that only its end arrives. `is_short`: of a title or a
    verdict, nearly any end counts, as the whole thought costs more than a few words."""
    start, end = _START.search(text), _END.search(text)
    if start and (not end or start.start() < end.start()):
        if text[: start.start()].strip():
            return text  # it writes about such tags
        return text[end.end() :] if end else ""
    if is_short:
        return text[max(_lone_ends(text, _END_IN_FEW_WORDS), default=0) :]
    return text[next(_lone_ends(text, _LONE_END), 0) :]


def _lone_ends(text: str, pattern: re.Pattern[str]) -> Iterator[int]:
    """Where thoughts end, but for ends in code. A thought may end inside of code that
    it has begun."""
    fences, at, last_fence = 0, 0, text.rfind(_FENCE)
    for end in pattern.finditer(text):
        fences += text.count(_FENCE, at, end.start())
        at = end.start()
        if fences % 2 == 0 or at > last_fence:
            yield end.end()
