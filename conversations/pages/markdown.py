"""Render a message's Markdown to safe HTML, whatever the model wrote.

There are three layers of protection: markdown-it escapes all HTML, our render rules
generate the only tags (an image becomes a link, so that nothing is fetched from other
hosts), and nh3 removes everything that is not on its list. The HTML has classes and no
styles, as the page's Content-Security-Policy forbids inline styles.

While an answer streams, static/js/markdown.js renders it the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from itertools import islice
from typing import Any
from unicodedata import bidirectional

import nh3
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from mdit_py_plugins.tasklists import tasklists_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from conversations.pages.markdown_limits import is_too_heavy
from conversations.pages.markdown_math import math_plugin
from conversations.pages.reading.autolinks import AddressFinder
from conversations.pages.reading.link_marks import (
    ARTIFACT,
    CITED,
    Fence,
    Places,
    is_previewable,
)
from conversations.pages.reading.markdown_plugins import (
    break_plugin,
    citation_plugin,
    emphasis_plugin,
    footnotes_plugin,
)

WINDOW = 20_000  # characters; a longer text is rendered in independent pieces
LONG = WINDOW  # characters; a longer text is shown in parts
#: Characters of a part of a long text. A browser parses it without a pause.
PART = 8_000
LONGEST_BLOCK = 100_000  # characters of a block; a longer one is cut
#: Characters of a table that is shown in parts: its first rows come at once.
LONGEST_TABLE = 30_000
#: Characters of a code block. The time of a lexer may grow quadratically.
MAX_HIGHLIGHTED = 10_000
MAX_NESTING = 100  # content that is nested deeper is left out

_LINK = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_LINES = re.compile(r"[^\n]{1,20000}\n?|\n")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_FENCE_LINES = re.compile(r"^ {0,3}(?:`{3,}|~{3,})", re.MULTILINE)
#: The second line of a table.
_DELIMITERS = re.compile(r" {0,3}\|?[ \t]*:?-[-:| \t]*\n?$")
_TOP_LEVEL = re.compile(r"[^\s>*+\-\d]")  # neither begins nor continues a list item
#: Long repetitions, on which many lexers are slow.
_REPETITION = re.compile(r"(..?)\1{200}|\s{200}", re.DOTALL)
_COPY = 'data-copy="code">'  # before the English word on a cached button
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")
_DEEPEST_HEADING = 6
_HEADINGS_ABOVE = 2  # levels used by the page's title and the turn


@dataclass(frozen=True, slots=True)
class Part:
    """A rendered part of a long text."""

    html: SafeString
    next_start: int | None  # where the next part begins; None where this is the last


def render(text: str) -> SafeString:
    return render_beginning(text, len(text)).html


def render_beginning(text: str, length: int, places: Places | None = None) -> Part:
    """Render at least `length` characters as one part, which ends with the window
    that reaches them. `places` as in `render_part`."""
    html: list[str] = []
    for end, rendered in _render_windows(text, 0, places, LONGEST_BLOCK):
        html.append(rendered)
        if length <= end < len(text):
            return Part(mark_safe("".join(html)), end)
    return Part(mark_safe("".join(html)), None)


def render_part(text: str, start: int = 0, places: Places | None = None) -> Part:
    """Render `text`; of a long one PART characters, or some more, from `start` on.

    `start`: 0, or the `next_start` of the previous part. `places` makes links of the
    marks of footnotes, citations and artifacts.
    """
    html: list[str] = []
    for end, rendered in _render_windows(text, start, places, LONGEST_TABLE):
        html.append(rendered)
        if len(text) > LONG and start + PART <= end < len(text):
            return Part(mark_safe("".join(html)), end)
    return Part(mark_safe("".join(html)), None)


def render_linked(text: str, places: Places) -> SafeString:
    """The whole text, with links as in `render_part`."""
    windows = _render_windows(text, 0, places, LONGEST_BLOCK)
    return mark_safe("".join(html for _, html in windows))


def _render_windows(
    text: str, start: int, places: Places | None, longest_table: int
) -> Iterator[tuple[int, str]]:
    """The text from `start` on, piece by piece, each with its end position."""
    known = _count_artifacts(text, start) if places else 0
    for end, window, goes_on in _split_windows(text, start, longest_table):
        frame = _frame_of(text, goes_on)
        rendered: str = _render_cached(window)
        if _COPY in rendered:
            rendered = rendered.replace(f"{_COPY}Copy", _COPY + escape(gettext("Copy")))
        artifacts = known
        known += rendered.count(ARTIFACT)
        if places:
            rendered = places.link(rendered, window=end, artifacts=artifacts)
        yield end, frame.format(rendered)


def _frame_of(text: str, goes_on: bool) -> str:
    """A long text is in parts that the browser lays out when they are near. Scripts add
    the rows of a table that goes on in a part to the table before it."""
    if len(text) <= LONG:
        return "{}"
    name = "prose prose-part goes-on" if goes_on else "prose prose-part"
    return f'<div class="{name}">{{}}</div>'


def previewable_fences(text: str) -> Iterator[Fence]:
    """The blocks of code that `render_part` marks as artifacts, in their order."""
    for _, window, _ in _split_windows(text):
        if is_too_heavy(window):
            continue
        for token in _MARKDOWN.parse(window):
            fence = Fence(token.info.strip(), token.content)
            if token.type == "fence" and is_previewable(fence.language, fence.content):
                yield fence


def _count_artifacts(text: str, until: int) -> int:
    """How many artifacts the rendered text has before the position `until`."""
    if not until:
        return 0
    windows = _split_windows(text)
    before = (window for end, window, _ in windows if end <= until)
    return sum(_render_cached(window).count(ARTIFACT) for window in before)


def highlight_code(code: str, language: str) -> SafeString:
    """`code` as HTML with Pygments' classes; only escaped for unknown languages."""
    is_short = len(code) <= MAX_HIGHLIGHTED
    if is_short and (lexer := _lexer(language)) and not _REPETITION.search(code):
        return mark_safe(str(highlight(code, lexer, _FORMATTER)))
    return mark_safe(escape(code))


