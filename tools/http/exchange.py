"""What is asked of a web server, and what it answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_BODY = 1024 * 1024  # bytes of an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Only the method may be shown: the rest holds secrets and what people wrote."""

    method: str = "GET"
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Sent to the origin of `url` alone, whatever it redirects to.
    secret_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    size: int = MAX_BODY  # bytes of the answer, unpacked
    connect: float = 10.0  # seconds for finding and reaching the server
    total: float = 30.0  # seconds for all, redirects too
    redirects: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    status: int
    url: str = field(default="", repr=False)  # that answered, after redirects
    reason: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # lower case
    content_type: str = ""  # without its parameters, in lower case
    charset: str = ""
    body: bytes = field(default=b"", repr=False)
