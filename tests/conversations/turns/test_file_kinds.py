from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.turns.file_kinds import (
    IMAGES,
    NAME_LENGTH,
    TEXT,
    clean_name,
    content_type_of,
    decode_text,
    format_size,
)
from tests.conversations import files


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (files.PNG, "image/png"),
        (files.JPEG, "image/jpeg"),
        (files.GIF, "image/gif"),
        (files.WEBP, "image/webp"),
        (files.PDF, "application/pdf"),
        (files.TEXT, TEXT),
        (files.SVG, TEXT),
        (b"<!doctype html><script>x()</script>", TEXT),
        ("\ufeffBOM".encode(), TEXT),
        ("UTF-16".encode("utf-16"), TEXT),
        (files.ZIP, None),
        (files.ELF, None),
        (b"half a picture: \x89PNG\r\n\x1a\n", None),
        (b"\x89PNG\r\n\x1a\nnothing of a header", None),
        (b"a NUL\0", None),
    ],
)
def test_the_kind_of_a_file_comes_from_its_bytes(data: bytes, kind: str | None):
    assert content_type_of(data) == kind


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Straße;Größe;Preis\r\nAn der Mühle;12;3,50 €\r\n", "cp1252"),
        ("Prénom;Été\nZoé;à côté", "cp1252"),
        ("¿Qué año? Mañana", "cp1252"),
        ("caf\xe9", "cp1252"),
        ("Grüße", "cp1252"),
        ("DESCRIÇÃO;SITUAÇÃO;OBSERVAÇÕES\nMAÇÃ;SÃO PAULO;", "cp1252"),
        ("GRÖßE", "cp1252"),
        ("“MANHÔ;SITUAÇÃO", "cp1252"),
        ("Width: 10 ±½ mm; height 20 ±½ mm; depth 5 ±½ mm\n", "cp1252"),
        ("Chapter 1 ·· 3\nChapter 2 ·· 7\nChapter 3 ·· 9\n", "cp1252"),
        ("Chapter 1 ······ 3\nChapter 2 ···· 7\n", "cp1252"),
        ("»» one\n»» two\n»» three\n", "cp1252"),
        ("10 °± 1\n20 °± 1\n30 °± 1\n", "cp1252"),
        ("北京,100\n", "gb18030"),
        ("使用Python编程，A类和B类\n", "gb18030"),
        ("姓名,城市,金额\r\n王小明,北京,12.50\r\n", "gb18030"),
        ("第1组,第2组,第3组", "gb18030"),
        ("一、会议纪要（草案）：请各位同事审阅。", "gb18030"),
        ("Name;Straße\r\nZoë;Mühle", "utf-16-le"),
        ("Name;Straße\r\nZoë;Mühle", "utf-16-be"),
    ],
)
def test_files_of_offices_are_text_in_the_encoding_of_their_system(
    text: str, encoding: str
):
    data = text.encode(encoding)
    assert content_type_of(data) == TEXT
    assert decode_text(data) == text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Müller … Köln".encode() + b"\xff", "Müller … Köln\ufffd"),
        ("北京的中文日志".encode()[:-1], "北京的中文日\ufffd"),
        ("北京的中文日志".encode()[1:], "\ufffd\ufffd京的中文日志"),
        ("naïve café".encode()[:-1], "naïve caf\ufffd"),
        ("Prix : 5 €".encode()[:-1], "Prix : 5 \ufffd"),
        ("ï un café".encode()[1:], "\ufffd un café"),
        ("Zoë Größe Mühle €".encode() + b" caf\xe9 ", "Zoë Größe Mühle € caf\ufffd "),
    ],
)
def test_utf_8_with_a_few_bad_bytes_stays_utf_8(data: bytes, text: str):
    assert content_type_of(data) == TEXT
    assert decode_text(data) == text


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"])))
def test_every_text_is_read_as_it_was_written(text: str):
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        if text.startswith("\ufeff"):
            continue  # its own mark
        assert decode_text(text.encode(encoding)) == text


@pytest.mark.parametrize(
    ("original", "kind", "name"),
    [
        ("notes.txt", TEXT, "notes.txt"),
        ("../../etc/passwd", TEXT, "passwd"),
        (r"C:\Users\ada\notes.txt", TEXT, "notes.txt"),
        ("..", TEXT, "file"),
        ("", TEXT, "file"),
        (".htaccess", TEXT, "htaccess"),
        ("a\r\nb\x00c\td .txt", TEXT, "a bc d .txt"),
        ("invoice\u202efdp.exe", "image/png", "invoicefdp.exe.png"),
        ("photo.JPG", "image/jpeg", "photo.JPG"),
        ("photo.png", "image/jpeg", "photo.png.jpeg"),
        ("Cafe\u0301.pdf", "application/pdf", "Café.pdf"),
    ],
)
def test_a_name_cannot_deceive(original: str, kind: str, name: str):
    assert clean_name(original, kind) == name


@given(st.text(), st.sampled_from([*sorted(IMAGES), "application/pdf", TEXT]))
def test_every_name_becomes_a_plain_one(name: str, kind: str):
    clean = clean_name(name, kind)
    assert 0 < len(clean) <= NAME_LENGTH
    assert clean.isprintable()
    assert "/" not in clean
    assert "\\" not in clean
    assert not clean.startswith(".")
    assert clean_name(clean, kind) == clean


def test_a_long_name_keeps_its_extension():
    name = clean_name(f"{'long ' * 60}.pdf", "application/pdf")
    assert len(name) <= NAME_LENGTH
    assert name.endswith(".pdf")


@pytest.mark.parametrize(
    ("size", "words"),
    [(640, "640 bytes"), (12_000, "12 kB"), (3_449_000, "3.4 MB"), (10**9, "1 GB")],
)
def test_sizes_are_formatted_for_people(size: int, words: str):
    assert format_size(size) == words
