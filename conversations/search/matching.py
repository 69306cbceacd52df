"""Words, folding and matching for full-text search on every database. Pure.

A text is folded for case and accents and cut into words. In scripts that write no
spaces between words (Chinese, Japanese, Korean, Thai, ...) a query matches anywhere;
elsewhere it matches the beginning of a word, or what follows a `_` in it, because
Markdown writes `_emphasis_` and programs `snake_case`. An index stores the *tokens* of
a text, and a query's *terms* are prefixes of tokens: every text that a query matches
has a token for each term.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

LONGEST_TOKEN = 60  # characters; longer words are indexed by their beginning
PORTION = 50_000  # characters, or more up to the next space, that are folded at once
GRAM = 3  # characters of a token in scripts without spaces
#: Stored with a document; `conversations.search.index` writes those of another anew.
TOKENS_VERSION = 2

# Thai, Lao, Tibetan, Myanmar, Khmer, kana, Bopomofo, Hangul and Han.
_UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u318f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff"
    "\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"
)
# Indic scripts: their vowel signs are combining marks, which `\\w` does not match.
_INDIC = "\u0900-\u0963\u0966-\u0dff"
_WORD = re.compile(rf"[{_UNSPACED}]+|(?:[^\W{_UNSPACED}]|[{_INDIC}])+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_IS_SPACED = re.compile(rf"[^\W{_UNSPACED}]|[{_INDIC}]")  # a letter of a spaced script
_PART = re.compile(r"(?<![^_])[^_]")  # start of a word, or of the text after `_`
_SPACE = re.compile(r"\s")  # never inside a word
_RUN = re.compile(r"\S+|\s+")
#: Half-width katakana: a voiced one is two characters, and a usual one is one.
_HALF_WIDTH = re.compile("[\uff66-\uff9f]+")
_VOICING = "\uff9e\uff9f"  # the second of the two; no combining marks to Unicode
#: Accents, and the vowel points of Hebrew and Arabic, which most texts leave out.
_DIACRITICS = re.compile("[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670]")
#: Letters with a stroke and ligatures, which Unicode does not decompose.
_STROKES = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ħ": "h", "æ": "ae", "œ": "oe"})


class _FoldTable(dict[int, str]):
    """A table for `str.translate` that folds each character when it is first seen."""

    def __missing__(self, codepoint: int) -> str:
        decomposed = unicodedata.normalize("NFKD", chr(codepoint))
        bare = unicodedata.normalize("NFC", _DIACRITICS.sub("", decomposed))
        folded = bare.casefold().translate(_STROKES)
        self[codepoint] = folded
        return folded


_FOLD_TABLE = _FoldTable()


def fold(text: str) -> str:
    """The text without differences of case, accents and compatibility forms."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", _HALF_WIDTH.sub(_widen, text))
    return text.translate(_FOLD_TABLE)


