"""Words, folding and matching for full-text search on every database. Pure.

A text is folded for case and accents and cut into words. In scripts that write no
spaces between words (Chinese, Japanese, Korean, Thai, ...) a query matches anywhere;
elsewhere it matches the beginning of a word. An index stores the *tokens* of a text,
and a query's *terms* are prefixes of tokens: every text that a query matches has a
token for each term.
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
_SPACE = re.compile(r"\s")  # never inside a word
_RUN = re.compile(r"\S+|\s+")
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
    return unicodedata.normalize("NFC", text).translate(_FOLD_TABLE)


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
            tokens.add(word[:LONGEST_TOKEN])
    return tokens


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
        return cls(list(dict.fromkeys(words_of(text))))

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
            return len(text[: last + 1].translate(_FOLD_TABLE))

        return bisect_right(range(len(text)), first, key=length_after_folding)

    def match_spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end of matches in the original text, in order, not overlapping."""
        folded, origins = _fold_with_origins(text)
        found = sorted(
            (at, at + len(word)) for word in self.words for at in _starts(word, folded)
        )
        apart: list[tuple[int, int]] = []
        for start, end in found:
            if apart and start < apart[-1][1]:
                apart[-1] = (apart[-1][0], max(end, apart[-1][1]))
            else:
                apart.append((start, end))
        return [(origins[start], origins[end - 1] + 1) for start, end in apart]


def _starts(word: str, folded: str) -> Iterator[int]:
    """Offsets of the word: anywhere in an unspaced script, else at starts of words."""
    is_unspaced = _IS_UNSPACED.match(word)
    at = folded.find(word)
    while at >= 0:
        if is_unspaced or at == 0 or not _IS_SPACED.match(folded[at - 1]):
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


def _fold_with_origins(text: str) -> tuple[str, Sequence[int]]:
    """The folded text, and the offset in `text` of each of its characters."""
    folded = fold(text)
    if len(folded) == len(text):
        return folded, range(len(text))
    pieces: list[str] = []
    origins: list[int] = []
    for run_match in _RUN.finditer(text):
        run, (start, end) = fold(run_match[0]), run_match.span()
        if len(run) == end - start:
            pieces.append(run)
            origins += range(start, end)
            continue
        for piece, at in _characters(text, start, end):
            pieces.append(piece)
            origins += [at[0]] * (len(piece) - 1) + [at[1]] * bool(piece)
    return "".join(pieces), origins


def _characters(
    text: str, start: int, end: int
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each folded character with its accents, and its first and last offset."""
    at = start
    while at < end:
        after = at + 1
        while after < end and unicodedata.combining(text[after]):
            after += 1
        yield fold(text[at:after]), (at, after - 1)
        at = after


def rank(query: str, rows: Iterable[T], text: Callable[[T], str]) -> list[T]:
    """Rows with at least one of the words, those with most words first.

    Rows with equally many words keep their order. A query without words finds nothing.
    """
    parsed_query = Query.of(query)
    scored = [(parsed_query.score(fold(text(row))), row) for row in rows]
    found = [(points, row) for points, row in scored if points]
    return [row for _, row in sorted(found, key=lambda each: -each[0])]