def _render(text: str) -> SafeString:
    if is_too_heavy(text):
        return mark_safe(f'<p class="plain" dir="auto">{escape(text)}</p>')
    html = CITED.sub("", _MARKDOWN.render(text))  # where a mark is no text: in code
    return mark_safe(_CLEANER.clean(html))


def _render_cached(text: str) -> SafeString:
    return _render_short(text) if len(text) <= WINDOW else _render(text)


@lru_cache(maxsize=512)
def _render_short(text: str) -> SafeString:
    return _render(text)


def _split_windows(
    text: str, start: int = 0, longest_table: int = LONGEST_TABLE
) -> Iterator[tuple[int, str, bool]]:
    """Pieces that render alone as they do within the text, each with its end position
    and whether it goes on with the table of the piece before.

    A piece begins with a block at the top level. Only a block longer than LONGEST_BLOCK
    or `longest_table` is cut, a code block or a table into several. Reference links do
    not work across pieces.
    """
    longest = PART if len(text) > LONG else WINDOW
    fence = _fence_at(text, start)
    head = "" if fence else _table_at(text, start)  # of the table that is open
    lines = [f"{fence}\n" if fence else head]
    goes_on = bool(head)
    size = cut = 0
    end = start  # of what is in `lines`
    is_after_blank = False
    before = ""
    for line in _LINES.findall(text, start):
        if is_after_blank and not fence and _TOP_LEVEL.match(line):
            cut = len(lines)
        fence = _fence_after(line, fence)
        head = "" if fence else _head_after(line, before, head)
        before = line
        is_after_blank = not line.strip()
        lines.append(line)
        end += len(line)
        size += len(line)
        if size > longest and cut:
            rest_size = sum(map(len, lines[cut:]))
            yield end - rest_size, "".join(lines[:cut]), goes_on
            lines, size, cut, goes_on = lines[cut:], rest_size, 0, False
        elif size > (longest_table if head else LONGEST_BLOCK):
            yield end, "".join([*lines, f"\n{fence}"]), goes_on
            goes_on = bool(head) and _is_row_at(text, end)
            lines = [f"{fence}\n" if fence else head if goes_on else ""]
            size = cut = 0
    if size:
        yield end, "".join(lines), goes_on


def _fence_at(text: str, end: int) -> str:
    fence = ""
    for found in _FENCE_LINES.finditer(text, 0, end):
        fence = _fence_after(found.group(), fence)
    return fence


def _fence_after(line: str, fence: str) -> str:
    """The fence that is open after the line; "" for none."""
    if not (found := _FENCE.match(line)):
        return fence
    marks = found.group(1)
    if not fence:
        return marks
    return "" if marks.startswith(fence) else fence


def _table_at(text: str, end: int) -> str:
    """The first two lines of the table that goes on at `end`; "" for none."""
    if not _is_row_at(text, end):
        return ""
    head = before = ""
    for line in _LINES.findall(text, text.rfind("\n\n", 0, end) + 1, end):
        head = _head_after(line, before, head)
        before = line
    return head


def _is_row_at(text: str, position: int) -> bool:
    """Whether a line begins there that may be a row of a table."""
    row = _LINES.match(text, position)
    is_new_line = text[position - 1 : position] == "\n"
    return is_new_line and row is not None and "|" in row.group()


def _head_after(line: str, before: str, head: str) -> str:
    """The first two lines of the table that `line` is in; "" for none."""
    if "|" not in line:
        return ""
    if head or not _DELIMITERS.match(line) or _columns(line) != _columns(before):
        return head
    return before + line


def _columns(line: str) -> int:
    return line.strip().strip("|").replace("\\|", "").count("|")


@lru_cache(maxsize=128)
def _lexer(language: str) -> Any:
    try:
        # Stripping would eat blank lines that belong to the code.
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


