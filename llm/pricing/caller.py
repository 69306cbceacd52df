"""Who made a model call: the names that its row carries. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MAX_TAGS = 8
MAX_NAME = 200  # characters of an end user, and of a request id
TAG_PATTERN = r"[\w.:/@+\-]{1,64}"
_TAG = re.compile(TAG_PATTERN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """What is known of who made a call; nothing of it is sent to a provider."""

    user_id: int | None = None
    token_id: int | None = None
    token_label: str = ""
    end_user: str = ""  # whom the client names, as `user` or `safety_identifier`
    tags: str = ""  # as `join_tags` writes them
    request_id: str = ""  # given by Parley
    client_request_id: str = ""  # the client's own
    trace_parent: str = ""  # of the trace that the request belongs to


UNKNOWN_CALLER = Caller()


def join_tags(tags: Iterable[str]) -> str:
    """Sorted, each once, with commas: so the same tags are always the same text.

    Raises ValueError.
    """
    found = list(tags)
    for tag in found:
        if not isinstance(tag, str) or not _TAG.fullmatch(tag):
            raise ValueError(
                "a tag has 1 to 64 letters, digits and signs of . : / @ + - _"
            )
    if len(set(found)) > MAX_TAGS:
        raise ValueError(f"there may be {MAX_TAGS} tags at most")
    return ",".join(sorted(set(found)))


def cut_name(value: object) -> str:
    """A name as the column takes it: "" unless it is printable text."""
    if not isinstance(value, str) or not value.isprintable():
        return ""
    return value[:MAX_NAME]
