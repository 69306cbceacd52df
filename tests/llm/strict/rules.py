"""What the strict fakes have in common: rules as data, proofs, and what to answer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from llm.wire.items import Issuer

Body = dict[str, Any]
Mark = tuple[str, str]  # ("user", its words) or ("calls", "")

TOOL = {
    "type": "function",
    "name": "look",
    "description": "Look somewhere.",
    "parameters": {
        "type": "object",
        "properties": {"at": {"type": "string"}},
        "required": ["at"],
    },
}
PLACES = ("north", "south")


@dataclass(frozen=True, slots=True)
class Refusal:
    message: str
    status: int = 400


@dataclass(frozen=True, slots=True)
class Rule:
    """`broken` yields, for each offence, what to put into the provider's sentence."""

    message: str
    broken: Callable[[Body, Issuer], Iterable[Mapping[str, Any]]]


def refusal(rules: Sequence[Rule], body: Body, issuer: Issuer) -> Refusal | None:
    for rule in rules:
        for offence in rule.broken(body, issuer):
            return Refusal(rule.message.format(**offence))
    return None


# Proofs


def digest(*values: Any) -> str:
    encoded = orjson.dumps(values, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2s(encoded, digest_size=6).hexdigest()


def seal(issuer: Issuer, *vouched_for: Any) -> str:
    return f"{mark(issuer)}{digest(*vouched_for)}"


def mark(issuer: Issuer) -> str:
    """The prefix of every proof of `issuer`, and of no other."""
    return "FAKE-{provider}-{model}-{route}-".format(**issuer)


_SEAL = re.compile(r"FAKE-[^\"\s]*-(?=[0-9a-f]{12})")


def marks_in(body: Body) -> set[str]:
    """Whose proofs are anywhere in `body`."""
    return set(_SEAL.findall(orjson.dumps(body).decode()))


# What to answer

_WISH = re.compile(r"wish: (\w+)")


def wish(marks: Sequence[Mark]) -> str:
    """What the user wants now: "tools" are two calls at once, then words."""
    wanted, rounds = "words", 0
    for kind, text in marks:
        if kind == "calls":
            rounds += 1
        elif found := _WISH.search(text):
            wanted, rounds = found[1], 0
    match wanted:
        case "steps":
            return "tools" if rounds < 2 else "words"
        case _:
            return "words" if rounds else wanted


# Rules that several APIs have


def doubles(values: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            yield value
        seen.add(value)


def event(data: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (data["type"].encode(), orjson.dumps(data))
