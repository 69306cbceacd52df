"""A thread for a job that goes on after its request."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

from django.utils import translation


def start_job(run: Callable[[], None], name: str) -> None:
    """Run it on a new thread, in the language of the caller, who reads what it writes:
    no language is active on a new thread."""
    language = translation.get_language()

    def run_in_language() -> None:
        with translation.override(language):
            run()

    Thread(target=run_in_language, name=name, daemon=True).start()
