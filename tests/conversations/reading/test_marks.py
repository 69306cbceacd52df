from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.pages.markdown import (
    PART,
    previewable_fences,
    render,
    render_part,
)
from conversations.pages.reading.citations import citations_of, marked_text
from conversations.pages.reading.link_marks import CITED, Places, mark_citations
from llm.wire.items import CITED_TEXT, message

PLACES = Places("resp_1", "0", citations=3)
HTML = "```html\n<p>\n1\n2\n3\n4\n5\n</p>\n```\n\n"


def linked(text: str, start: int = 0) -> str:
    return str(render_part(text, start, PLACES).html)


# Citations


def cited(text: str, *notes: tuple[str, int, int]) -> dict[str, object]:
    item = message("assistant", text)
    item["content"][0]["annotations"] = [
        {"type": "url_citation", "url": url, "start_index": a, "end_index": b}
        for url, a, b in notes
    ]
    return item


def test_a_citation_is_a_number_that_leads_to_its_source_with_the_quoted_place():
    item = cited("It rains. It pours.", ("https://a.test/1", 0, 9))
    html = linked(marked_text(item))
    assert 'It rains.<sup class="cite"><a href="#resp_1-0-source-1"' in html
    [source] = citations_of(item)
    assert source.quotes == ["It rains."]


def test_a_source_is_quoted_in_its_own_words_where_they_are_known():
    item = cited("It rains.", ("https://a.test/1", 0, 9), ("https://a.test/1", 0, 9))
    for note in item["content"][0]["annotations"]:  # type: ignore[index]
        note[CITED_TEXT] = "Rain  tomorrow\nin Oslo"
    [source] = citations_of(item)
    assert source.quotes == ["Rain tomorrow in Oslo"]


@pytest.mark.parametrize("words", [5, {"text": "Rain"}, ["Rain"], True, None, ""])
def test_what_is_no_quotation_is_not_shown_as_one(words: object):
    item = cited("It rains.", ("https://a.test/1", 0, 9))
    item["content"][0]["annotations"][0][CITED_TEXT] = words  # type: ignore[index]
    [source] = citations_of(item)
    assert source.quotes == ["It rains."]


def test_marks_of_markdown_are_left_out_of_a_quoted_place():
    text = "It **rains** in [Oslo](https://o.test), says `met`, 2*3 [sic]."
    [source] = citations_of(cited(text, ("https://a.test/1", 0, len(text))))
    assert source.quotes == ["It rains in Oslo, says met, 2*3 [sic]."]


def test_files_are_sources_with_their_names_and_quoted_places():
    item = cited("It rains.", ("https://a.test/1", 0, 9))
    note = {"type": "file_citation", "filename": "Sky.pdf", CITED_TEXT: "Blue."}
    nameless = {"type": "file_citation", "filename": "", "index": 0}
    item["content"][0]["annotations"] += [note, note, nameless]  # type: ignore[index]
    page, file = citations_of(item)
    assert (page.url, file.url) == ("https://a.test/1", "")
    assert (file.title, file.quotes) == ("Sky.pdf", ["Blue."])
    assert re.findall(r">(\d)</a></sup>", linked(marked_text(item))) == ["1"]


FILE = {"type": "file_citation", "file_id": "file-1", "filename": "Pay.pdf"}


