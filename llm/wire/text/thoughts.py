"""Reasoning that a host without a parser of it leaves in the text of an answer. Pure.

`ThinkTags` splits it off a stream where the host's row says that it comes so. This is
for answers that are read as a whole: titles, summaries and verdicts.
"""

from __future__ import annotations

import re

_START = re.compile(r"<think(?:ing)?>")
_END = re.compile(r"</think(?:ing)?>")


#: An end whose beginning is part of the model's template: at the start of a line, after
#: a sentence, or before an empty line. Text that mentions the tag has it in a sentence.
_LONE_END = re.compile(
    r"""(?:^[ \t]*</think(?:ing)?>(?=\S|[ \t]*$)
    |(?<=[.!?…。！？])</think(?:ing)?>
    |(?<=[^\s`'"“„«(])</think(?:ing)?>(?=\s*\Z|[ \t]*\n[ \t]*\n))""",
    re.MULTILINE | re.VERBOSE,
)
_FENCE = "```"  # of code, which may be a template


def remove_thought(text: str) -> str:
    """Nothing is left of a thought that did not end. The beginning of one may be part
    of the model's template, so that only its end arrives."""
    start, end = _START.search(text), _END.search(text)
    if start and (not end or start.start() < end.start()):
        if text[: start.start()].strip():
            return text  # it writes about such tags
        return text[end.end() :] if end else ""
    lone = _LONE_END.search(text)
    if lone and not text.count(_FENCE, 0, lone.start()) % 2:
        return text[lone.end() :]
    return text