def _widen(katakana: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", katakana[0])


def words_of(text: str) -> list[str]:
    """The folded words, in order; a run of a script without spaces is one word."""
    return _WORD.findall(fold(text))


def tokens_of(text: str) -> set[str]:
    """The tokens that an index stores for a text."""
    tokens: set[str] = set()
    for word in _words_of_portions(text):
        if _IS_UNSPACED.match(word):
            tokens.update(word[at : at + GRAM] for at in range(len(word)))
        else:
            tokens.update(word[at : at + LONGEST_TOKEN] for at in _parts_of(word))
    return tokens


def _parts_of(word: str) -> Sequence[int]:
    """Offsets in the word of a spaced script where a query can match."""
    if "_" not in word:
        return (0,)
    return [part.start() for part in _PART.finditer(word)]


def _words_of_portions(text: str) -> Iterator[str]:
    """The folded words, one portion of the text at a time.

    Folding a long text at once would hold the GIL, and a list of all its words takes
    ten times the memory of the text.
    """
    start = 0
    while space := _SPACE.search(text, start + PORTION):
        yield from words_of(text[start : space.start()])
        start = space.start()
    yield from words_of(text[start:])


@dataclass(frozen=True, slots=True)
class Query:
    """The distinct words of a query; false if there are none."""

    words: Sequence[str]

    @classmethod
    def of(cls, text: str) -> Query:
        words = [word.strip("_") for word in words_of(text)]
        return cls(list(dict.fromkeys(filter(None, words))))

    def __bool__(self) -> bool:
        return bool(self.words)

    @property
    def terms(self) -> list[list[str]]:
        """For each word, prefixes of tokens that every matching text has."""
        return [_terms_of(word) for word in self.words]

    @property
    def is_exact(self) -> bool:
        """Whether every text that has all terms matches."""
        return all(len(word) <= _longest(word) for word in self.words)

    def matches(self, folded: str) -> bool:
        """Whether all words are in a text that `fold` has folded."""
        return all(_first(word, folded) is not None for word in self.words)

    def score(self, folded: str) -> int:
        """How many of the words are in a text that `fold` has folded."""
        return sum(_first(word, folded) is not None for word in self.words)

    def first_position(self, text: str) -> int:
        """Offset of the first matching word in an NFC-normalized text; else 0."""
        folded = fold(text)
        firsts = [_first(word, folded) for word in self.words]
        first = min((at for at in firsts if at is not None), default=0)
        if len(folded) == len(text):
            return first

        def length_after_folding(last: int) -> int:
            return len(fold(text[: last + 1]))

        return bisect_right(range(len(text)), first, key=length_after_folding)

    def match_spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end of matches in the original text, in order, not overlapping."""
        folded, starts, ends = _fold_with_origins(text)
        found = sorted(
            (starts[at], ends[at + len(word) - 1])
            for word in self.words
            for at in _starts(word, folded)
        )
        apart: list[tuple[int, int]] = []
        for start, end in found:
            if apart and start < apart[-1][1]:
                apart[-1] = (apart[-1][0], max(end, apart[-1][1]))
            else:
                apart.append((start, end))
        return apart


def _starts(word: str, folded: str) -> Iterator[int]:
    """Offsets of the word: anywhere in an unspaced script, else at starts of words and
    after each `_`."""
    is_anywhere = _IS_UNSPACED.match(word)
    at = folded.find(word)
    while at >= 0:
        before = folded[at - 1] if at else "_"
        if is_anywhere or before == "_" or not _IS_SPACED.match(before):
            yield at
        at = folded.find(word, at + 1)


def _first(word: str, folded: str) -> int | None:
    return next(_starts(word, folded), None)


def _longest(word: str) -> int:
    return GRAM if _IS_UNSPACED.match(word) else LONGEST_TOKEN


def _terms_of(word: str) -> list[str]:
    if not _IS_UNSPACED.match(word):
        return [word[:LONGEST_TOKEN]]
    last = max(1, len(word) - GRAM + 1)
    return list(dict.fromkeys(word[at : at + GRAM] for at in range(last)))


def _fold_with_origins(text: str) -> tuple[str, Sequence[int], Sequence[int]]:
    """The folded text, and where in `text` each of its characters begins and ends."""
    folded = fold(text)
    if len(folded) == len(text):
        return folded, range(len(text)), range(1, len(text) + 1)
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for run_match in _RUN.finditer(text):
        run, (start, end) = fold(run_match[0]), run_match.span()
        if len(run) == end - start:
            pieces.append(run)
            starts += range(start, end)
            ends += range(start + 1, end + 1)
            continue
        for piece, begin, after in _characters(text, start, end):
            pieces.append(piece)
            starts += [begin] * len(piece)
            ends += [after] * len(piece)
    return "".join(pieces), starts, ends


def _characters(text: str, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    """Each folded character with its accents, and where it begins and ends."""
    at = start
    while at < end:
        after = at + 1
        while after < end and _is_mark(text[after]):
            after += 1
        yield fold(text[at:after]), at, after
        at = after


def _is_mark(character: str) -> bool:
    return character in _VOICING or bool(unicodedata.combining(character))


def rank(query: str, rows: Iterable[T], text: Callable[[T], str]) -> list[T]:
    """Rows with at least one of the words, those with most words first.

    Rows with equally many words keep their order. A query without words finds nothing.
    """
    parsed_query = Query.of(query)
    scored = [(parsed_query.score(fold(text(row))), row) for row in rows]
    found = [(points, row) for points, row in scored if points]
    return [row for _, row in sorted(found, key=lambda each: -each[0])]
