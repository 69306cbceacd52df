"""Asynchronous results of HTTP tools: job URL, state and polling interval. Pure.

A server that answers `202 Accepted` names the job's URL in its `Location` header, or a
URL or an id in its body. Parley polls that URL until the job is done, at the interval
that the server asks for (`Retry-After`).

Source: https://www.rfc-editor.org/rfc/rfc9110#name-202-accepted
Source: https://www.rfc-editor.org/rfc/rfc9110#name-retry-after
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from tools.errors import AddressRefused, ToolError
from tools.http.exchange import FetchedResponse, OutgoingRequest
from tools.http.request_template import ACCEPT, ParameterLocation
from tools.http.result import parse_json, resolve_pointer
from tools.json_schema import long_integers

ACCEPTED = 202
CALLBACK_LOCATIONS = ("header", "query", "body")
LONGEST_WAIT = 60 * 60  # seconds
MAX_URL = 500  # characters of a job's URL

#: The server is overloaded or restarting; the job itself may be fine.
_BUSY = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncResultSpec:
    """How to get a tool's asynchronous result: by polling, by callback, or both."""

    job_pointer: str = ""  # to a URL or an id; "" for the header Location
    job_url: str = ""  # the URL of a job, with `{id}` in it
    state_pointer: str = ""
    pending_states: frozenset[str] = field(default_factory=frozenset)  # job states
    poll_after: float = 10.0  # seconds between two polls
    callback_location: ParameterLocation | None = None  # where the callback URL is sent


def find_job_url(fetched: FetchedResponse, spec: AsyncResultSpec) -> str:
    """The URL to poll for the result; "" if the answer names none.

    Raises ToolError (AddressRefused for http after https).
    """
    if not spec.job_pointer:
        named = fetched.headers.get("location", "")
    else:
        named = _job_name(resolve_pointer(parse_json(fetched.body), spec.job_pointer))
        if named and spec.job_url:
            url = spec.job_url.replace("{id}", quote(named, safe="", errors="replace"))
            return _check_job_url(url, fetched.url)
    return _check_job_url(urljoin(fetched.url, named), fetched.url) if named else ""


def _job_name(value: Any) -> str:
    """The URL or id; "" for what is neither."""
    is_name = isinstance(value, str | int | float) and not isinstance(value, bool)
    return _text(value) if is_name else ""


def is_pending(fetched: FetchedResponse, spec: AsyncResultSpec) -> bool:
    """True if the answer says that the job is not done."""
    if fetched.status == ACCEPTED or fetched.status in _BUSY:
        return True
    if not spec.state_pointer or fetched.status >= 300:
        return False
    return (
        _text(resolve_pointer(parse_json(fetched.body), spec.state_pointer))
        in spec.pending_states
    )


def seconds_to_next_poll(
    fetched: FetchedResponse, spec: AsyncResultSpec, now: datetime | None = None
) -> float:
    """Seconds until the next poll."""
    retry_after = fetched.headers.get("retry-after", "").strip()
    seconds = _seconds(retry_after, now or datetime.now(UTC))
    return min(max(spec.poll_after if seconds is None else seconds, 1.0), LONGEST_WAIT)


def build_poll_request(
    url: str,
    home: str,
    headers: Mapping[str, str],
    secret_headers: Mapping[str, str],
) -> OutgoingRequest:
    """The request that polls a job. The tool's headers are sent only if the job has the
    same origin as `home`, the tool's own URL."""
    if _origin(url) != _origin(home):
        return OutgoingRequest(url=url, headers={"Accept": ACCEPT})
    plain = {n: text for n, text in headers.items() if n.lower() != "content-type"}
    return OutgoingRequest(
        url=url, headers={"Accept": ACCEPT, **plain}, secret_headers=secret_headers
    )


def _check_job_url(url: str, requested_url: str) -> str:
    if len(url) > MAX_URL:
        raise ToolError(
            f"the server returned a URL of more than {MAX_URL} characters for the"
            " result."
        )
    if urlsplit(requested_url).scheme == "https" and urlsplit(url).scheme == "http":
        raise AddressRefused(
            "the result's URL leads from https to http, which is not allowed."
        )
    return url


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname or "", parts.port or usual


def _seconds(text: str, now: datetime) -> float | None:
    """Seconds from a number or until a date; None for any other text."""
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return (at - now).total_seconds()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else long_integers.dump(value).decode()
