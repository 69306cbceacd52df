from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.pages.markdown import (
    LONG,
    LONGEST_BLOCK,
    LONGEST_TABLE,
    PART,
    WINDOW,
    Part,
    highlight_code,
    render,
    render_beginning,
    render_part,
)

LINK = 'target="_blank" rel="noopener noreferrer nofollow"'


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("*a* **b** ~~c~~ `d`", "<em>a</em> <strong>b</strong> <s>c</s>"),
        ("one\ntwo", "one<br>\ntwo"),
        ("# Title", '<h3 dir="auto">Title</h3>'),
        ("##### Small", '<h3 dir="auto">Small</h3>'),
        ("# A\n#### B\n# C\n## D", '<h4 dir="auto">B</h4>\n<h3 dir="auto">C</h3>'),
        ("# A\n#### B\n# C\n## D", '<h3 dir="auto">C</h3>\n<h4 dir="auto">D</h4>'),
        ("# A\n## B\n### C\n#### D\n##### E", '<h6 dir="auto">E</h6>'),
        ("3. three", '<ol start="3" dir="auto">'),
        (
            "[x](https://a.test/?b=1&c=2)",
            f'<a href="https://a.test/?b=1&amp;c=2" {LINK}',
        ),
        ("see https://a.test/b.", f'<a href="https://a.test/b" {LINK}>'),
        ("<mailto:a@b.test>", f'<a href="mailto:a@b.test" {LINK}>'),
        ("|a|b|\n|-|-:|\n|1|2|", '<td class="to-right" dir="auto">2</td>'),
        ("- [x] done", 'checked="checked"'),
        ("    code", "<pre"),
    ],
)
def test_markdown_is_rendered(text: str, html: str):
    assert html in render(text)


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "a <b onclick='x()'>b</b>",
        "<!-- a --><style>*{}</style>",
        "```<script>\n</code></pre><script>alert(1)</script>\n```",
        '```x"onload="y\ncode\n```',
        "| <iframe> |\n|---|\n| <object> |",
        '[a](https://a.test/"onmouseover="x)',
        '![a"onerror="x](https://a.test/x.png "t\'\\"onload=x")',
    ],
)
def test_html_is_shown_and_never_obeyed(text: str):
    html = render(text)
    assert not re.search(r"<(script|img|b|style|iframe|object)\b", html)
    assert not re.search(r"<[^>]*\son\w+=", html)


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "java&#x09;script:alert(1)",
        "data:text/html,<script>alert(1)</script>",
        "vbscript:x",
        "file:///etc/passwd",
        "/admin/",
        "//evil.test",
    ],
)
@pytest.mark.parametrize("form", ["[a]({})", "![a]({})", "<{}>", "[a]: {}\n\n[a]"])
def test_only_web_and_mail_addresses_become_links(form: str, address: str):
    html = render(form.format(address))
    assert "href" not in html
    assert "src=" not in html


def test_an_image_becomes_a_link_so_that_nothing_is_fetched():
    html = render("![the *sea*](https://a.test/sea.png)")
    assert "<img" not in html
    assert ">the sea</a>" in html
    assert 'href="https://a.test/sea.png"' in html


def test_an_image_without_words_is_a_link_that_is_seen():
    html = render("![](https://a.test/sea.png)")
    assert "<img" not in html
    assert ">image</a>" in html


def test_an_image_inside_a_link_leaves_the_link():
    html = render("[![sea](https://a.test/sea.png)](https://b.test)")
    assert html.count("<a ") == 1
    assert 'href="https://b.test"' in html


def test_file_names_are_no_links():
    assert "href" not in render("main.py, README.md, a@b.de and example.com")


def test_code_names_its_language_and_is_coloured_by_classes():
    html = render("```python\ndef f(): pass\n```")
    assert "<span>python</span>" in html
    assert '<span class="k">def</span>' in html
    assert "style=" not in html
    assert 'class="only-scripted" data-copy="code"' in html


def test_code_of_an_unknown_language_is_shown_as_it_is():
    assert "a &lt; b" in render("```klingon\na < b\n```")


def test_a_block_not_closed_yet_is_a_block():
    assert "<pre" in render("```python\nprint(1)")


CASES = json.loads((Path(__file__).parents[2] / "js/math_cases.json").read_text())
_FORMULA = re.compile(r'<(span|div) class="math" dir="ltr">(.*?)</\1>', re.DOTALL)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"])
def test_formulas_stay_as_they_are_written(case: Any):
    found = [unescape(text) for _, text in _FORMULA.findall(render(case["text"]))]
    assert found == case["formulas"]


