"""Markdown rules that keep formulas unchanged.

Formulas are written as `$x$`, `$$x$$`, `\\(x\\)` or `\\[x\\]`; without these rules
Markdown would interpret the backslashes and underscores of LaTeX. A formula ends before
the next blank line, and one in single dollars on its line: `$5 and $6` is money, and
the dollars of `$x = \\$5$` with a backslash do not end it.
static/js/math.js implements the same rules for streaming answers;
tests/js/math_cases.json tests both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

_CLOSERS = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}
_OPENER = re.compile(r"\\\(|\\\[|\$\$")
_DOLLARS = re.compile(r"\$(?=[^\s$])(?:\\.|[^$`\n\\])*(?<=\S)\$(?!\d)")


def math_plugin(markdown: MarkdownIt) -> None:
    markdown.block.ruler.before("fence", "math_block", _block, {"alt": ["paragraph"]})
    markdown.inline.ruler.before("escape", "math_inline", _inline)
    markdown.add_render_rule("math_block", _render_block)
    markdown.add_render_rule("math_inline", _render_inline)


def _inline(state: StateInline, silent: bool) -> bool:
    end = _end_of_formula(state)
    if end is None:
        return False
    if not silent:
        token = state.push("math_inline", "span", 0)
        token.content = state.src[state.pos : end]
    state.pos = end
    return True


def _end_of_formula(state: StateInline) -> int | None:
    if found := _OPENER.match(state.src, state.pos):
        return _end_of_delimited(state, found.group())
    if state.pos and state.src[state.pos - 1].isalnum():
        return None
    found = _DOLLARS.match(state.src, state.pos, state.posMax)
    return found.end() if found else None


def _end_of_delimited(state: StateInline, opener: str) -> int | None:
    closer = _CLOSERS[opener]
    # If no closer follows here, none follows a later opener either. Remembering that
    # avoids a search to the end of the text for each opener.
    absent: dict[str, str] = state.env.setdefault("absent_closers", {})
    if absent.get(closer) is state.src:
        return None
    at = state.src.find(closer, state.pos + len(opener), state.posMax)
    if at < 0:
        absent[closer] = state.src
        return None
    return at + len(closer) if at > state.pos + len(opener) else None


def _block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A formula that begins at the start of a line and ends at the end of one."""
    first = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]]
    opener = first[:2]
    if opener not in ("$$", "\\[") or state.is_code_block(start):
        return False
    last = _last_line(state, start, end, _CLOSERS[opener])
    if last is None:
        return False
    if not silent:
        token = state.push("math_block", "div", 0)
        token.block = True
        token.content = state.getLines(start, last + 1, state.blkIndent, False).strip()
        token.map = [start, last + 1]
    state.line = last + 1
    return True


def _last_line(state: StateBlock, start: int, end: int, closer: str) -> int | None:
    """The line that ends with the closer; None where a blank line comes first."""
    open_until: dict[str, int] = state.env.setdefault("open_until", {})
    if start < open_until.get(closer, -1):
        return None
    for line in range(start, end):
        text = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]
        if not text.strip() or state.sCount[line] < state.blkIndent:
            break
        inner = text.rstrip()[2:] if line == start else text.rstrip()
        if inner.endswith(closer):
            return line
        if closer in inner:
            break  # text follows, so the formula is inline in a paragraph
    else:
        line = end
    open_until[closer] = line
    return None


def _render_block(
    renderer: Any, tokens: Sequence[Token], idx: int, options: Any, env: Any
) -> str:
    return f'<div class="math" dir="ltr">{escape(tokens[idx].content)}</div>\n'


def _render_inline(
    renderer: Any, tokens: Sequence[Token], idx: int, options: Any, env: Any
) -> str:
    return f'<span class="math" dir="ltr">{escape(tokens[idx].content)}</span>'
