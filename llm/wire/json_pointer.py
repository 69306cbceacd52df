"""JSON Pointers and readable paths into a JSON document.

Source: https://www.rfc-editor.org/rfc/rfc6901
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import unquote


def steps_of(pointer: str) -> Iterator[str]:
    """The reference tokens of `pointer`; it may be in a URL, as in `"$ref": "#/a/b"`,
    where characters may be percent-encoded."""
    if pointer.startswith("#"):
        pointer = unquote(pointer)
    for step in pointer.removeprefix("#").split("/")[1:]:
        yield step.replace("~1", "/").replace("~0", "~")


def is_index(step: str, items: Sequence[object]) -> bool:
    """Whether the reference token names one of `items`."""
    # Python refuses to read a number of some thousand digits.
    is_short = len(step) <= len(str(len(items)))
    return is_short and step.isdecimal() and int(step) < len(items)


def format_path(path: Sequence[str | int]) -> str:
    """Format `["pages", 2, "title"]` as `pages[2].title`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).removeprefix(".")