def test_each_block_has_the_direction_of_its_first_letter_and_code_runs_to_the_right():
    html = render(
        "שלום\n\nhello\n\n- א\n  - b\n\n> ג\n\n```\nד\n```\n|ה|b|\n|-|-|\n|c|ו|"
    )
    assert html.count('<p dir="auto">') == 2
    assert html.count('<ul dir="auto">') == 1  # the inner one goes with the outer
    assert '<blockquote dir="auto">\n<p>' in html
    assert '<pre tabindex="0" dir="ltr">' in html
    assert html.count('<th dir="auto">') == html.count('<td dir="auto">') == 2


ADDRESSES = json.loads(
    (Path(__file__).parents[2] / "js/address_cases.json").read_text()
)


@pytest.mark.parametrize(("written", "address"), ADDRESSES)
def test_an_address_ends_before_its_sentence_does(written: str, address: str):
    html = str(render(written))
    assert re.findall(r'<a href="([^"]*)"[^>]*>([^<]*)</a>', html) == [(address,) * 2]
    assert unescape(re.sub("<[^>]*>", "", html)).strip() == written.strip()


@pytest.mark.parametrize(
    ("written", "strong"),
    [
        ("**注意：**请先备份", "注意："),
        ("这是**“重点”**内容", "“重点”"),
        ("これは**「重要」**です", "「重要」"),
        ("이것은 **'핵심'**입니다", "'핵심'"),
        ("请看**a**和b", "a"),
        ("**作者：**John", "作者："),
        ("**版本：**3.11", "版本："),
        ("作者：**John**", "John"),
        ("**作者：**John，**版本：**3", "版本："),
    ],
)
def test_emphasis_needs_no_blanks_where_a_script_has_none(written: str, strong: str):
    assert f"<strong>{strong}</strong>" in unescape(str(render(written)))


BLOCKS = json.loads((Path(__file__).parents[2] / "js/block_cases.json").read_text())


@pytest.mark.parametrize(("written", "expected"), BLOCKS)
def test_blocks_are_those_that_a_browser_shows_while_they_stream(
    written: str, expected: str
):
    html = re.sub(r'<div class="code-head">.*?</div>', "", str(render(written)))
    html = re.sub(r'<(\w+)(?:( start="\d+")|[^>])*>', r"<\1\2>", html)
    html = unescape(re.sub(r"</?(span|label)>|\n", "", html))
    assert re.sub(" *(<[^>]*>) *", r"\1", html) == expected


def test_footnotes_have_the_direction_of_their_first_letter():
    assert '<ol dir="auto">\n<li class="note">' in render("a[^1]\n\n[^1]: שלום")


def test_no_page_looks_for_the_direction_of_a_whole_answer():
    """The browser would do it again for each row of a table: seconds for thousands."""
    templates = Path(__file__).parents[3] / "templates"
    for path in templates.rglob("*.html"):
        text = path.read_text()
        for box in re.findall(r'<[^>]*class="[^"]*\bprose\b[^>]*', text):
            assert 'dir="auto"' not in box, path


@pytest.mark.parametrize(
    ("head", "tag"),
    [
        ("ה|b", '<table dir="rtl">'),
        ("1|**ع**", '<table dir="rtl">'),
        ("b|ה", "<table>"),
        ("1|2", "<table>"),
    ],
)
def test_a_table_begins_on_the_side_of_its_head(head: str, tag: str):
    assert tag in render(f"|{head}|\n|-|-|\n|ו|c|")


def test_checkboxes_of_a_task_list_are_labelled_by_their_text():
    html = render("- [x] *done*\n- [ ] to do")
    assert re.search(r"<label><input [^>]*checked[^>]*> <em>done</em></label>", html)
    assert re.search(r"<label><input [^>]*> to do</label>", html)


