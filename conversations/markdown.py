"""A message's Markdown to HTML that is safe to show, whatever a model wrote.

Three walls stand between a model and the page: markdown-it lets no HTML through, our
rules make the only tags there are (an image becomes a link, so nothing is fetched from
elsewhere), and nh3 drops whatever is not on its list. Classes only, no styles: the
page's Content-Security-Policy allows no others.

While an answer streams, static/js/markdown.js renders it the same way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from typing import Any

import nh3
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from mdit_py_plugins.tasklists import tasklists_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

PLAIN_BEYOND = 100_000  # characters; longer texts are shown as they are
UNCOLOURED_BEYOND = 50_000  # characters of a code block
MAX_NESTING = 100  # what is nested deeper is left out
KEPT_UP_TO = 20_000  # characters; longer texts are rendered anew each time

_LINK = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")
_DEEPEST_HEADING = 6
_HEADINGS_ABOVE = 2  # the page's title and the turn have the levels above


def render(text: str) -> SafeString:
    if len(text) > PLAIN_BEYOND:
        return mark_safe(f'<p class="plain">{escape(text)}</p>')
    return _kept(text) if len(text) <= KEPT_UP_TO else _render(text)


def coloured(code: str, language: str) -> SafeString:
    """`code` as HTML whose classes tell its parts; as it is for unknown languages."""
    if len(code) <= UNCOLOURED_BEYOND and (lexer := _lexer(language)):
        return mark_safe(str(highlight(code, lexer, _FORMATTER)))
    return mark_safe(escape(code))


def _render(text: str) -> SafeString:
    return mark_safe(_CLEANER.clean(_MARKDOWN.render(text)))


@lru_cache(maxsize=512)
def _kept(text: str) -> SafeString:
    return _render(text)


@lru_cache(maxsize=128)
def _lexer(language: str) -> Any:
    try:
        # Stripping would eat blank lines that belong to the code.
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


class _Renderer(RendererHTML):
    """Where a page differs from a document: code, tables, headings and images."""

    def fence(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any
    ) -> str:
        found = _LANGUAGE.match(tokens[idx].info.strip())
        language = found.group() if found else ""
        return _code_block(tokens[idx].content, language)

    def code_block(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any
    ) -> str:
        return _code_block(tokens[idx].content, "")

    def image(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any
    ) -> str:
        token = tokens[idx]
        url = str(token.attrs["src"])
        words = escape(self.renderInlineAsText(token.children, options, env)) or "image"
        if _is_inside_link(tokens, idx):
            return words
        return f'<a class="image-link" href="{escape(url)}">{words}</a>'

    def heading_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any
    ) -> str:
        return f"<{_heading(tokens[idx])}>"

    def heading_close(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any
    ) -> str:
        return f"</{_heading(tokens[idx])}>\n"

    def table_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any
    ) -> str:
        return '<div class="table-scroll"><table>'

    def table_close(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any
    ) -> str:
        return "</table></div>\n"

    def th_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any
    ) -> str:
        return _cell(tokens[idx])

    td_open = th_open


def _code_block(code: str, language: str) -> str:
    return (
        f'<div class="code"><div class="code-head"><span>{escape(language)}</span>'
        '<button type="button" data-copy="code">Copy</button></div>'
        f'<pre tabindex="0"><code>{coloured(code, language)}</code></pre></div>\n'
    )


def _cell(token: Token) -> str:
    """markdown-it says alignment by a style, which the page's policy forbids."""
    style = str(token.attrs.get("style", ""))
    side = style.removeprefix("text-align:")
    return f'<{token.tag} class="to-{side}">' if style else f"<{token.tag}>"


def _heading(token: Token) -> str:
    level = int(token.tag.removeprefix("h")) + _HEADINGS_ABOVE
    return f"h{min(level, _DEEPEST_HEADING)}"


def _is_inside_link(tokens: Sequence[Token], idx: int) -> bool:
    kinds = [token.type for token in tokens[:idx]]
    return kinds.count("link_open") > kinds.count("link_close")


class _Markdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        return _LINK.match(url) is not None


def _make_markdown() -> MarkdownIt:
    markdown = _Markdown(
        "commonmark",
        {"html": False, "breaks": True, "maxNesting": MAX_NESTING},
        renderer_cls=_Renderer,
    )
    markdown.enable(["table", "strikethrough"])
    markdown.use(tasklists_plugin)
    # Only what says so is a link: "main.py" and "README.md" are no web sites.
    markdown.options["linkify"] = True
    assert markdown.linkify is not None
    markdown.linkify.set({"fuzzy_link": False, "fuzzy_email": False})
    return markdown.enable("linkify")


_FORMATTER = HtmlFormatter(nowrap=True)
_MARKDOWN = _make_markdown()
_CLEANER = nh3.Cleaner(
    tags={
        *("p", "br", "hr", "h3", "h4", "h5", "h6", "blockquote", "ul", "ol", "li"),
        *("em", "strong", "s", "code", "pre", "a", "div", "span", "button", "input"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    },
    attributes={
        "a": {"href", "title", "class", "target"},
        "button": {"type", "class", "data-copy"},
        "div": {"class"},
        "input": {"type", "class", "checked", "disabled"},
        "li": {"class"},
        "ol": {"start"},
        "pre": {"tabindex"},
        "span": {"class"},
        "td": {"class"},
        "th": {"class"},
        "ul": {"class"},
    },
    set_tag_attribute_values={"a": {"target": "_blank"}},
    link_rel="noopener noreferrer nofollow",
    url_schemes={"http", "https", "mailto"},
)
