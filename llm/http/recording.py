"""The bytes of one provider call, for staff who may read them, with secrets masked.

Only calls of providers that keep exchanges are recorded (`Endpoint.keeps_exchanges`).
While the call runs, references to the bytes are kept, up to a size; `pack` masks and
compresses them, and belongs in a thread.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from llm.conf import settings
from llm.db.encrypted_field import MASK, scrub
from llm.provider import credentials_of

#: Bytes that are kept beyond the limit, so that a secret at the cut is masked whole.
MARGIN = 8_192
_SECRET_NAME = re.compile(
    r"auth|cookie|credential|key|password|secret|signature|token", re.IGNORECASE
)
#: Values in a request's JSON that are credentials: those of hosted MCP servers.
_SECRET_VALUE = re.compile(
    r'("(?:authorization|api_?key|x-[a-z-]*key|[a-z_]*secret|[a-z]+_token)"\s*:\s*)'
    r'"(?:[^"\\]|\\.)*"',
    re.IGNORECASE,
)
_SECRET_HEADERS = re.compile(r'("headers"\s*:\s*)\{[^{}]*\}')

Headers = Sequence[tuple[str, str]]


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Recording:
    """One request and its response."""

    method: str
    url: httpx.URL
    headers: httpx.Headers
    secrets: Sequence[str]
    limit: int  # bytes of each body
    body: bytes
    body_size: int
    status: int | None = None
    response_headers: Headers = ()
    chunks: list[bytes] = field(default_factory=list)
    size: int = 0  # bytes of the response
    _packed: bytes | None = None

    @classmethod
    def of(
        cls, message: httpx.Request, api_key: str, auth_headers: Mapping[str, str]
    ) -> Recording:
        values = [api_key, *credentials_of(auth_headers)]
        body = message.content
        limit = settings.EXCHANGE_MAX_SIZE
        return cls(
            # Not the message itself, which holds the whole body.
            method=message.method,
            url=message.url,
            headers=message.headers,
            secrets=values,
            limit=limit,
            body=body[: limit + MARGIN],
            body_size=len(body),
        )

    def note_response(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.response_headers = response.headers.multi_items()

    def note_chunk(self, chunk: bytes) -> None:
        if self.size < self.limit + MARGIN:
            self.chunks.append(chunk)
        self.size += len(chunk)

    def pack(self) -> bytes:
        """Compressed JSON without secrets; computed once."""
        if self._packed is None:
            self._packed = zlib.compress(orjson.dumps(self._content()), 6)
        return self._packed

    def _content(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "url": self._mask_url(),
            "request_headers": self._mask_headers(self.headers.multi_items()),
            "request": mask_values(self._text(self.body)),
            "request_size": self.body_size,
            "request_cut": self.body_size > self.limit,
            "status": self.status,
            "response_headers": self._mask_headers(self.response_headers),
            "response": self._text(b"".join(self.chunks)),
            "response_size": self.size,
            "response_cut": self.size > self.limit,
        }

    def _text(self, body: bytes) -> str:
        return self._mask(body.decode(errors="replace"))[: self.limit]

    def _mask(self, text: str) -> str:
        return scrub(text, self.secrets)

    def _mask_url(self) -> str:
        url = self.url
        for name in url.params:
            if _SECRET_NAME.search(name):
                url = url.copy_set_param(name, MASK)
        return self._mask(str(url))

    def _mask_headers(self, headers: Iterable[tuple[str, str]]) -> Headers:
        return [
            (name, MASK if _is_secret(name) else self._mask(value))
            for name, value in headers
        ]


#: Names that only look secret: rate limits of providers, which staff want to read.
_HARMLESS = re.compile(r"ratelimit|max-tokens|processing", re.IGNORECASE)


def _is_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS.search(name)


def mask_values(text: str) -> str:
    text = _SECRET_VALUE.sub(rf'\1"{MASK}"', text)
    return _SECRET_HEADERS.sub(rf'\1{{"": "{MASK}"}}', text)


def unpack(content: bytes) -> dict[str, Any]:
    """What `Recording.pack` has packed."""
    unpacked: dict[str, Any] = orjson.loads(zlib.decompress(content))
    return unpacked
