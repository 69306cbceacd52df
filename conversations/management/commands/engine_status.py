"""Command `engine_status`: what runs, what waits and what is stuck."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from conversations.staff.engine_status import Status, format_duration, status


class Command(BaseCommand):
    help = (
        "Show running, queued and waiting turns, calls in the background, open"
        " questions and workers. The exit code is 1 if something is stuck."
    )
    requires_system_checks = []  # monitoring calls this every minute

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="for programs")

    def handle(self, **options: Any) -> None:
        try:
            found = status()
        except OperationalError as exc:
            reason = str(exc).partition("\n")[0].rstrip(".")
            raise CommandError(f"The database does not respond: {reason}.") from exc
        if options["json"]:
            self.stdout.write(json.dumps(found.as_dict(), indent=2))
        else:
            self.stdout.write("\n".join(_lines(found)))
        if found.stuck:
            raise SystemExit(1)


def _lines(found: Status) -> Iterator[str]:
    yield from _counts(found)
    yield from _turns(found)
    yield from _calls(found)
    yield from _questions(found)
    if found.is_cut:
        yield ""
        yield "The list is incomplete: there are more rows than shown."


def _counts(found: Status) -> Iterator[str]:
    counts = found.counts
    yield f"{found.delivery}, {found.at:%Y-%m-%d %H:%M:%S} UTC"
    yield (
        f"turns: {counts['running']} running, {counts['queued']} queued,"
        f" {counts['waiting']} waiting for a person"
    )
    yield f"calls in the background: {counts['calls']}"
    yield f"open questions: {counts['questions']}"
    yield f"oldest wait: {_duration(found.oldest_wait)}"
    if found.delivery == "scaled":
        yield f"workers: {_workers(found)}"
    yield f"stuck: {found.stuck}"


def _turns(found: Status) -> Iterator[str]:
    rows = [
        [
            turn.id,
            "stopping" if turn.is_stopping else turn.status,
            _duration(turn.age),
            _duration(turn.waited),
            turn.epoch,
            turn.claims,
            _duration(turn.lease_left),
            turn.model or "default",
            turn.owner,
            turn.stuck,
        ]
        for turn in found.turns
    ]
    yield from _table(
        "TURN STATUS AGE WAITED EPOCH CLAIMS LEASE MODEL OWNER STUCK", rows
    )


def _calls(found: Status) -> Iterator[str]:
    rows = [
        [
            call.call_id,
            call.tool,
            _duration(call.age),
            call.epoch,
            _duration(call.lease_left),
            "elsewhere" if call.is_elsewhere else "here",
            call.turn,
            call.owner,
            call.stuck,
        ]
        for call in found.calls
    ]
    yield from _table("CALL TOOL AGE EPOCH LEASE WHERE TURN OWNER STUCK", rows)


def _questions(found: Status) -> Iterator[str]:
    rows = [
        [
            question.id,
            question.kind,
            question.tool,
            _duration(question.age),
            _duration(question.expires_in),
            question.asked,
            question.turn,
        ]
        for question in found.questions
    ]
    yield from _table("QUESTION KIND TOOL AGE EXPIRES ASKED TURN", rows)


def _workers(found: Status) -> str:
    if not found.workers:
        return "no worker has sent a heartbeat"
    descriptions = (
        f"{worker.id} (last heartbeat {_duration(worker.heard)} ago"
        + (", lost)" if worker.is_lost else ")")
        for worker in found.workers
    )
    return ", ".join(descriptions)


def _table(heading: str, rows: Sequence[Sequence[object]]) -> Iterator[str]:
    if not rows:
        return
    cells = [heading.split(), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    yield ""
    for row in cells:
        pairs = zip(row, widths, strict=True)
        yield "  ".join(cell.ljust(width) for cell, width in pairs).rstrip()


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return format_duration(seconds)
