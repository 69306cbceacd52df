"""HTTP request, response and limits as plain values. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_BODY = 1024 * 1024  # bytes of an answer
#: Encodings of the web, by Python's names. Python knows others that no page is written
#: in, and "punycode" takes time that grows with the square of the text.
#: https://encoding.spec.whatwg.org/#names-and-labels
_ENCODINGS = frozenset(
    {
        *("ascii", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"),
        *(f"iso8859-{part}" for part in range(1, 17)),
        *(f"cp{page}" for page in (866, 874, 932, 949, 950, *range(1250, 1259))),
        *("koi8-r", "koi8-u", "mac-roman", "mac-cyrillic"),
        *("gb2312", "gbk", "gb18030", "big5", "big5hkscs"),
        *("euc_jp", "iso2022_jp", "shift_jis", "euc_kr"),
    }
)


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
    reads_body: bool = True  # False: the headers are the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedResponse:
    status: int
    url: str = field(default="", repr=False)  # after redirects
    reason: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # lower case
    content_type: str = ""  # without its parameters, in lower case
    charset: str = ""
    body: bytes = field(default=b"", repr=False)

    @property
    def text(self) -> str:
        """The body decoded by its charset, else as UTF-8, with U+FFFD for bytes that
        cannot be decoded."""
        return self.body.decode(_encoding(self.charset), "replace")


def _encoding(charset: str) -> str:
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        name = ""
    return name if name in _ENCODINGS and name != "utf-8" else "utf-8-sig"
