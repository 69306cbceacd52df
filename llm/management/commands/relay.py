"""Convert a recorded stream to another API's format on standard output.

The file has the bytes of a provider's stream, or a recording that `replay_recordings`
can read.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import orjson
from django.core.management.base import BaseCommand, CommandError

from llm.errors import LLMError
from llm.management.commands.replay_recordings import body_of
from llm.relay import SOURCES, TARGETS, Relay, relay


class Command(BaseCommand):
    help = "Write a provider's recorded stream as another API would stream it."
    requires_system_checks = ()  # the command uses neither URLs nor the database

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help='"-" for the standard input')
        parser.add_argument("--from", dest="source", required=True, choices=SOURCES)
        parser.add_argument("--to", dest="target", required=True, choices=TARGETS)
        parser.add_argument("--model", default="", help="what the client receives")
        parser.add_argument(
            "--events",
            action="store_true",
            help="write the canonical events instead, as a program receives them",
        )
        parser.add_argument(
            "--collect",
            action="store_true",
            help="write the complete response, not a stream",
        )
        parser.add_argument(
            "--fragments",
            action="store_true",
            help="write tool calls while they arrive",
        )

    def handle(self, *, file: Path, source: str, target: str, **options: Any) -> None:
        relayed = relay(
            [_read(file)],
            source,
            target,
            model=options["model"],
            buffer_tool_calls=not options["fragments"],
        )
        if options["collect"]:
            self.stdout.write(_collect(relayed))
            return
        for line, event in relayed:
            if options["events"]:
                self.stdout.write(orjson.dumps(event).decode())
            else:
                self.stdout.write(line.decode(), ending="")
        if relayed.error is not None:
            raise CommandError(f"The answer failed: {relayed.error}")


def _read(file: Path) -> bytes:
    if str(file) == "-":
        return sys.stdin.buffer.read()
    try:
        body = file.read_bytes()
    except OSError as exc:
        raise CommandError(f"{str(file)!r} cannot be read: {exc.strerror}.") from exc
    try:
        recording = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    if isinstance(recording, dict) and isinstance(recording.get("response"), dict):
        return body_of(recording)
    return body


def _collect(relayed: Relay) -> str:
    try:
        answer = relayed.collect()
    except LLMError as exc:
        raise CommandError(f"The answer failed: {exc}") from exc
    return orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode()
