"""Office files as Office programs write them, made by hand."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from io import BytesIO

_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_KIND = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_P = "http://schemas.openxmlformats.org/presentationml/2006/main"
_A = "http://schemas.openxmlformats.org/drawingml/2006/main"
_MC = "http://schemas.openxmlformats.org/markup-compatibility/2006"
_TYPES = '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'


def package(main: str, parts: Mapping[str, str | bytes]) -> bytes:
    """A package with `main` as its main part."""
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", _TYPES)
        archive.writestr("_rels/.rels", relations(("officeDocument", main)))
        for name, content in parts.items():
            archive.writestr(name, content)
    return packed.getvalue()


def relations(*targets: tuple[str, str]) -> str:
    listed = "".join(
        f'<Relationship Id="rId{number}" Type="{_KIND}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    return f'{_XML}<Relationships xmlns="{_RELATIONS}">{listed}</Relationships>'


def docx(body: str, **more: str | bytes) -> bytes:
    """A document with styles as the German Word names them, and a footnote 2 where
    the body refers to one."""
    note = "A note." if "footnoteReference" in body else ""
    styles = (
        '<w:style w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style>'
        '<w:style w:styleId="Eigene"><w:name w:val="Mine"/>'
        '<w:basedOn w:val="berschrift2"/></w:style>'
    )
    notes = (
        '<w:footnote w:id="0" w:type="separator"><w:p><w:r><w:t>---</w:t></w:r></w:p>'
        f'</w:footnote><w:footnote w:id="2"><w:p><w:r><w:t>{note}</w:t></w:r></w:p>'
        "</w:footnote>"
    )
    parts: dict[str, str | bytes] = {
        "word/document.xml": _word("document", f"<w:body>{body}</w:body>"),
        "word/styles.xml": _word("styles", styles),
        "word/footnotes.xml": _word("footnotes", notes),
        "word/_rels/document.xml.rels": relations(
            ("styles", "styles.xml"), ("footnotes", "/word/footnotes.xml")
        ),
    }
    return package("word/document.xml", parts | more)


def paragraph(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def xlsx(sheet: str, strings: str = "", **more: str | bytes) -> bytes:
    """A workbook with the sheets `Costs`, and `Old` which is hidden and empty. Cells of
    style 1 are dates, those of 2 are amounts, those of 3 have a date of their own,
    those of 4 and 5 are totals of hours."""
    book = (
        f'<sheets><sheet name="Costs" sheetId="1" xmlns:r="{_KIND}" r:id="rId1"/>'
        f'<sheet name="Old" sheetId="2" state="hidden" xmlns:r="{_KIND}" r:id="rId2"/>'
        "</sheets>"
    )
    styles = (
        '<numFmts><numFmt numFmtId="164" formatCode="#,##0.00 [$Dollars]"/>'
        '<numFmt numFmtId="165" formatCode="dd/mm/yyyy hh:mm"/>'
        '<numFmt numFmtId="166" formatCode="[Hh]:mm"/></numFmts>'
        '<cellStyleXfs><xf numFmtId="14"/></cellStyleXfs>'
        '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="164"/>'
        '<xf numFmtId="165"/><xf numFmtId="46"/><xf numFmtId="166"/></cellXfs>'
    )
    parts: dict[str, str | bytes] = {
        "xl/workbook.xml": _excel("workbook", book),
        "xl/styles.xml": _excel("styleSheet", styles),
        "xl/sharedStrings.xml": _excel("sst", strings),
        "xl/worksheets/sheet1.xml": _excel(
            "worksheet", f"<sheetData>{sheet}</sheetData>"
        ),
        "xl/worksheets/sheet2.xml": _excel("worksheet", "<sheetData/>"),
        "xl/_rels/workbook.xml.rels": relations(
            ("worksheet", "worksheets/sheet1.xml"),
            ("worksheet", "worksheets/sheet2.xml"),
            ("styles", "styles.xml"),
            ("sharedStrings", "sharedStrings.xml"),
        ),
    }
    return package("xl/workbook.xml", parts | more)


def pptx(*slides: str, notes: str = "") -> bytes:
    """A presentation whose slides are stored in the opposite order."""
    count = len(slides)
    ids = "".join(
        f'<p:sldId id="{300 + number}" r:id="rId{count - number}"/>'
        for number in range(count)
    )
    parts: dict[str, str | bytes] = {
        "ppt/presentation.xml": _slide(
            "presentation", f"<p:sldIdLst>{ids}</p:sldIdLst>"
        ),
        "ppt/_rels/presentation.xml.rels": relations(
            *(("slide", f"slides/slide{number}.xml") for number in range(1, count + 1))
        ),
        f"ppt/slides/_rels/slide{count}.xml.rels": relations(
            ("notesSlide", "../notesSlides/notesSlide1.xml")
        ),
        "ppt/notesSlides/notesSlide1.xml": _slide(
            "notes", shape("sldNum", "7") + shape("body", notes)
        ),
    }
    for number, slide in enumerate(slides):
        parts[f"ppt/slides/slide{count - number}.xml"] = _slide("sld", slide)
    return package("ppt/presentation.xml", parts)


def shape(kind: str, *lines: str) -> str:
    paragraphs = "".join(f"<a:p><a:r><a:t>{each}</a:t></a:r></a:p>" for each in lines)
    return (
        f'<p:sp><p:nvSpPr><p:nvPr><p:ph type="{kind}"/></p:nvPr></p:nvSpPr>'
        f"<p:txBody>{paragraphs}</p:txBody></p:sp>"
    )


def _word(name: str, content: str) -> str:
    return f'{_XML}<w:{name} xmlns:w="{_W}" xmlns:mc="{_MC}">{content}</w:{name}>'


def _excel(name: str, content: str) -> str:
    return f'{_XML}<{name} xmlns="{_S}">{content}</{name}>'


def _slide(name: str, content: str) -> str:
    spaces = f'xmlns:p="{_P}" xmlns:a="{_A}" xmlns:r="{_KIND}"'
    return f"{_XML}<p:{name} {spaces}>{content}</p:{name}>"