@pytest.mark.parametrize(
    ("said", "note", "words"),
    [
        ("Hi. Pay comes on the 25th|. Later not.", {}, "Pay comes on the 25th"),
        ("One line\n- **Pay** comes |", {}, "- Pay comes"),
        ("Pay comes|", {}, "Pay comes"),
        ("工资二十五号。每月发|。", {}, "每月发"),
        ('"Why?" Because 3.5 is less|.', {}, "Because 3.5 is less"),
        ("Yes. **Pay** comes: *late*|", {}, "Pay comes: *late*"),
        ("Es stieg um 5 %.|", {}, "Es stieg um 5 %."),
        ("Vraiment ?|", {}, "Vraiment ?"),
        ("« mot ».|", {}, "« mot »."),
        ("I know C++.|", {}, "I know C++."),
        ("Call `foo()`.|", {}, "Call foo()."),
        ('He said **"yes."**|', {}, 'He said "yes."'),
        ("Great 🎉|", {}, "Great 🎉"),
        ("Rain. It pours.|", {"start_index": 6, "end_index": 15}, "It pours."),
    ],
)
def test_a_cited_file_is_a_number_in_the_text_with_the_quoted_place(
    said: str, note: dict[str, int], words: str
):
    """`|` marks the position that OpenAI sends as `index`; Anthropic sends two."""
    index = 1 if note else said.index("|")
    item = message("assistant", said.replace("|", ""))
    item["content"][0]["annotations"] = [{**FILE, "index": index, **note}]
    html = linked(marked_text(item))  # type: ignore[arg-type]
    assert 'href="#resp_1-0-source-1"' in html
    [source] = citations_of(item)  # type: ignore[arg-type]
    assert source.quotes == [words]


@pytest.mark.parametrize(
    "note",
    [
        {"index": 0},
        {"index": 1},  # the second file: a number within a word
        {"index": 99},
        {"index": -1},
        {"index": None},
        {"index": True},
        {"index": 5, CITED_TEXT: "Blue."},  # the fifth file of one that quotes it
        {},
    ],
)
def test_a_file_without_a_usable_place_is_only_listed(note: dict[str, object]):
    item = message("assistant", "Sunny days.")
    item["content"][0]["annotations"] = [{**FILE, **note}]
    assert marked_text(item) == "Sunny days."  # type: ignore[arg-type]
    assert citations_of(item)[0].title == "Pay.pdf"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("# Head", 1),
        ("A b # Head", 5),
        ("1. Sunny.\n2. B", 2),
        ("1. Sunny.\n2. B", 12),
        ("12345) Sunny", 6),
        ("It is sunny.", 2),
        ("Days | sunny", 6),
    ],
)
def test_a_file_is_cited_only_behind_a_word_of_a_sentence(text: str, index: int):
    item = message("assistant", text)
    item["content"][0]["annotations"] = [{**FILE, "index": index}]
    assert marked_text(item) == text  # type: ignore[arg-type]
    assert citations_of(item)[0].quotes == []  # type: ignore[arg-type]


def test_pages_cited_twice_keep_their_number():
    one, two = "https://a.test", "https://b.test"
    item = cited("aa bb cc", (one, 0, 2), (two, 3, 5), (one, 6, 8))
    assert re.findall(r">(\d)</a></sup>", linked(marked_text(item))) == ["1", "2", "1"]
    assert [c.url for c in citations_of(item)] == [one, two]


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, 0), (5, 2), (-3, 4), (0, 10**9), (None, 4), ("0", "4"), (True, 4)],
)
def test_a_citation_without_a_usable_place_is_only_listed(start: object, end: object):
    item = cited("some words", ("https://a.test", start, end))  # type: ignore[arg-type]
    assert marked_text(item) == "some words"
    assert citations_of(item)[0].quotes == []


def test_places_count_from_their_own_part_of_the_message():
    item = cited("First. ")
    second = cited("Second.", ("https://a.test", 0, 7))
    item["content"] += second["content"]  # type: ignore[operator]
    assert CITED.sub("#", marked_text(item)) == "First. Second.#"  # type: ignore[arg-type]


def test_a_mark_breaks_no_address_code_or_table():
    text = (
        "See [x](https://a.test/long) and https://b.test/path now.\n\n"
        "`code here`\n\n```py\nx = 1\n```\n\n|a|b|\n|-|-|\n|1|2|\n\n"
        "# Head\n\n1. One\n2) Two\n   - ### Three\n\n+ Four\n\n> 1. # Five\n\n"
        "- ```py\n  y = 2\n  ```\n"
    )
    plain = render(text)
    for position in range(len(text) + 1):
        html = str(render(mark_citations(text, [(position, 1)])))
        assert re.sub(r'<sup class="cite">1</sup>', "", html) == plain, position


