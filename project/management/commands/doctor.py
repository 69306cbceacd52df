"""Command `doctor`: what is wrong with this server, and what to do."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand

from project.diagnosis.diagnosis import Diagnosis
from project.diagnosis.findings import diagnose


class Command(BaseCommand):
    help = (
        "Say what is wrong with this server and what to do. The exit code is 1 if"
        " there is an error, and 0 with warnings alone."
    )
    requires_system_checks = []  # it says in words what they find

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="for programs")

    def handle(self, **options: Any) -> None:
        found = list(diagnose())
        if options["json"]:
            self.stdout.write(json.dumps([asdict(each) for each in found], indent=2))
        else:
            self.stdout.write("\n".join(_lines(found)))
        if any(each.state == "error" for each in found):
            raise SystemExit(1)


def _lines(found: list[Diagnosis]) -> Iterator[str]:
    for each in found:
        yield f"{each.state:8}{each.name}: {each.text}"
        if each.advice:
            yield f"{'':8}{each.advice}"
