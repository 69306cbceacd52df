"""What a value in a request may be, as small checks that are put together.

A check takes a value and where it stands (`messages[0].role`), and raises BadRequest
that names the place and what is wrong with it. It never shows more of the value than a
word that had to be one of a few.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import orjson

from llm.errors import BadRequest

Check = Callable[[Any, str], None]

_SHOWN = 60  # characters of a wrong word


def wrong(where: str, problem: str) -> BadRequest:
    return BadRequest(f"{where}: {problem}", param=where)


def request_body(body: Any) -> None:
    """Any JSON may come. What orjson can write, everything behind this can pass on: no
    half surrogate pairs, no numbers of hundreds of digits, no abyss of brackets."""
    if not isinstance(body, dict):
        raise BadRequest("The request must be a JSON object.")
    try:
        orjson.dumps(body)
    except TypeError as exc:
        problem = "The request holds broken text, a huge number or too many levels."
        raise BadRequest(problem) from exc


def anything(value: Any, where: str) -> None:
    pass


def string(value: Any, where: str) -> None:
    if not isinstance(value, str):
        raise wrong(where, "expected a string.")


def filled(value: Any, where: str) -> None:
    string(value, where)
    if not value:
        raise wrong(where, "must not be empty.")


def boolean(value: Any, where: str) -> None:
    if not isinstance(value, bool):
        raise wrong(where, "expected true or false.")


def integer(least: int | None = None, most: int | None = None) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong(where, "expected a whole number.")
        _within(value, least, most, where)

    return check


def number(least: float | None = None, most: float | None = None) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise wrong(where, "expected a number.")
        _within(value, least, most, where)

    return check


def _within(value: float, least: float | None, most: float | None, where: str) -> None:
    if least is not None and not value >= least:
        raise wrong(where, f"must be at least {least:g}.")
    if most is not None and not value <= most:
        raise wrong(where, f"must be at most {most:g}.")


def word(*words: str) -> Check:
    """One of a few."""

    def check(value: Any, where: str) -> None:
        string(value, where)
        if value not in words:
            known = ", ".join(words)
            raise wrong(where, f"{value[:_SHOWN]!r} is none of {known}.")

    return check


def mapping(value: Any, where: str) -> None:
    if not isinstance(value, dict):
        raise wrong(where, "expected an object.")


def record(checks: Mapping[str, Check], needed: Collection[str] = ()) -> Check:
    """An object; a field that is not `needed` may be null, others are free."""

    def check(value: Any, where: str) -> None:
        mapping(value, where)
        for name in needed:
            if value.get(name) is None:
                raise wrong(f"{where}.{name}", "missing.")
        for name, each in checks.items():
            if (given := value.get(name)) is not None:
                each(given, f"{where}.{name}")

    return check


def fields(
    body: Mapping[str, Any], checks: Mapping[str, Check], needed: Collection[str]
) -> None:
    """The same of a request's own fields, whose names stand alone."""
    for name in needed:
        if body.get(name) is None:
            raise wrong(name, "missing.")
    for name, each in checks.items():
        if (given := body.get(name)) is not None:
            each(given, name)


def values(each: Check) -> Check:
    """An object of any names."""

    def check(value: Any, where: str) -> None:
        mapping(value, where)
        for name, given in value.items():
            each(given, f"{where}.{name[:_SHOWN]}")

    return check


def array(each: Check, least: int = 0) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, list):
            raise wrong(where, "expected a list.")
        if len(value) < least:
            raise wrong(where, "must not be empty.")
        for index, given in enumerate(value):
            each(given, f"{where}[{index}]")

    return check


def either(**checks: Check) -> Check:
    """A string, list or object (`str`, `list`, `dict`), each with its check."""
    kinds = {"str": str, "list": list, "dict": dict}
    named = {"str": "a string", "list": "a list", "dict": "an object"}

    def check(value: Any, where: str) -> None:
        for name, each in checks.items():
            if isinstance(value, kinds[name]):
                return each(value, where)
        expected = " or ".join(named[name] for name in checks)
        raise wrong(where, f"expected {expected}.")

    return check


def by_type(
    checks: Mapping[str, Check], others: Check | None = None, field: str = "type"
) -> Check:
    """An object whose `field` says what else must be in it. `others` are the types
    that are not listed; None refuses them."""

    def check(value: Any, where: str) -> None:
        mapping(value, where)
        if field not in value:
            raise wrong(f"{where}.{field}", "missing.")
        kind = value[field]
        string(kind, f"{where}.{field}")
        if (each := checks.get(kind, others)) is None:
            known = ", ".join(checks)
            problem = f"{kind[:_SHOWN]!r} is not supported here; {known} are."
            raise wrong(f"{where}.{field}", problem)
        each(value, where)

    return check


def refused(problem: str, unless: Collection[Any] = (None, False)) -> Check:
    """For what is known and not to be had; `unless` it asks for nothing."""

    def check(value: Any, where: str) -> None:
        if not any(value is none or value == none for none in unless):
            raise wrong(where, problem)

    return check