@given(
    st.text(alphabet="ab {}`\n|-*[]()1.é", max_size=60),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=5),
)
def test_marks_add_nothing_else_to_a_text(text: str, marks: list[tuple[int, int]]):
    marked = mark_citations(text, [(min(at, len(text)), n) for at, n in marks])
    assert CITED.sub("", marked) == text


def test_a_model_cannot_forge_a_citation_beyond_its_sources():
    html = linked("a {\x029\x03} b {\x021\x03} c")
    assert "source-9" not in html
    assert '<sup class="cite">1</sup>' not in linked('<sup class="cite">1</sup>')


# Footnotes


def test_footnotes_lead_to_the_note_and_back():
    html = linked("One[^a], two[^b], one[^a].\n\n[^a]: *First.*\n[^b]: Second.")
    references = re.findall(r'href="#(resp_1-0-\d+-note-\d)"', html)
    notes = re.findall(r'<li class="note" id="([^"]+)"', html)
    assert len(references) == 3
    assert set(references) == set(notes)
    backs = re.findall(r'class="note-back" href="#([^"]+)"', html)
    ids = re.findall(r'<a id="([^"]+)"', html)
    assert backs == ids
    assert len(set(ids)) == len(ids) == 2
    assert "<em>First.</em>" in html


def test_two_messages_have_no_element_id_in_common():
    text = "One[^a].\n\n[^a]: First."
    ids = [
        set(
            re.findall(
                r' id="([^"]+)"', str(render_part(text, 0, Places("t", key)).html)
            )
        )
        for key in ("0", "1")
    ]
    assert not ids[0] & ids[1]


def test_a_reference_without_a_note_stays_as_it_is():
    assert "[^x]" in render("see[^x]")


@pytest.mark.slow
@pytest.mark.smoke
def test_many_footnotes_are_rendered_in_time():
    text = "".join(f"a[^{n}] " for n in range(3000)) + "\n\n"
    text += "".join(f"[^{n}]: note\n" for n in range(3000))
    assert render(text)


# Artifacts


def test_blocks_of_html_svg_and_markdown_have_a_link_to_their_preview():
    text = "\n".join(
        f"```{kind}\n" + "line\n" * 6 + "```\n"
        for kind in ("html", "svg", "Markdown", "md")
    )
    numbers = re.findall(r'href="/artifacts/resp_1/0/(\d)/"', linked(text))
    assert numbers == ["0", "1", "2", "3"]
    assert [f.kind for f in previewable_fences(text)] == [
        "html",
        "svg",
        "markdown",
        "markdown",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "```python\n1\n2\n3\n4\n5\n6\n```",
        "```html\n<p>\n```",
        '<span class="artifact-here"></span>',
        '`<span class="artifact-here"></span>`',
        "```html\n" + "<p>\n" * 30_000 + "```",
    ],
)
def test_other_blocks_have_none(text: str):
    assert "/artifacts/" not in linked(text)
    assert list(previewable_fences(text)) == []


@pytest.mark.slow
@pytest.mark.smoke
def test_artifacts_keep_their_numbers_in_later_parts_of_a_long_answer():
    text = (HTML + "Words of the answer.\n\n" * 40) * (10 * PART // 400)
    found, start = [], 0
    while True:
        part = render_part(text, start, PLACES)
        found += re.findall(r"/artifacts/resp_1/0/(\d+)/", part.html)
        if part.next_start is None:
            break
        start = part.next_start
    assert found == [str(n) for n in range(len(list(previewable_fences(text))))]
    assert len(found) > 20


@pytest.mark.parametrize("filler", [" ", "> ", "- ", "-", "\t", "1. "])
def test_a_huge_line_is_read_once(filler: str):
    """Read once for each of its blanks, this would take hours."""
    text = filler * (1_000_000 // len(filler)) + "word"
    assert mark_citations(text, [(len(text), 1)]) == text + "{\x021\x03}"
