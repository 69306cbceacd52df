"""The visible text of an HTML page, in linear time. Pure.

It reads the beginning of an error page, which may be malformed and may come from a
hostile server. Every search starts where the last one ended, and parsing ends at the
first search without a match, so no character is read more than three times.
"""

from __future__ import annotations

_HIDDEN = ("script", "style")  # elements whose content is not text


def visible_text(page: str) -> str:
    """The text between the tags; each tag becomes a space."""
    lower = page.lower() if page.isascii() else _ascii_lower(page)
    parts: list[str] = []
    position = 0
    while (tag := page.find("<", position)) >= 0:
        parts.append(page[position:tag])
        end = page.find(">", tag)
        if end < 0:  # an unclosed "<" is text
            position = tag
            break
        position = end + 1
        if (name := _hidden_element(lower, tag)) and (
            position := _end_of_element(lower, name, position)
        ) < 0:
            return " ".join(parts)
    parts.append(page[position:])
    return " ".join(parts)


def _ascii_lower(text: str) -> str:
    """The text in lower case with its length unchanged: 'İ'.lower() has length 2."""
    return "".join(c.lower() if c.isascii() else c for c in text)


def _hidden_element(lower: str, tag: int) -> str:
    for name in _HIDDEN:
        end = tag + 1 + len(name)
        if lower.startswith(name, tag + 1) and not lower[end : end + 1].isalnum():
            return name
    return ""


def _end_of_element(lower: str, name: str, start: int) -> int:
    """The position after `</name>`; -1 if the element is never closed."""
    closing = lower.find(f"</{name}", start)
    end = lower.find(">", closing) if closing >= 0 else -1
    return end + 1 if end >= 0 else -1
