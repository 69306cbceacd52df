"""Words, folding and matching of full-text search: the same on every database. Pure.

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
PORTION = 50_000  # characters or more, up to a space, that are cut into words at once
GRAM = 3  # characters of a token in scripts without spaces

# Thai, Lao, Tibetan, Myanmar, Khmer, kana, Bopomofo, Hangul and Han.
_UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u318f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff"
    "\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"
)
# Scripts of India, whose vowel signs are marks and so no letters for `\\w`.
_INDIC = "\u0900-\u0963\u0966-\u0dff"
_WORD = re.compile(rf"[{_UNSPACED}]+|(?:[^\W{_UNSPACED}]|[{_INDIC}])+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_IS_SPACED = re.compile(rf"[^\W{_UNSPACED}]|[{_INDIC}]")  # a letter of a spaced script
_SPACE = re.compile(r"\s")  # no part of any word
_RUN = re.compile(r"\S+|\s+")
#: Accents, and the vowel points of Hebrew and Arabic, which most texts leave out.
_POINTS = re.compile("[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670]")
#: Letters with a stroke or joined letters, which Unicode does not decompose.
_STROKES = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ħ": "h", "æ": "ae", "œ": "oe"})


class _Folded(dict[int, str]):
    """A table for `str.translate` that folds each character when it is first seen."""

    def __missing__(self, codepoint: int) -> str:
        decomposed = unicodedata.normalize("NFKD", chr(codepoint))
        bare = unicodedata.normalize("NFC", _POINTS.sub("", decomposed))
        folded = bare.casefold().translate(_STROKES)
        self[codepoint] = folded
        return folded


_FOLDED = _Folded()


def fold(text: str) -> str:
    """The text without differences of case, accents and compatibility forms."""
    return unicodedata.normalize("NFC", text).translate(_FOLDED)


def words_of(text: str) -> list[str]:
    """The folded words, in order; a run of a script without spaces is one word."""
    return _WORD.findall(fold(text))


def tokens_of(text: str) -> set[str]:
    """What an index stores of a text."""
    tokens: set[str] = set()
    for word in _words_of_portions(text):
        if _IS_UNSPACED.match(word):
            tokens.update(word[at : at + GRAM] for at in range(len(word)))
        else:
            tokens.add(word[:LONGEST_TOKEN])
    return tokens


def _words_of_portions(text: str) -> Iterator[str]:
    """The folded words, a portion at a time: all of a long text would be folded in one
    go, for which other threads wait, and its words take ten times its memory."""
    start = 0
    while space := _SPACE.search(text, start + PORTION):
        yield from words_of(text[start : space.start()])
        start = space.start()
    yield from words_of(text[start:])


@dataclass(frozen=True, slots=True)
class Query:
    """The distinct words that are looked for; false where there are none."""

    words: Sequence[str]

    @classmethod
    def of(cls, text: str) -> Query:
        return cls(list(dict.fromkeys(words_of(text))))

    def __bool__(self) -> bool:
        return bool(self.words)

    @property
    def terms(self) -> list[list[str]]:
        """For each word, prefixes of tokens that every text with the word has."""
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

    def first_place(self, text: str) -> int:
        """Where the first of the words stands in a text in Unicode's form NFC; or 0."""
        folded = fold(text)
        firsts = [_first(word, folded) for word in self.words]
        first = min((at for at in firsts if at is not None), default=0)
        if len(folded) == len(text):
            return first

        def folded_length(last: int) -> int:
            return len(text[: last + 1].translate(_FOLDED))

        return bisect_right(range(len(text)), first, key=folded_length)

    def places(self, text: str) -> list[tuple[int, int]]:
        """Start and end of matches in the text as it is written, in order, apart."""
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
    """Where the word stands: anywhere in an unspaced script, else where words begin."""
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
    """The folded text, and for each of its characters where it comes from."""
    folded = fold(text)
    if len(folded) == len(text):
        return folded, range(len(text))
    pieces: list[str] = []
    origins: list[int] = []
    for found in _RUN.finditer(text):
        run, (start, end) = fold(found[0]), found.span()
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
    """Each character with its accents, folded, and its first and last place."""
    at = start
    while at < end:
        after = at + 1
        while after < end and unicodedata.combining(text[after]):
            after += 1
        yield fold(text[at:after]), (at, after - 1)
        at = after


def ranked(query: str, rows: Iterable[T], text: Callable[[T], str]) -> list[T]:
    """The rows with at least one of the words, best first; else in their order.

    A query without a word finds nothing.
    """
    wanted = Query.of(query)
    scored = [(wanted.score(fold(text(row))), row) for row in rows]
    found = [(points, row) for points, row in scored if points]
    return [row for _, row in sorted(found, key=lambda each: -each[0])]
