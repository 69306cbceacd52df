"""The error of a wrong environment variable."""

from __future__ import annotations


class ConfigurationError(SystemExit):
    """Stops the process; only its text is printed."""

    def __init__(self, variable: str, problem: str) -> None:
        super().__init__(f"{variable}: {problem}")
