"""HTTP request, response and limits as plain values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_BODY = 1024 * 1024  # bytes of an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRequest:
    """A request. Its repr has only the method: the rest has secrets and user data."""

    method: str = "GET"
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Sent only to the origin of `url`, not to other origins after a redirect.
    secret_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    size: int = MAX_BODY  # bytes of the answer, unpacked
    connect: float = 10.0  # seconds for resolving the name and connecting
    total: float = 30.0  # seconds for the whole exchange, with redirects
    redirects: int = 5  # 0: a redirect is the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedResponse:
    status: int
    url: str = field(default="", repr=False)  # after redirects
    reason: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # lower case
    content_type: str = ""  # without its parameters, in lower case
    charset: str = ""
    body: bytes = field(default=b"", repr=False)