def _long_text(size: int) -> str:
    block = (
        "# A *title*\n\nSome **words**\n\n- a\n\n  b\n- c\n\n```py\nx = 1\n\ny\n```\n\n"
    )
    return block * (size // len(block) + 1)


@pytest.mark.slow
@pytest.mark.smoke
def test_a_long_text_is_still_rendered_as_markdown():
    text = _long_text(5 * WINDOW)
    html = render(text)
    for part, times in [("<h3 ", 1), ("<strong>", 1), ("<ul ", 1), ("<pre ", 1)]:
        assert html.count(part) == times * text.count("# A")


def test_a_long_text_is_shown_in_parts_that_are_the_whole():
    text = _long_text(LONG + 3 * PART)
    html, start = "", 0
    while start is not None:
        part = render_part(text, start)
        html += part.html
        assert part.next_start is None or part.next_start - start < 2 * PART
        start = part.next_start
    assert html == render(text)


@pytest.mark.parametrize(
    "text",
    [
        "```\n" + "code *line*\n\n" * (LONGEST_BLOCK // 6),
        "word " * (LONGEST_BLOCK // 2),
        "x" * 2 * LONGEST_BLOCK,
        pytest.param("- item\n" * (LONGEST_BLOCK // 3), marks=pytest.mark.slow),
    ],
    ids=["code", "line", "word", "list"],
)
def test_a_block_that_is_too_long_is_cut_and_loses_nothing(text: str):
    shown, start, parts = "", 0, 0
    while start is not None:
        part = render_part(text, start)
        shown += unescape(re.sub(r"<[^>]+>", "", part.html))
        start, parts = part.next_start, parts + 1
    assert parts > 1
    letters = re.compile(r"\W+")
    text_given = letters.sub("", text).replace("Copy", "")
    assert letters.sub("", shown).replace("Copy", "") == text_given


def test_a_table_that_is_too_long_goes_on_as_a_table():
    rows = [f"| {number} | row-{number} |" for number in range(9_000)]
    table = "\n".join(["# | Name", "--:|---", *rows])
    text = f"Before | it\n\n{table}\n\nBehind | it\n"
    shown, start, parts = [], 0, []
    while start is not None:
        part = render_part(text, start)
        parts.append(part.html)
        shown += re.findall(r'<td class="to-right" dir="auto">(\d+)</td>', part.html)
        start = part.next_start
    assert shown == [str(number) for number in range(9_000)]
    for html in parts:
        assert "|" not in html.replace("Before | it", "").replace("Behind | it", "")
    assert "goes-on" not in parts[0]
    continued = [html for html in parts if "<table>" in html][1:]
    assert continued
    assert all('<div class="prose prose-part goes-on">' in each for each in continued)


def test_the_first_rows_of_a_long_table_do_not_wait_for_the_others():
    rows = [f"| {number} | row-{number} |" for number in range(5_000)]
    table = "\n".join(["# | Name", "--:|---", *rows])
    assert len(table) > LONGEST_TABLE
    part = render_part(table)
    assert part.next_start is not None
    assert part.next_start < LONGEST_TABLE + 100
    assert render(table).count("<table>") == 1  # on paper its columns have one width
    assert render_beginning(table, 10) == Part(render(table), None)
    text = f"{'Words. ' * 20}\n\n" * 300
    beginning = render_beginning(text, 30_000)
    assert beginning.next_start is not None
    assert 30_000 <= beginning.next_start < 50_000
    assert render(text).startswith(beginning.html)


@pytest.mark.parametrize("behind", ["", "\n", "\nWords", "Words"])
def test_a_table_that_ends_where_it_is_cut_is_not_repeated(behind: str):
    head = "a|b\n-|-\n"
    row = "1|2\n"
    for length, whole in ((LONGEST_BLOCK, render), (LONGEST_TABLE, parts_of)):
        rows = row * ((length - len(head)) // len(row) + 1)
        html = whole(f"{head}{rows}{behind}")
        assert html.count("<thead>") == 1
        assert "goes-on" not in html


def parts_of(text: str) -> str:
    html, start = "", 0
    while start is not None:
        part = render_part(text, start)
        html, start = html + part.html, part.next_start
    return html


def test_highlighting_keeps_every_character():
    code = '\n\n{"a": [1, null]}\n\n'
    shown = re.sub(r"<[^>]+>", "", highlight_code(code, "json"))
    assert shown.replace("&quot;", '"') == code


TRICKY = st.text(st.sampled_from("a1 \n\t*_`~[]()!<>|#-+.\"'&;:\\/"), max_size=120)


@given(TRICKY)
def test_whatever_is_written_only_known_tags_come_out(text: str):
    html = render(text)
    names = set(re.findall(r"</?([a-z0-9]+)", html))
    assert not names & {"script", "img", "iframe", "style", "svg", "object", "form"}
    assert "style=" not in re.sub(r">[^<]*<", "><", html)


@pytest.mark.parametrize(
    "code",
    ["x = 1\n" * 2_000, "\n" * 201, "a." * 201, " \n\t" * 100, "x = 1\n" + "-" * 402],
)
def test_code_that_lexers_are_slow_at_is_shown_as_it_is(code: str):
    assert highlight_code(code, "python") == code


def test_code_with_a_ruler_is_coloured():
    assert "<span" in highlight_code("# " + "-" * 100 + "\nx = 1\n", "python")


@pytest.mark.parametrize("unit", ["*a ", "_a ", "~a "])
def test_a_paragraph_of_marks_is_shown_as_it_is(unit: str):
    text = unit * 5_001
    assert render(text) == f'<p class="plain" dir="auto">{text}</p>'
    assert "<p" in render(f"{unit * 100}\n\n" * 100)
    assert 'class="plain"' not in render(f"{unit * 100}\n\n" * 100)
