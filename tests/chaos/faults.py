"""The faults of an answer, and the positions where they occur."""

from __future__ import annotations

from dataclasses import dataclass

#: Refusals before the first byte: HTTP statuses.
STATUSES = {
    "400": 400,
    "429": 429,
    "500": 500,
    "503": 503,
    "529": 529,
}
RETRY_AFTER = 1  # seconds, with a 429
#: What else may happen before the first byte of an answer.
BEFORE = (
    *STATUSES,
    "html page",
    "html error",
    "cut before the first byte",
    "idle close",
)
#: And once an answer has begun.
WITHIN = (
    "cut after the head",
    "cut in the middle",
    "cut before the end marker",
    "error event",
    "truncated json",
    "silence",
    "no finish reason",
    "doubled end",
)
FAULTS = (*BEFORE, *WITHIN)
#: After which an answer is whole all the same, so that no turn may fail for them.
HARMLESS = ("idle close", "silence", "doubled end")
#: Which another attempt of the same call mends, and how many attempts a call has.
RETRIED = ("500", "503", "529", "html error", "cut before the first byte")
ATTEMPTS = 3
HTML = b"<!doctype html><html><body><h1>Chaos</h1><p>No such gateway.</p></body></html>"


@dataclass(frozen=True, slots=True)
class Harm:
    """How a fault changes a stream of `length` frames with `content` of content."""

    stops_after: int  # frames; what follows is not sent
    cuts: bool = False  # the connection is cut there, and not ended in order
    silent: bool = False  # nothing is sent for a while there
    #: The stream is whole although it breaks off: nothing was lost.
    ends: bool = False


def fails_turns(fault: str, requests: int) -> bool:
    """Whether a turn may fail if its first so many requests have the fault; 0: all."""
    if not fault or fault in HARMLESS:
        return False
    return not (fault in RETRIED and 0 < requests < ATTEMPTS)


def harm(fault: str, length: int, content: int) -> Harm:
    half = max(1, content // 2)
    match fault:
        case "cut after the head":
            return Harm(0, cuts=True)
        case "cut in the middle":
            return Harm(half, cuts=True)
        case "cut before the end marker":
            return Harm(content, cuts=True)
        case "error event" | "truncated json":
            return Harm(half)
        case "no finish reason":
            return Harm(content)
        case "silence":
            return Harm(length, silent=True, ends=True)
    return Harm(length, ends=True)
