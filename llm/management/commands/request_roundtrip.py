"""Decode recorded conversations to items and encode them for the same provider.

The codec's decoder converts the assistant's messages to items, as if they had just
arrived; `llm.wire.facades` reads the rest. Both bodies are then compared in their
normal form (`llm.management.request_normal_form`).
"""

from __future__ import annotations

import copy
import re
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from llm.errors import LLMError
from llm.management.commands.replay_recordings import (
    APIS,
    Recording,
    endpoint_of,
    recordings,
)
from llm.management.request_normal_form import differences, normalize
from llm.wire.facades import (
    chat_request,
    generate_content_request,
    messages_request,
    responses_request,
)
from llm.wire.items import Issuer
from llm.wire.request import Request

#: Anthropic's content block for a file for its code execution tool.
_UPLOAD = "container_upload"


class Command(BaseCommand):
    help = "Read recorded conversations as items, write them again, and compare."
    requires_system_checks = ()  # the command uses neither URLs nor the database

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "folder", type=Path, help="folder of recordings, one JSON file each"
        )
        parser.add_argument(
            "--api", help=f"only recordings of this API: {', '.join(APIS)}"
        )

    def handle(self, *, folder: Path, **options: Any) -> None:
        if not folder.is_dir():
            raise CommandError(f"There is no folder {str(folder)!r}.")
        counts: Counter[str] = Counter()
        for recording in conversations(recordings(folder, api=options["api"])):
            found = list(compare(recording))
            state = _state(found)
            counts[state] += 1
            self.stdout.write(f"{state:9} {recording['id']}")
            for difference in found:
                self.stdout.write(f"          {difference}")
        summary = ", ".join(
            f"{count} {state}" for state, count in sorted(counts.items())
        )
        self.stdout.write(f"{counts.total()} conversations: {summary or 'none'}.")
        if counts["different"]:
            raise CommandError("Some are not the same when written again.")


@dataclass(frozen=True, slots=True)
class Rule:
    """Expected differences: those that match `api`, `path` and `applies`."""

    reason: str
    api: str
    path: str  # a regular expression
    applies: Callable[[Any], bool]  # whether it applies to this codec


RULES = (
    Rule(
        "this host does not want plain thinking back",
        "chat",
        r"-messages\[\d+\]\.(reasoning|reasoning_content)",
        lambda codec: not codec.reasoning_echo,
    ),
    Rule(
        "this host is not known to take `strict`",
        "chat",
        r"-tools\[\d+\]\.function\.strict",
        lambda codec: not codec.strict_tools,
    ),
)


@dataclass(frozen=True, slots=True)
class RequestDifference:
    path: (
        str  # "+": only in Parley's; "-": only in the recording; else the values differ
    )
    reason: str = ""  # why the difference is expected; "" if it is not

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.reason else self.path


def compare(recording: Recording) -> Iterator[RequestDifference]:
    """The differences between a recorded request and its round trip."""
    body, changed = without_unsupported(recording["api"], recording["request"]["json"])
    yield from changed
    codec = _codec(recording)
    try:
        request = read_request(recording, body)
        written = codec.encode(request)
    except LLMError as exc:
        yield RequestDifference(f"not sent: {exc}")
        return
    api, degraded = recording["api"], codec.degraded(request)
    for path in differences(normalize(api, written), normalize(api, body)):
        yield RequestDifference(path, _reason(codec, api, path, degraded))


def without_unsupported(
    api: str, body: dict[str, Any]
) -> tuple[dict[str, Any], list[RequestDifference]]:
    """A copy without the parts that Parley never sends on purpose, and those parts."""
    body = copy.deepcopy(body)
    if api == "messages":
        return body, list(_drop_uploads(body))
    if api == "responses" and isinstance(body["input"], list):
        return body, [*_drop_lost_reasoning(body), *_stream_background(body)]
    return body, []


def _drop_uploads(body: dict[str, Any]) -> Iterator[RequestDifference]:
    for number, turn in enumerate(body["messages"]):
        if isinstance(turn["content"], str):
            continue
        blocks = [block for block in turn["content"] if block["type"] != _UPLOAD]
        if len(blocks) < len(turn["content"]):
            turn["content"] = blocks
            reason = "Parley has no item that puts a file into a container"
            yield RequestDifference(f"-messages[{number}].content {_UPLOAD}", reason)


def _drop_lost_reasoning(body: dict[str, Any]) -> Iterator[RequestDifference]:
    """Drop reasoning without content, and the ids of the items that follow it.

    Such an id refers to the item and its reasoning together.
    """
    items, anchored = [], True
    for number, item in enumerate(body["input"]):
        if item.get("type") != "reasoning":
            if not anchored and _is_from_assistant(item):
                item = {k: v for k, v in item.items() if k not in ("id", "status")}
            else:
                anchored = True
            items.append(item)
        elif item.get("encrypted_content") or item.get("content"):
            items.append(item)
        else:
            anchored = False
            reason = "only a host that has stored it can read it, and none stores it"
            yield RequestDifference(f"-input[{number}] reasoning", reason)
    body["input"] = items


def _is_from_assistant(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "function_call" or item.get("role") == "assistant"


def _stream_background(body: dict[str, Any]) -> Iterator[RequestDifference]:
    if body.get("background") and not body.get("stream"):
        body["stream"] = True
        yield RequestDifference("stream", "we stream what runs in the background")


def conversations(chosen: Iterable[Recording]) -> Iterator[Recording]:
    """Recordings whose request has earlier messages or calls of the assistant."""
    for recording in chosen:
        body = (recording.get("request") or {}).get("json")
        if recording["api"] in APIS and isinstance(body, dict) and _has_history(body):
            yield recording


def _has_history(body: Mapping[str, Any]) -> bool:
    entries = body.get("messages") or body.get("contents") or body.get("input") or ()
    return not isinstance(entries, str) and any(
        entry.get("role") in ("assistant", "model")
        or entry.get("type", "message") != "message"
        for entry in entries
    )


def read_request(recording: Recording, body: dict[str, Any]) -> Request:
    """The recorded request as a `Request`. Raises LLMError."""
    endpoint, codec = endpoint_of(recording), _codec(recording)
    assert endpoint
    model = recording["model"] or "unknown"
    issuer: Issuer = endpoint.issuer(model)
    match recording["api"]:
        case "chat":
            return chat_request.request_of(body, codec, issuer)
        case "responses":
            return responses_request.request_of(body, codec, issuer)
        case "messages":
            return messages_request.request_of(body, codec, issuer)
    return generate_content_request.request_of(body, model, codec, issuer)


def _codec(recording: Recording) -> Any:
    endpoint = endpoint_of(recording)
    assert endpoint
    return endpoint.codec


def _reason(codec: Any, api: str, path: str, degraded: Iterable[str]) -> str:
    if path.lstrip("+-").partition(".")[0] in degraded:
        return "reported to the client as degraded"
    for rule in RULES:
        if rule.api == api and rule.applies(codec) and re.fullmatch(rule.path, path):
            return rule.reason
    return ""


def _state(found: Iterable[RequestDifference]) -> str:
    reasons = [difference.reason for difference in found]
    if not reasons:
        return "same"
    return "argued" if all(reasons) else "different"
