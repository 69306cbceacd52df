"""Which attribute an operation of a PATCH acts on. Source: RFC 7644, section 3.5.2.

django-scim2's own paths keep the case of names, although names compare without it, and
drop the conditions that they do not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django_scim import exceptions

_CORE = re.compile(r"urn:ietf:params:scim:schemas:core:2\.0:(?:user|group):", re.I)
_NAME = r"[a-z$][\w$-]*"
_PATH = re.compile(
    rf"(?P<name>{_NAME})(?:\[(?P<condition>[^\[\]]*)\])?(?:\.(?P<sub>{_NAME}))?", re.I
)
_MEMBER = re.compile(r'\s*value\s+eq\s+"([^"]*)"\s*', re.I)
_CLAUSE = re.compile(r'([a-z]+)\s+eq\s+"?([^"\s]*)"?', re.I)


@dataclass(frozen=True)
class Target:
    """An attribute and its sub-attribute, in lower case, and the condition in
    brackets."""

    name: str
    sub_attribute: str = ""
    condition: str = ""

    @property
    def is_extension(self) -> bool:
        return self.name.startswith("urn:")

    def list_clauses(self) -> list[tuple[str, str]]:
        found = _CLAUSE.findall(self.condition)
        return [(name.lower(), value) for name, value in found]


class Change(NamedTuple):
    kind: str  # "add", "replace" or "remove"
    target: Target
    value: Any


_MEMBERS = Target("members")


def join_members(changes: Iterable[Change]) -> Iterator[Change]:
    """The changes, with those that add one member after the other, or remove them, as
    one: programs send thousands, and each costs statements of its own."""
    members: list[Any] = []
    joined: Change | None = None  # the first of those whose members are collected
    for change in map(_name_members, changes):
        is_joined = _changes_members(change)
        if joined is not None and not (is_joined and joined.kind == change.kind):
            yield joined._replace(value=members)
            joined, members = None, []
        if is_joined:
            joined = joined or change
            members.extend(change.value)
        else:
            yield change
    if joined is not None:
        yield joined._replace(value=members)


def _name_members(change: Change) -> Change:
    """The removal of `members[value eq "…"]` as that of a list of one."""
    target = change.target
    if change.kind != "remove" or replace(target, condition="") != _MEMBERS:
        return change
    named = _MEMBER.fullmatch(target.condition)
    return Change("remove", _MEMBERS, [{"value": named[1]}]) if named else change


def _changes_members(change: Change) -> bool:
    is_one_by_one = change.kind in ("add", "remove") and change.target == _MEMBERS
    return is_one_by_one and isinstance(change.value, list)


def list_targets(operation: dict[str, Any]) -> Iterator[tuple[Target, Any]]:
    """Raises BadRequestError."""
    path, value = operation.get("path"), operation.get("value")
    if path:
        yield from _expand(_read_path(path), value)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _expand(_read_path(key), each)
    else:
        raise exceptions.BadRequestError(
            "path: write the path of an attribute.", scim_type="noTarget"
        )


def _read_path(path: str) -> Target:
    """Raises BadRequestError."""
    text = _CORE.sub("", path.strip(), count=1)
    if text.lower().startswith("urn:"):
        return Target(text.lower())
    found = _PATH.fullmatch(text)
    if found is None:
        raise exceptions.BadRequestError(
            "path: write the path of an attribute.", scim_type="invalidPath"
        )
    return Target(
        name=found["name"].lower(),
        sub_attribute=(found["sub"] or "").lower(),
        condition=found["condition"] or "",
    )


def _expand(target: Target, value: Any) -> Iterator[tuple[Target, Any]]:
    """An operation on a whole `name`, as Okta sends it, acts on each part of it."""
    if target.name == "name" and not target.sub_attribute and isinstance(value, dict):
        for name, each in value.items():
            yield replace(target, sub_attribute=name.lower()), each
    else:
        yield target, value
