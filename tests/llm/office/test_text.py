"""What models read of Office files."""

from __future__ import annotations

import zipfile
from contextlib import suppress
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm.office.package import MAX_DEPTH, MAX_ELEMENTS, MAX_UNPACKED, Unreadable
from llm.office.text import ONLY_PICTURES, extract_text, is_office_file
from llm.office.written_text import CUT
from tests.llm.office.made import docx, package, paragraph, pptx, shape, xlsx

LIMIT = 1_000_000
DOCUMENT = docx(paragraph("Hello"))


def table_row(content: str) -> str:
    return f"<w:tbl><w:tr>{content}</w:tr></w:tbl>"


def reason(data: bytes) -> str:
    with pytest.raises(Unreadable) as caught:
        extract_text(data, LIMIT)
    return caught.value.reason


def test_a_document_has_headings_lists_tables_and_notes():
    cell = "<w:tc>{}</w:tc>".format
    row = "<w:tr>{}</w:tr>".format
    table = row(cell(paragraph("Name")) + cell(paragraph("Town"))) + row(
        cell(paragraph("Ada") + paragraph("King")) + cell("<w:p/>")
    )
    body = (
        paragraph("Report", '<w:pStyle w:val="berschrift2"/>')
        + paragraph("Mine", '<w:pStyle w:val="Eigene"/>')
        + "<w:p><w:pPr><w:tabs><w:tab w:pos='9'/></w:tabs></w:pPr>"
        "<w:r><w:t>Fish &amp; </w:t></w:r><w:r><w:t>chips</w:t><w:br/></w:r>"
        "<w:del><w:r><w:delText>never</w:delText></w:r></w:del>"
        '<w:r><w:t>cost</w:t><w:footnoteReference w:id="2"/></w:r></w:p>'
        + paragraph("One", '<w:numPr><w:ilvl w:val="0"/></w:numPr>')
        + f"<w:tbl>{table}</w:tbl>"
        "<w:p><w:r><mc:AlternateContent><mc:Choice><w:txbxContent>"
        + paragraph("Box")
        + "</w:txbxContent></mc:Choice><mc:Fallback><w:txbxContent>"
        + paragraph("Box")
        + "</w:txbxContent></mc:Fallback></mc:AlternateContent></w:r></w:p>"
    )
    assert extract_text(docx(body), LIMIT) == (
        "## Report\n\n\n## Mine\n\nFish & chips\ncost[^2]\n- One\n\nName\tTown\n"
        "Ada King\t\n\nBox\n\n[^2]: A note.\n"
    )


def test_a_workbook_has_its_sheets_as_lines_between_tabulators():
    strings = (
        "<si><t>Item</t></si><si><r><t>Pa</t></r><r><t>per\nA4</t></r>"
        "<rPh><t>reading</t></rPh></si>"
    )
    sheet = (
        '<row><c r="A1" t="s"><v>0</v></c><c r="C1" t="inlineStr">'
        "<is><t>On</t></is></c></row><row/><row/>"
        '<row><c r="A4" t="s"><v>1</v></c><c r="B4" s="2">'
        '<f>1*2</f><v>0.30000000000000004</v></c><c r="C4" s="1"><v>45000</v></c>'
        '<c r="D4" s="3"><v>45000.5</v></c><c r="E4" t="b"><v>1</v></c>'
        '<c r="F4" t="e"><v>#DIV/0!</v></c><c r="G4"><f>A1+1</f></c>'
        '<c r="H4"><v>12345678901234567890</v></c></row>'
    )
    assert extract_text(xlsx(sheet, strings), LIMIT) == (
        "# Sheet: Costs\n\nItem\t\tOn\n\nPaper A4\t0.3\t2023-03-15\t"
        "2023-03-15 12:00:00\tTRUE\t#DIV/0!\t=A1+1\t12345678901234567890\n\n"
        "# Sheet: Old (hidden)\n"
    )


