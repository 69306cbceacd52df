"""What a program of an MCP server writes to stderr before its first answer.

It says why the program does not start. What comes later may quote data of users and is
discarded. Values that may be keys are masked: those of the program's environment, of
its arguments that look like one, and what has the form of a known kind of key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from llm.wire.sanitize import sanitize_text
from tools.mcp.server_spec import Program

MAX_OUTPUT = 4096  # bytes that are kept
MIN_SECRET = 6  # bytes; to mask shorter ones would spoil the text
_NAME = re.compile(r"key|token|secret|pass|credential|auth|\bpat\b", re.IGNORECASE)
_PASSWORD = re.compile(r"://[^/@\s]*:([^/@\s]+)@")
_RANDOM = re.compile(r"(?=[^\d]*\d)[\w\-]{20,}")
_KEY = re.compile(
    rb"\b(?:sk|pk|rk|gh[opsu]|github_pat|glpat|xox[abprs]|AKIA|AIza|eyJ)[-\w.]{12,}"
    rb"|(?i:bearer|basic) +\S+"
)


class StartupOutput:
    """The last bytes that a program has written to stderr, until `end`."""

    def __init__(self, program: Program) -> None:
        found = {each.encode() for each in _secrets_in(program)}
        long_enough = (each for each in found if len(each) >= MIN_SECRET)
        self._secrets = sorted(long_enough, key=len, reverse=True)
        # More bytes than are shown: the first of them may be the rest of a key, cut
        # off.
        self._size = 2 * MAX_OUTPUT + max(map(len, self._secrets), default=0)
        self._tail = b""
        self._is_over = False

    def add(self, chunk: bytes) -> None:
        if not self._is_over:
            self._tail = (self._tail + chunk)[-self._size :]

    def end(self) -> None:
        """Forget the output, because the program has started."""
        self._is_over, self._tail = True, b""

    @property
    def text(self) -> str:
        """The output with its keys masked. Masks are as long as the keys, so that the
        bytes around the cut are never among those shown."""
        text = self._tail
        for secret in self._secrets:
            text = text.replace(secret, b"*" * len(secret))
        text = _KEY.sub(lambda found: b"*" * len(found[0]), text)
        return sanitize_text(text[-MAX_OUTPUT:].decode(errors="replace")).strip()


def _secrets_in(program: Program) -> Iterator[str]:
    yield from program.environment.values()
    before = ""
    for argument in program.arguments:
        name, _, value = argument.partition("=")
        if _NAME.search(name) and name.startswith("-"):
            yield value
        if before.startswith("-") and _NAME.search(before):
            yield argument
        yield from _PASSWORD.findall(argument)
        yield from _RANDOM.findall(argument)
        before = argument
