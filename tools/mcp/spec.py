"""An MCP server as it is connected to: plain values, from a row or from settings."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from llm.addresses import Network
from tools.errors import ToolError
from tools.mcp.definitions import Definition

#: A server's name begins the names of its tools and is parted from theirs by "__".
SERVER_NAME = re.compile(r"\A[A-Za-z][A-Za-z0-9-]*(_[A-Za-z0-9-]+)*\Z")
MAX_SERVER_NAME = 30  # characters
DEFAULT_TIMEOUT = 30.0  # seconds


class Sealed(Protocol):
    """A secret that is opened where it is sent, and nowhere before."""

    def reveal(self) -> str:
        """Raises `llm.encrypted.SecretUnavailable`."""
        ...


class TokenStore(Protocol):
    """Keeps what a sign-in brought, as JSON, for all sessions that use it."""

    async def load(self) -> Mapping[str, Any]: ...

    async def save(self, state: Mapping[str, Any]) -> None: ...

    async def claim(self) -> bool:
        """For whoever is about to renew the token, as many servers take a refresh
        token once. False while somebody else is at it."""
        ...

    async def release(self) -> None: ...


class Notice(Protocol):
    """Told what sessions find out, so that staff can see it."""

    async def listed(
        self, found: Sequence[Definition], about: Mapping[str, str]
    ) -> None: ...

    async def failed(self, failure: ToolError) -> None:
        """No session could be opened."""
        ...


class Pin(Protocol):
    """The stored approval of one tool, which all processes share."""

    async def check(self, digest: str) -> None:
        """Raises HeldBack where a tool of this digest is not what staff approved."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A server that is a program of ours, spoken to over its standard streams.

    It runs as we do and may do all that we may: it comes from settings only.
    """

    command: str
    arguments: tuple[str, ...] = ()
    #: Added to the few variables that every program gets, such as PATH and HOME.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """OAuth for machines: what we are known by at the server's authorization server.

    Source: https://modelcontextprotocol.io/extensions/auth/oauth-client-credentials
    """

    client_id: str
    #: Whom the credentials are for. They are sent nowhere else, wherever the MCP server
    #: may point.
    issuer: str
    client_secret: Sealed | None = None
    private_key: Sealed | None = None  # PEM; signs an assertion in place of a secret
    algorithm: str = "RS256"  # of the private key
    scope: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirected:
    """What the authorization server sent a person's browser back with."""

    code: str
    state: str | None = None
    issuer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CameBack:
    """What came back to a page of ours that a process before this one had sent out.

    The code is given to the authorization server that the person was sent to, or to
    nobody.
    """

    code: str = field(repr=False)
    verifier: str = field(repr=False)  # of PKCE
    token_endpoint: str
    issuer: str | None = None  # as it came back


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationCode:
    """OAuth with a person who agrees in a browser, once.

    `visit` is given the page to open and returns what came back; `came_back` is that
    where it is there already. Without either a session that needs a person fails and
    says so.
    """

    redirect_uri: str
    store: TokenStore
    client_id: str = ""  # of a client that is registered already; "" to register one
    client_secret: Sealed | None = None
    issuer: str = ""  # whom that client is registered with
    scope: str = ""
    client_name: str = "Parley"
    #: Where a description of this client is published; "" to register it anew.
    metadata_url: str = ""
    visit: Callable[[str], Awaitable[Redirected]] | None = None
    came_back: CameBack | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Two equal ones share a session; of two unequal ones with one name the latter
    takes the place of the former."""

    name: str  # fits SERVER_NAME
    url: str = field(default="", repr=False)  # of streamable HTTP
    program: Program | None = field(default=None, repr=False)  # in place of a URL
    label: str = ""  # what people see
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_headers: Sealed | None = field(default=None, repr=False)  # a JSON object
    oauth: ClientCredentials | AuthorizationCode | None = field(
        default=None, repr=False
    )
    allowed_tools: frozenset[str] | None = None  # by the server's names; None: all
    networks: tuple[Network, ...] = ()  # private ones that it may lie in
    timeout: float = DEFAULT_TIMEOUT  # seconds, for connecting and for listing
    notice: Notice | None = field(default=None, repr=False)

    @property
    def title(self) -> str:
        return self.label or self.name

    def allows(self, tool: str) -> bool:
        return self.allowed_tools is None or tool in self.allowed_tools