@pytest.mark.parametrize(
    ("number", "style", "shown"),
    [
        ("1.25", 4, "30:00:00"),
        ("38.5", 5, "924:00:00"),
        ("-0.25", 5, "-6:00:00"),
        ("0.25", 3, "06:00:00"),
        ("2958465.99999999", 3, "2958465.99999999"),
    ],
)
def test_totals_of_time_are_no_dates(number: str, style: int, shown: str):
    data = xlsx(f'<row><c s="{style}"><v>{number}</v></c></row>')
    assert extract_text(data, LIMIT).splitlines()[2] == shown


def test_parts_are_found_whatever_the_case_of_their_names():
    data = xlsx('<row><c t="s"><v>0</v></c></row>', "<si><t>Item</t></si>")
    with zipfile.ZipFile(BytesIO(data)) as archive:
        parts = {
            name.replace("sharedStrings", "SharedStrings"): archive.read(name)
            for name in archive.namelist()[2:]
        }
    assert "Item" in extract_text(package("xl/workbook.xml", parts), LIMIT)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (
            "<w:moveFrom>" + paragraph("Moved") + "</w:moveFrom>" + paragraph("Moved"),
            "Moved",
        ),
        (
            '<w:p><w:r><w:sym w:font="Wingdings" w:char="F0FE"/><w:t> yes </w:t>'
            '<w:sym w:font="Wingdings" w:char="F0A8"/><w:t> no</w:t></w:r></w:p>',
            "☑ yes ☐ no",
        ),
        (
            '<w:p><w:r><w:t>A </w:t><w:sym w:font="Wingdings" w:char="F0E0"/>'
            '<w:t> B, 5 </w:t><w:sym w:font="Symbol" w:char="F06D"/><w:t>m </w:t>'
            '<w:sym w:font="Webdings" w:char="F061"/></w:r></w:p>',
            "A → B, 5 μm \ufffd",
        ),
        (
            "<w:p><w:r><w:t>see</w:t></w:r><w:r><w:rPr>"
            '<w:vertAlign w:val="superscript"/></w:rPr><w:footnoteReference w:id="2"/>'
            "</w:r><w:r><w:t> i</w:t></w:r><m:sup/><w:r><w:t>x</w:t></w:r></w:p>",
            "see[^2] ix\n\n[^2]: A note.",
        ),
        (
            "<w:p><w:r><w:t>Dose </w:t></w:r><w:f><w:num><w:t>1</w:t></w:num><w:den>"
            "<w:t>2</w:t></w:den></w:f><w:r><w:t> of 10</w:t></w:r><w:r><w:rPr>"
            '<w:vertAlign w:val="superscript"/></w:rPr><w:t>1</w:t></w:r><w:r><w:rPr>'
            '<w:vertAlign w:val="superscript"/></w:rPr><w:t>2</w:t></w:r></w:p>',
            "Dose (1)/(2) of 10^12",
        ),
        (
            "<w:p><w:ruby><w:rt><w:t>reading</w:t></w:rt><w:rubyBase><w:t>base</w:t>"
            "</w:rubyBase></w:ruby></w:p>",
            "base",
        ),
    ],
)
def test_a_document_reads_as_it_looks(body: str, shown: str):
    assert extract_text(docx(body), LIMIT).strip() == shown


def test_cells_over_several_columns_leave_room_for_them():
    wide = '<w:tc><w:tcPr><w:gridSpan w:val="2"/></w:tcPr>'
    rows = (
        "<w:tr><w:tc>"
        + paragraph("A")
        + f"</w:tc>{wide}"
        + paragraph("2024")
        + "</w:tc>"
        "<w:tc>" + paragraph("2025") + "</w:tc></w:tr>"
        '<w:tr><w:trPr><w:gridBefore w:val="3"/></w:trPr><w:tc>'
        + paragraph("3")
        + "</w:tc></w:tr>"
    )
    text = extract_text(docx(f"<w:tbl>{rows}</w:tbl>" + paragraph("End")), LIMIT)
    assert "A\t2024\t\t2025\n\t\t\t3\n" in text


