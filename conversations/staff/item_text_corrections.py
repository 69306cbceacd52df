"""The texts of an item with their paths, and corrections to them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm.wire.items import Item

Path = tuple[str] | tuple[str, int, str]  # a field, or the text of a part of it

_FIXED = ("type", "id", "call_id", "role", "name", "status")
_PARTS = ("content", "summary", "output")


@dataclass(frozen=True, slots=True)
class ItemText:
    path: Path
    text: str

    @property
    def label(self) -> str:
        """The label in the admin: `content 1`."""
        match self.path:
            case (field,):
                return field
            case (field, number, _):
                return f"{field} {number + 1}"


def item_texts(item: Item) -> list[ItemText]:
    """Every text of the item, in reading order."""
    return list(_iterate_texts(item))


def with_text(item: Item, path: Path, text: str) -> Item:
    """A copy with another text, without the annotations and logprobs of the old one."""
    match path:
        case (field,):
            return {**item, field: text}
        case (field, number, name):
            parts = list(item[field])
            parts[number] = {**parts[number], name: text}
            for about in ("annotations", "logprobs"):
                if about in parts[number]:
                    parts[number][about] = []
            return {**item, field: parts}


def apply_corrections(old: Item, new: Item, texts: Mapping[Path, str]) -> Item:
    """`new` with `texts` inserted. Raises ValueError, with a message for staff, where
    the result could not replace `old`."""
    for name in _FIXED:
        if old.get(name) != new.get(name):
            raise ValueError(f"{name!r} cannot be changed.")
    for name in _PARTS:
        _check_parts(new.get(name), name, old.get(name))
    if not isinstance(new.get("arguments", ""), str):
        raise ValueError("'arguments' must be a text.")
    known = {item_text.path: item_text.text for item_text in item_texts(new)}
    if missing := [path for path in texts if path not in known]:
        raise ValueError(f"{'.'.join(map(str, missing[0]))!r} is no longer there.")
    before = {item_text.path: item_text.text for item_text in item_texts(old)}
    for path, text in {**known, **texts}.items():
        if text != before.get(path):
            new = with_text(new, path, text)
    return new


def _iterate_texts(item: Item) -> Iterator[ItemText]:
    for field in ("summary", "content", "arguments", "output"):
        value = item.get(field)
        if isinstance(value, str):
            yield ItemText((field,), value)
        elif isinstance(value, list):
            yield from _iterate_part_texts(field, value)


def _iterate_part_texts(field: str, parts: Sequence[Any]) -> Iterator[ItemText]:
    for number, part in enumerate(parts):
        for name in ("text", "refusal"):
            if isinstance(part.get(name), str):
                yield ItemText((field, number, name), part[name])


def _check_parts(value: Any, name: str, old: Any) -> None:
    if value is None and old is None:
        return
    if isinstance(value, str) and name != "summary":
        return
    if not isinstance(value, list):
        raise ValueError(f"{name!r} must be a text or a list of parts.")
    for part in value:
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise ValueError(f"Each part of {name!r} must be an object with a type.")
        if "text" in part and not isinstance(part["text"], str):
            raise ValueError(f"The text of a part of {name!r} must be a text.")