class _Renderer(RendererHTML):
    """Own HTML for code, tables, headings and images."""

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
        return f"<{tokens[idx].tag}{_direction(tokens[idx])}>"

    def table_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any
    ) -> str:
        direction = ' dir="rtl"' if tokens[idx].attrs.get("dir") else ""
        return f'<div class="table-scroll"><table{direction}>'

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
    code = CITED.sub("", code)
    preview = ARTIFACT if is_previewable(language, code) else ""
    return (
        f'<div class="code"><div class="code-head"><span>{escape(language)}</span>'
        f'{preview}<button type="button" class="only-scripted" {_COPY}Copy</button>'
        "</div>"
        f'<pre tabindex="0" dir="ltr"><code>{highlight_code(code, language)}'
        "</code></pre>"
        "</div>\n"
    )


def _cell(token: Token) -> str:
    """A cell's tag, aligned by a class, as CSP forbids markdown-it's inline style."""
    style = str(token.attrs.get("style", ""))
    side = style.removeprefix("text-align:")
    aligned = f' class="to-{side}"' if style else ""
    return f"<{token.tag}{aligned}{_direction(token)}>"


def _direction(token: Token) -> str:
    return ' dir="auto"' if token.attrs.get("dir") else ""


def _set_heading_levels(state: StateCore) -> None:
    """Close the gaps between levels: an answer that begins with `##` and goes on with
    `####` has headings of the first and the second level, so that the page skips none.
    """
    above: list[int] = []
    for token in state.tokens:
        if token.type not in ("heading_open", "heading_close"):
            continue
        if token.type == "heading_open":
            written = int(token.tag.removeprefix("h"))
            while above and above[-1] >= written:
                above.pop()
            above.append(written)
        token.tag = f"h{min(len(above) + _HEADINGS_ABOVE, _DEEPEST_HEADING)}"


def _is_inside_link(tokens: Sequence[Token], idx: int) -> bool:
    kinds = [token.type for token in tokens[:idx]]
    return kinds.count("link_open") > kinds.count("link_close")


_BLOCKS = {
    *("paragraph_open", "heading_open", "blockquote_open"),
    *("bullet_list_open", "ordered_list_open"),
}


def _set_directions(state: StateCore) -> None:
    """Set `dir="auto"` on top-level blocks and table cells. Blocks inside them inherit
    it: `dir="auto"` ignores the text of descendants that have their own `dir`."""
    for token in state.tokens:
        is_cell = token.type in ("th_open", "td_open")
        if is_cell or (token.level == 0 and token.type in _BLOCKS):
            token.attrSet("dir", "auto")
    for number, token in enumerate(state.tokens):
        if token.type == "table_open" and _runs_right_to_left(state.tokens, number):
            token.attrSet("dir", "rtl")


def _runs_right_to_left(tokens: Sequence[Token], table: int) -> bool:
    """Whether the first letter of a table's head is of a script from right to left.
    `dir="auto"` on the table ignores text in cells that have a `dir` of their own."""
    for token in islice(tokens, table, None):
        if token.type == "thead_close":
            break
        for letter in token.content:
            if (kind := bidirectional(letter)) in ("L", "R", "AL"):
                return kind != "L"
    return False


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
    markdown.use(tasklists_plugin, label=True)
    markdown.use(footnotes_plugin)
    markdown.use(citation_plugin)
    markdown.use(break_plugin)
    markdown.use(emphasis_plugin)
    markdown.use(math_plugin)
    markdown.core.ruler.push("directions", _set_directions)
    markdown.core.ruler.push("heading_levels", _set_heading_levels)
    # Link only URLs with a scheme: "main.py" and "README.md" are not web sites.
    markdown.options["linkify"] = True
    markdown.linkify = AddressFinder()
    markdown.linkify.set({"fuzzy_link": False, "fuzzy_email": False})
    return markdown.enable("linkify")


_FORMATTER = HtmlFormatter(nowrap=True)
_MARKDOWN = _make_markdown()
_CLEANER = nh3.Cleaner(
    tags={
        *("p", "br", "hr", "h3", "h4", "h5", "h6", "blockquote", "ul", "ol", "li"),
        *("em", "strong", "s", "code", "pre", "a", "div", "span", "button", "input"),
        *("label", "sup"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    },
    attributes={
        "a": {"href", "title", "class", "target"},
        "button": {"type", "class", "data-copy"},
        "blockquote": {"dir"},
        "div": {"class", "dir"},
        **{f"h{level}": {"dir"} for level in range(3, 7)},
        "input": {"type", "class", "checked", "disabled"},
        "li": {"class"},
        "ol": {"start", "class", "dir"},
        "p": {"dir"},
        "pre": {"tabindex", "dir"},
        "span": {"class", "dir"},
        "sup": {"class"},
        "table": {"dir"},
        "td": {"class", "dir"},
        "th": {"class", "dir"},
        "ul": {"class", "dir"},
    },
    set_tag_attribute_values={"a": {"target": "_blank"}},
    link_rel="noopener noreferrer nofollow",
    url_schemes={"http", "https", "mailto"},
)
