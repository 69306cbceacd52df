"""Reads the strings of JavaScript modules, each with the call that it is passed to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pygments.lexers.javascript import JavascriptLexer
from pygments.token import Comment, Name, Punctuation, String

SCRIPTS = Path(__file__).parents[3] / "static" / "js"
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


@dataclass(frozen=True)
class Literal:
    """A string, or a template with "…" for each value in it."""

    place: str
    text: str
    call: str  # the innermost function that gets it; "" for none
    before: str  # the code of its statement in front of it


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name
        self._line = 1
        self._callee = ""  # the name read last
        self._calls = [""]
        self._templates: list[list[str]] = []  # those that are open, outermost first
        self._depths: list[int] = []  # of calls, where their values began
        self._before = ""

    def read(self, source: str) -> Iterator[Literal]:
        for kind, value in JavascriptLexer(stripnl=False).get_tokens(source):
            is_inside = len(self._templates) > len(self._depths)
            if kind is String.Interpol:
                self._interpolate(value)
            elif kind is String.Backtick and value == "`" and not is_inside:
                self._templates.append([])
            elif kind is String.Backtick and value == "`":
                yield self._literal("".join(self._templates.pop()))
            elif kind is String.Backtick:
                self._templates[-1].append(value)
            elif kind in (String.Double, String.Single):
                yield self._literal(_unescape(value[1:-1]))
            else:
                self._code(kind, value)
            self._line += value.count("\n")

    def _literal(self, text: str) -> Literal:
        found = Literal(
            f"{self._name}:{self._line}", text, self._calls[-1], self._before
        )
        self._before += f'"{text}"'
        return found

    def _interpolate(self, mark: str) -> None:
        if mark == "${":
            self._templates[-1].append("…")
            self._depths.append(len(self._calls))
            self._calls.append("")
        else:
            del self._calls[self._depths.pop() :]

    def _code(self, kind: object, value: str) -> None:
        if kind in Comment:
            return
        if kind is Punctuation:
            for mark in value:
                if mark in "([{":
                    self._calls.append(self._callee if mark == "(" else "")
                elif mark in ")]}" and len(self._calls) > 1:
                    self._calls.pop()
        if value.strip() and value != "?.":
            self._callee = value if kind in Name else ""
        self._before = "" if value in ";{}" else self._before + value


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: ast.literal_eval(f"'\\{found[1]}'"), text)


def read_literals(name: str, source: str) -> list[Literal]:
    return list(_Reader(name).read(source))


def script_literals() -> list[Literal]:
    """The strings of all of Parley's own scripts."""
    return [
        literal
        for path in sorted(SCRIPTS.rglob("*.js"))
        for literal in read_literals(str(path.relative_to(SCRIPTS)), path.read_text())
    ]
