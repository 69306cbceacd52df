"""Plugins of the Markdown parser that leave the marks of citations and footnotes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.footnote import footnote_plugin

from conversations.pages.reading.marks import CITED


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
