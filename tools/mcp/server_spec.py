"""Connection values of an MCP server, from a row or from settings, and protocols."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from llm.db.revealable_secret import RevealableSecret
from llm.http.addresses import Network
from tools.errors import ToolError
from tools.mcp.tool_definition import ToolDefinition

#: The name of a server's tool in Parley is the server's name, "__" and the tool's name.
SERVER_NAME = re.compile(r"\A[A-Za-z][A-Za-z0-9-]*(_[A-Za-z0-9-]+)*\Z")
MAX_SERVER_NAME = 30  # characters
DEFAULT_TIMEOUT = 30.0  # seconds


class TokenStore(Protocol):
    """Stores the tokens of a sign-in, as JSON, for all sessions that use them."""

    async def load(self) -> Mapping[str, Any]: ...

    async def save(self, state: Mapping[str, Any]) -> None: ...

    async def claim(self) -> bool:
        """Claim the right to renew the token, because many servers accept a refresh
        token only once. False while another process renews it."""
        ...

    async def release(self) -> None: ...


class Registration(Protocol):
    """The client that registered itself for all sign-ins at a server."""

    async def forget(self, client_id: str) -> None:
        """Forget this client, which the authorization server does not know any more, so
        that the next sign-in registers another. A newer one stays."""
        ...


class SessionObserver(Protocol):
    """Receives listings and errors of sessions, so that staff can see them."""

    async def report_listing(
        self,
        found: Sequence[ToolDefinition],
        about: Mapping[str, str],
        seconds: float | None = None,
    ) -> None:
        """`seconds`: how long the server took to list them."""
        ...

    async def report_failure(self, failure: ToolError) -> None:
        """No session could be opened."""
        ...

    async def report_failed_call(self, tool: str, failure: ToolError) -> None:
        """The server, and not its tool, let a call fail."""
        ...


class SignIns(Protocol):
    """The sign-ins of users at a server at which each user signs in."""

    async def use(self, server: ServerSpec, user_id: int | None) -> ServerSpec:
        """The server with the tokens of this user. Raises SignInNeeded."""
        ...

    async def end(self, server: ServerSpec) -> None:
        """Forget the tokens that `use` gave, because the server refuses them."""
        ...


class Pin(Protocol):
    """The approval of one tool, which all processes share."""

    async def check(self, digest: str) -> None:
        """Raises ToolNotApproved unless staff approved the tool with this digest."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """An MCP server that Parley starts as a program and talks to over stdio.

    It runs with all of Parley's permissions, so it can come only from settings.
    """

    command: str
    arguments: tuple[str, ...] = ()
    #: Added to the few variables that every program receives, such as PATH and HOME.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """OAuth client credentials for the server's authorization server.

    Source: https://modelcontextprotocol.io/extensions/auth/oauth-client-credentials
    """

    client_id: str
    #: The only authorization server that receives the credentials, whichever server the
    #: MCP server names.
    issuer: str
    client_secret: RevealableSecret | None = None
    private_key: RevealableSecret | None = (
        None  # PEM; signs an assertion in place of a secret
    )
    algorithm: str = "RS256"  # of the private key
    scope: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationResponse:
    """The authorization response, from the redirect back."""

    code: str
    state: str | None = None
    issuer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierAuthorizationResponse:
    """The authorization response of a flow that began in another request or process.

    The code is sent only to the token endpoint that was known when the flow began.
    """

    code: str = field(repr=False)
    verifier: str = field(repr=False)  # of PKCE
    token_endpoint: str
    issuer: str | None = None  # as it came back


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationCode:
    """OAuth authorization code flow: a person agrees once in a browser.

    `visit` receives the page to open and returns the authorization response;
    `came_back` is a response that has already arrived. Without either, a session that
    needs a person raises SignInFailed.
    """

    redirect_uri: str
    store: TokenStore
    client_id: str = ""  # of a client that is registered already; "" to register one
    client_secret: RevealableSecret | None = None
    issuer: str = ""  # where that client is registered
    scope: str = ""
    client_name: str = "Parley"
    registration: Registration | None = None  # if sign-ins share a registered client
    #: Whether each user signs in, and not a member of staff for all of them.
    by_user: bool = False
    #: URL of this client's published metadata; "" to register a client.
    metadata_url: str = ""
    visit: Callable[[str], Awaitable[AuthorizationResponse]] | None = None
    came_back: EarlierAuthorizationResponse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """The values of a connection. Equal values share a session; one for a server of the
    same name but with other values ends after its calls."""

    name: str  # fits SERVER_NAME
    url: str = field(default="", repr=False)  # of streamable HTTP
    program: Program | None = field(default=None, repr=False)  # in place of a URL
    label: str = field(default="", compare=False)  # for users
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_headers: RevealableSecret | None = field(
        default=None, repr=False
    )  # a JSON object
    oauth: ClientCredentials | AuthorizationCode | None = field(
        default=None, repr=False
    )
    #: The user whose tokens it has; users do not share a session. None: all users.
    account: int | None = None
    allowed_tools: frozenset[str] | None = None  # by the server's names; None for all
    networks: tuple[Network, ...] = ()  # private networks that it may be in
    timeout: float = DEFAULT_TIMEOUT  # seconds, for connecting and for listing
    notice: SessionObserver | None = field(default=None, repr=False)

    @property
    def title(self) -> str:
        return self.label or self.name

    def allows(self, tool: str) -> bool:
        return self.allowed_tools is None or tool in self.allowed_tools