def test_columns_before_a_row_count_once():
    before = '<w:trPr><w:gridBefore w:val="63"/></w:trPr>'
    body = paragraph("B") + table_row(before * 1_000 + f"<w:tc>{paragraph('A')}</w:tc>")
    assert extract_text(docx(body), LIMIT) == "B\n\n" + "\t" * 63 + "A\n"


def test_slides_come_in_their_order_with_titles_and_notes():
    first = shape("title", "Plan") + shape("body", "Buy", "Sell") + shape("ftr", "ACME")
    data = pptx(first, shape("ctrTitle", "End"), notes="Say hello")
    assert extract_text(data, LIMIT) == (
        "# Slide 1\n\n## Plan\n\nBuy\nSell\n\nNotes:\nSay hello\n\n"
        "# Slide 2\n\n## End\n"
    )


def test_slides_of_pictures_say_so():
    data = pptx("<p:pic/>", shape("body", "End"))
    assert extract_text(data, LIMIT) == (
        f"# Slide 1\n{ONLY_PICTURES}\n\n# Slide 2\nEnd\n"
    )


def test_macros_are_not_read():
    data = docx(paragraph("Hello"), **{"word/vbaProject.bin": b"Sub AutoOpen()"})
    assert extract_text(data, LIMIT) == "Hello\n"


