"""Plugins of the Markdown parser: citations, footnotes, `<br>`, emphasis in CJK."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from unicodedata import category

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline, emphasis
from markdown_it.token import Token
from mdit_py_plugins.footnote import footnote_plugin

from conversations.pages.reading.link_marks import CITED

#: Models write it in the cells of tables, where Markdown has no line breaks.
_BREAK = re.compile(r"<br */?>", re.IGNORECASE)


def break_plugin(markdown: MarkdownIt) -> None:
    markdown.inline.ruler.before("autolink", "break", _break)


def _break(state: StateInline, silent: bool) -> bool:
    found = _BREAK.match(state.src, state.pos)
    if not found:
        return False
    if not silent:
        state.push("hardbreak", "br", 0)
    state.pos = found.end()
    return True


#: Of Chinese, Japanese and Korean, which have no blanks between words.
_CJK = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef"
    "\U00020000-\U0003ffff]"
)


def emphasis_plugin(markdown: MarkdownIt) -> None:
    """Emphasis that begins or ends with a mark beside a letter of such a script, as in
    `**注意：**请` and `**作者：**John`: CommonMark would have a blank there."""
    markdown.inline.ruler.at("emphasis", _emphasize)


def _emphasize(state: StateInline, silent: bool) -> bool:
    start, known = state.pos, len(state.delimiters)
    if not emphasis.tokenize(state, silent):
        return False
    before, after = state.src[start - 1 : start], state.src[state.pos : state.pos + 1]
    if state.src[start] != "*" or not before.strip() or not after.strip():
        return True
    is_wide = bool(_CJK.match(before))
    ends = is_wide and category(before)[0] == "P"
    opens = category(before) in ("Ps", "Pi")
    for each in state.delimiters[known:]:
        each.open |= is_wide and category(after) not in ("Pe", "Pf")
        each.close |= (ends or bool(_CJK.match(after))) and not opens
    return True


def citation_plugin(markdown: MarkdownIt) -> None:
    markdown.inline.ruler.before("escape", "cited", _cited)
    markdown.add_render_rule("cited", _render_cited)


def _cited(state: StateInline, silent: bool) -> bool:
    found = CITED.match(state.src, state.pos)
    if not found:
        return False
    if not silent:
        state.push("cited", "sup", 0).content = found[1]
    state.pos = found.end()
    return True


def _render_cited(
    renderer: object, tokens: Sequence[Token], idx: int, *_: object
) -> str:
    return f'<sup class="cite">{tokens[idx].content}</sup>'


def footnotes_plugin(markdown: MarkdownIt) -> None:
    """Footnotes `[^1]` with their definitions at the end, without links."""
    markdown.use(footnote_plugin, inline=False)
    markdown.add_render_rule("footnote_ref", _render_reference)
    for name, html in _NOTE_TAGS.items():
        markdown.add_render_rule(f"footnote_{name}", _rule_for(html))


_NOTE_TAGS = {
    "block_open": '<div class="footnotes"><ol dir="auto">\n',
    "block_close": "</ol></div>\n",
    "open": '<li class="note">',
    "close": "</li>\n",
    "anchor": "",
}


def _rule_for(html: str) -> Callable[..., str]:
    def render(renderer: object, *_: object) -> str:
        return html

    return render


def _render_reference(
    renderer: object, tokens: Sequence[Token], idx: int, *_: object
) -> str:
    return f'<sup class="note-ref">{int(tokens[idx].meta["id"]) + 1}</sup>'
