"""The limits and codes of `docs/gateway.md` and `rest.md` are those of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from rest_framework.exceptions import APIException

from conversations.api import urls as _all_addresses
from conversations.gateway import app as _all_endpoints
from conversations.gateway import http, websocket
from conversations.gateway.exchanges import idempotency
from conversations.http import sse
from llm.errors import LLMError
from llm.pricing import caller
from llm.wire import bounded_json

assert _all_addresses
assert _all_endpoints, "imports every endpoint, and so every error"
DOCS = Path(__file__).parents[3] / "docs"
TEXT = (DOCS / "gateway.md").read_text(encoding="utf-8")
#: A class of errors, and an error of pages, which no token gets.
_NOT_SENT = {"TryAgain", "ProofMissing"}
_OWN = (
    "conversations.gateway",
    "conversations.access.errors",
    "llm.errors",
    "llm.http",
)
#: Raised for requests over REST, or the error of a turn that they opened.
_OF_REST = ("conversations.api", "conversations.engine", "conversations.input")
_OF_REST += ("conversations.models", "conversations.requests", "conversations.turns")
#: Of acts in the admin.
_OF_STAFF = ("conversations.engine.evaluations", "conversations.engine.replays")


def errors(
    modules: tuple[str, ...] = _OWN, parent: type[Any] = LLMError
) -> Iterator[type[Any]]:
    for each in parent.__subclasses__():
        if each.__module__.startswith(modules):
            yield each
        yield from errors(modules, each)


def documented() -> dict[str, set[str]]:
    """Codes by their status, from the tables of both documents."""
    found: dict[str, set[str]] = {}
    for name in ("gateway.md", "tokens.md"):
        for line in (DOCS / name).read_text(encoding="utf-8").splitlines():
            if row := re.match(r"\| ([\d, ]+) \|(.*)\|", line):
                codes = re.findall(r"`(\w+)`", row[2])
                for status in row[1].split(","):
                    found.setdefault(status.strip(), set()).update(codes)
    return found


def test_every_code_is_in_a_table_beside_its_status():
    tables = documented()
    missing = {
        f"{each.status} {each.openai_code or each.code} ({each.__name__})"
        for each in errors()
        if each.__name__ not in _NOT_SENT
        and (each.openai_code or each.code) not in tables.get(str(each.status), ())
    }
    assert not missing, "\n".join(sorted(missing))


def test_every_code_of_rest_is_in_its_table_or_text():
    text = (DOCS / "rest.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", text)) | set().union(*documented().values())
    codes = {
        each.openai_code or each.code
        for each in errors(_OF_REST)
        if not each.__module__.startswith(_OF_STAFF)
    }
    codes |= {each.default_code for each in errors(_OF_REST, APIException)}
    assert codes - {APIException.default_code} <= named


_WORDS = {8: "eight"}


def _longest_tag() -> str:
    [longest] = re.findall(r",(\d+)\}", caller.TAG_PATTERN)
    return str(longest)


@pytest.mark.parametrize(
    "words",
    [
        f"| body as sent | {settings.DATA_UPLOAD_MAX_MEMORY_SIZE // 1024**2} MiB |",
        f"| values in a body | {bounded_json.MAX_VALUES:,} |",
        f"| `Idempotency-Key` | {idempotency.MAX_KEY} characters, for 24 hours |",
        f"Answers above {idempotency.MAX_ANSWER // 1024**2} MB are not stored",
        f"| tags | {_WORDS[caller.MAX_TAGS]} of {_longest_tag()} characters |",
        f"its last {websocket.MAX_REMEMBERED_RESPONSES} responses",
        f"The gateway waits {http.STATUS_WAIT:.0f} seconds for the first text, and"
        f" {http.STATUS_WAIT + http.RETRY_WAIT:.0f} while",
        f"another follows every {sse.HEARTBEAT:.0f} silent",
    ],
)
def test_every_limit_is_the_one_of_the_code(words: str):
    assert words in " ".join(TEXT.split())
