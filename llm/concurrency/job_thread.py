"""A thread for a job that goes on after its request."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

from django.utils import translation


def start_job(run: Callable[[], None], name: str) -> None:
    """Run it in the language of now: no language is active on a new thread, and what
    the job writes is for whoever started it."""
    language = translation.get_language()

    def run_in_language() -> None:
        with translation.override(language):
            run()

    Thread(target=run_in_language, name=name, daemon=True).start()
