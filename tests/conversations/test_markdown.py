from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.markdown import PLAIN_BEYOND, coloured, render

LINK = 'target="_blank" rel="noopener noreferrer nofollow"'


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("*a* **b** ~~c~~ `d`", "<em>a</em> <strong>b</strong> <s>c</s>"),
        ("one\ntwo", "one<br>\ntwo"),
        ("# Title", "<h3>Title</h3>"),
        ("##### Small", "<h6>Small</h6>"),
        ("3. three", '<ol start="3">'),
        (
            "[x](https://a.test/?b=1&c=2)",
            f'<a href="https://a.test/?b=1&amp;c=2" {LINK}',
        ),
        ("see https://a.test/b.", f'<a href="https://a.test/b" {LINK}>'),
        ("<mailto:a@b.test>", f'<a href="mailto:a@b.test" {LINK}>'),
        ("|a|b|\n|-|-:|\n|1|2|", '<td class="to-right">2</td>'),
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
    assert 'data-copy="code"' in html


def test_code_of_an_unknown_language_is_shown_as_it_is():
    assert "a &lt; b" in render("```klingon\na < b\n```")


def test_a_block_not_closed_yet_is_a_block():
    assert "<pre" in render("```python\nprint(1)")


def test_a_text_beyond_all_measure_is_shown_plain():
    html = render("**x** <b>" * PLAIN_BEYOND)
    assert html.startswith('<p class="plain">**x** &lt;b&gt;')


def test_colours_keep_every_character():
    code = '\n\n{"a": [1, null]}\n\n'
    shown = re.sub(r"<[^>]+>", "", coloured(code, "json"))
    assert shown.replace("&quot;", '"') == code


TRICKY = st.text(st.sampled_from("a1 \n\t*_`~[]()!<>|#-+.\"'&;:\\/"), max_size=120)


@given(TRICKY)
def test_whatever_is_written_only_known_tags_come_out(text: str):
    html = render(text)
    names = set(re.findall(r"</?([a-z0-9]+)", html))
    assert not names & {"script", "img", "iframe", "style", "svg", "object", "form"}
    assert "style=" not in re.sub(r">[^<]*<", "><", html)