def test_the_kind_comes_from_the_bytes():
    assert is_office_file(DOCUMENT)
    assert is_office_file(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 a .doc of 1997")
    assert not is_office_file(b"PK\x03\x04 another archive")
    assert not is_office_file(b"[Content_Types].xml")


def test_a_long_text_is_cut_and_says_so():
    sheet = "<row><c><v>1</v></c></row>" * 100_000
    for data in (docx(paragraph("ä" * 3_000)), xlsx(sheet)):
        text = extract_text(data, 1_000)
        assert text.endswith(CUT + "\n")
        assert 900 < len(text.encode()) <= 1_000


def test_a_text_to_which_many_cells_refer_is_cut():
    row = "<row>" + '<c t="s"><v>0</v></c>' * 200_000 + "</row>"
    data = xlsx(row * 3, f"<si><t>{'x' * 30_000}</t></si>")
    assert len(extract_text(data, LIMIT)) <= LIMIT


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 encrypted", "protected"),
        (docx(paragraph(" ")), "empty"),
        (xlsx(""), "empty"),
        (pptx("<p:pic/>", "<p:pic/>"), "empty"),
        (DOCUMENT[: len(DOCUMENT) // 2], "damaged"),
        (docx("<w:p>"), "damaged"),
        (package("word/gone.xml", {}), "damaged"),
        (package("a.xml", {"a.xml": "<drawing/>"}), "unknown"),
        (package("a.xml", {"a.xml": "<!DOCTYPE a><document/>"}), "damaged"),
        (
            docx("", **{"word/styles.xml": '<!DOCTYPE s [<!ENTITY a "b">]><s>&a;</s>'}),
            "damaged",
        ),
        (docx(" " * (MAX_UNPACKED + 1)), "too_large"),
        (docx("<w:tbl><w:tr><w:tc>" * 100), "damaged"),
        (xlsx('<row><c r="ZZZ1"><v>1</v></c></row>'), "damaged"),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes, why: str):
    assert reason(data) == why


@pytest.mark.parametrize(
    "data",
    [
        docx("<w:r>" * MAX_DEPTH + "</w:r>" * MAX_DEPTH),
        docx(f'<w:r xmlns:r="{"x" * 5_000}"/>'),
        docx(f'<w:r xmlns="{"x" * 5_000}"/>'),
        docx(f"<{'r' * 5_000}/>"),
        docx("".join(f"<r{number}/>" for number in range(10_000))),
        docx("".join(f'<r r{number}=""/>' for number in range(10_000))),
        docx("<r " + " ".join(f'r{number}=""' for number in range(1_000)) + "/>"),
        docx(f'<w:r a="{"x" * 5_000_000}"/>'),
        docx(paragraph("ab " * 1_000_000)),
        docx("<w:p><w:r><w:tbl><w:tr><w:tc>" + paragraph("ab " * 300_000) * 3),
        docx(table_row('<w:tc><w:gridSpan w:val="63"/></w:tc>' * 300_000)),
    ],
)
def test_a_small_file_costs_little_work(data: bytes):
    assert len(data) < 100_000
    assert reason(data) == "too_large"


@pytest.mark.parametrize(
    "data",
    [
        docx("<w:r/>" * 1_000),
        docx("<w:r/>", **{"word/styles.xml": f"<s>{'<a/>' * 1_000}</s>"}),
        xlsx("<row/>" * 500, "<si/>" * 500),
    ],
)
def test_elements_are_counted_over_all_parts(
    data: bytes, monkeypatch: pytest.MonkeyPatch
):
    assert MAX_ELEMENTS <= 1_000_000
    monkeypatch.setattr("llm.office.package.MAX_ELEMENTS", 1_000)
    assert reason(data) == "too_large"


def test_a_document_whose_notes_are_missing_is_read():
    with zipfile.ZipFile(BytesIO(DOCUMENT)) as archive:
        names = [each for each in archive.namelist()[2:] if "footnotes" not in each]
        parts = {name: archive.read(name) for name in names}
    assert extract_text(package("word/document.xml", parts), LIMIT) == "Hello\n"


def test_a_long_document_is_read_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("llm.office.package.MAX_ELEMENTS", 1_000)
    body = " " * (MAX_UNPACKED * 2 // 3) + "<w:r/>" * 700
    assert extract_text(docx(body + paragraph("Hello")), LIMIT) == "Hello\n"


def test_a_long_cell_is_cut():
    words = "ab " * 1_000_000
    sheet = (
        f'<row><c t="inlineStr"><is><t>{words}</t></is></c><c t="s"><v>0</v></c></row>'
    )
    first, second = (
        extract_text(xlsx(sheet, f"<si><t>{words}</t></si>"), LIMIT)
        .splitlines()[2]
        .split("\t")
    )
    assert first == second == words[:32_767].strip()


def test_relations_are_known_by_their_namespace():
    slides = pptx(shape("body", "One"))
    with zipfile.ZipFile(BytesIO(slides)) as archive:
        main = archive.read("ppt/presentation.xml").decode()
        parts = {name: archive.read(name) for name in archive.namelist()[2:]}
    main = main.replace("xmlns:r=", "xmlns:d3p1=").replace("r:id=", "d3p1:id=")
    renamed = package("ppt/presentation.xml", parts | {"ppt/presentation.xml": main})
    assert extract_text(renamed, LIMIT) == extract_text(slides, LIMIT)


def test_an_encrypted_part_is_protected():
    data = bytearray(DOCUMENT)
    found = data.find(b"PK\x01\x02")
    while found >= 0:  # the flags of each entry in the archive's list
        data[found + 8] |= 1
        found = data.find(b"PK\x01\x02", found + 1)
    assert reason(bytes(data)) == "protected"


def test_an_unusual_compression_is_not_unpacked():
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("_rels/.rels", "<Relationships/>")
    assert reason(packed.getvalue()) == "damaged"


@settings(max_examples=60)
@given(st.data())
def test_a_changed_file_is_read_or_refused(data: st.DataObject):
    whole = bytearray(xlsx('<row><c r="A1"><v>1</v></c></row>'))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(whole) - 1))
        whole[position] = data.draw(st.integers(0, 255))
    with suppress(Unreadable):
        assert extract_text(bytes(whole), LIMIT)
