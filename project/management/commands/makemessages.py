"""`makemessages`, made repeatable: a second run changes nothing.

GNU gettext writes a date and empty headers into each catalogue, and fills new texts
with guesses from similar ones.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.commands import makemessages

_HEADERS = (
    "Report-Msgid-Bugs-To",
    "POT-Creation-Date",
    "PO-Revision-Date",
    "Last-Translator",
    "Language-Team",
)
_UNWANTED = re.compile(rf'^"(?:{"|".join(_HEADERS)}):.*\n', re.MULTILINE)


class Command(makemessages.Command):
    """Removes headers that say nothing, and makes no guesses."""

    msgmerge_options = [*makemessages.Command.msgmerge_options, "--no-fuzzy-matching"]

    def handle(self, *args: Any, **options: Any) -> None:
        super().handle(*args, **options)
        for folder in settings.LOCALE_PATHS:
            for catalogue in Path(folder).rglob("*.po"):
                text = catalogue.read_text()
                catalogue.write_text(_UNWANTED.sub("", text))
