"""Bytes as text where nothing says in which encoding they were written. Pure.

Spreadsheets and old editors write the encoding of their system, without a mark.
"""

from __future__ import annotations

import codecs
import re

#: Python has other codecs too, and some of them take quadratic time.
_CHARSET = re.compile(
    r"(iso-?8859-?\d{1,2}|latin-?1|(windows-|cp)125\d|utf-?(8|16|32)([bl]e)?"
    r"|(us-)?ascii|shift[-_]jis|euc-(jp|kr)|gb(2312|k|18030)|big5|koi8-[ru])",
    re.IGNORECASE,
)
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SAMPLE = 100_000  # bytes by which an encoding is recognised
_SHORTEST = 8  # bytes; fewer may be anything
_NULS = 0.3  # share of the bytes of one half, in UTF-16 of European languages
#: Two bytes of GB 2312: signs, and the frequent characters.
_CHINESE = re.compile(rb"[\xa1-\xa3\xb0-\xd7][\xa1-\xfe]")
#: Bytes that are not ASCII, without two that belong to a word of Latin letters.
_RUNS = re.compile(
    rb"(?<![A-Za-z\x80-\xff])[\x80-\xff]{2}(?![A-Za-z\x80-\xff])|[\x80-\xff]{3,}"
)
_SHORTEST_RUN = 4  # bytes; Chinese has words of two characters, and no spaces
_FEWEST_WORDS = 3  # of one character, where all words are Chinese
#: Bytes that are signs in Western Europe, which stand in pairs there too.
_SIGNS = bytes([*range(0xA1, 0xC0), 0xD7, 0xF7])
_ASCII = bytes(range(128))
_CHINESE_SHARE = 0.8  # of the bytes that are not ASCII
_UTF8_SHARE = 0.75  # of the characters that are not ASCII; other encodings have few
_UTF8 = codecs.getincrementaldecoder("utf-8")
_CUT_START = re.compile(rb"\A[\x80-\xbf]{1,3}")  # the rest of a character
_REPLACED = "\ufffd"


def decode_text(data: bytes, charset: str = "") -> str | None:
    """`data` as text: by `charset` if that is a known one, as UTF-8, or by how the
    bytes look. A few bad bytes in UTF-8 are replaced. None for what has NUL bytes in
    no order of an encoding."""
    for name in (charset, "utf-8"):
        if _CHARSET.fullmatch(name):
            try:
                return data.decode(name)
            except (UnicodeError, LookupError):
                pass
    if data.startswith(_MARKS):
        return data.decode("utf-16", errors="replace")
    if b"\0" in data:
        return _decode_unmarked(data)
    if (text := _decode_damaged(data)) is not None:
        return text
    return data.decode(_single_or_double(data), errors="replace")


def _decode_unmarked(data: bytes) -> str | None:
    """UTF-16 without its mark: one half of each letter is NUL in European languages."""
    sample = data[:_SAMPLE]
    first, second = (sample[at::2].count(0) * 2 / len(sample) for at in (0, 1))
    if (
        len(data) < _SHORTEST
        or max(first, second) < _NULS
        or min(first, second) > _NULS / 10
    ):
        return None
    try:
        return data.decode("utf-16-be" if first > second else "utf-16-le")
    except UnicodeDecodeError:
        return None


def _decode_damaged(data: bytes) -> str | None:
    """UTF-8 with a few bad bytes: a log that is cut inside a character, a field of a
    fixed width."""
    text = data.decode(errors="replace")
    decoder = _UTF8(errors="replace")
    inner = decoder.decode(_CUT_START.sub(b"", data))
    cut, _ = decoder.getstate()  # the beginning of a character; one byte may be any
    foreign = len(inner) - len(inner.encode("ascii", "ignore"))
    good = foreign - inner.count(_REPLACED)
    is_utf8 = good >= foreign * _UTF8_SHARE and (good or len(cut) > 1)
    return text if is_utf8 else None


def _single_or_double(data: bytes) -> str:
    """GB 18030 where nearly all that is not ASCII is frequent Chinese; else the
    encoding of Western European systems."""
    sample = data[:_SAMPLE]
    foreign = len(sample.translate(None, _ASCII))
    runs: list[bytes] = _RUNS.findall(sample)
    frequent = sum(2 * len(_CHINESE.findall(run)) for run in runs)
    longest = max((len(run) for run in runs if len({*run}) > 1), default=0)
    if longest >= _SHORTEST_RUN:
        is_chinese = frequent >= foreign * _CHINESE_SHARE
    else:
        words = [run for run in runs if run.translate(None, _SIGNS)]
        is_chinese = frequent == foreign and len(words) >= _FEWEST_WORDS
    if not is_chinese:
        return "cp1252"
    try:
        data.decode("gb18030")
    except UnicodeDecodeError:
        return "cp1252"
    return "gb18030"
