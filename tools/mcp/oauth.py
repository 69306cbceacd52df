"""OAuth for MCP servers: the SDK's providers with Parley's settings and token store.

Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization
Loads the SDK; import it where needed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qsl, urljoin

import anyio
import httpx2
from mcp.client.auth import (
    OAuthClientProvider,
    OAuthFlowError,
    OAuthRegistrationError,
    OAuthTokenError,
)
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, ValidationError
from yarl import URL

from tools.mcp.errors import SignInFailed, SignInNeeded
from tools.mcp.http_transport import Health, current_health
from tools.mcp.oauth_storage import TokenStorage, reveal_secret, secret_method
from tools.mcp.server_spec import (
    AuthorizationCode,
    AuthorizationResponse,
    ClientCredentials,
    ServerSpec,
)

_ISSUER_MISMATCH = (
    "the server's authorization server is not the issuer that is set here."
)

_FORM = "application/x-www-form-urlencoded"

Flow = AsyncGenerator[httpx2.Request, httpx2.Response]


def build_auth(server: ServerSpec, health: Health | None = None) -> httpx2.Auth | None:
    """The auth object for the server. Raises SignInFailed if secrets are lost.

    It notes in `health` that the user must sign in, because the SDK reports only that
    the session has ended.
    """
    match server.oauth:
        case ClientCredentials() as client:
            return _build_client_credentials_auth(server.url, client)
        case AuthorizationCode() as client:
            return _AuthorizationCodeAuth(server.url, client, health)
        case None:
            return None


async def build_revocations(server: ServerSpec) -> list[httpx2.Request]:
    """The requests that revoke the stored tokens; none if the authorization server has
    no revocation endpoint. Raises SignInFailed.

    Source: https://www.rfc-editor.org/rfc/rfc7009
    """
    if not isinstance(server.oauth, AuthorizationCode):
        return []
    return await _AuthorizationCodeAuth(server.url, server.oauth).build_revocations()


# Client credentials: tokens are fetched when needed and live as long as the session


class _MemoryStorage:
    def __init__(self) -> None:
        self._tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None  # the client is configured, not registered

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        pass


class _ClientCredentialsAuth(httpx2.Auth):
    """The SDK's provider; requests the scope that staff have set, if any, instead of
    the scope that the server names."""

    def __init__(self, provider: OAuthClientProvider, scope: str) -> None:
        self._provider, self._scope = provider, scope

    async def async_auth_flow(self, request: httpx2.Request) -> Flow:
        async with aclosing(self._provider.async_auth_flow(request)) as flow:
            try:
                sent = await anext(flow)
                while True:
                    sent = await flow.asend((yield self._set_scope(sent)))
            except StopAsyncIteration:
                return

    def _set_scope(self, request: httpx2.Request) -> httpx2.Request:
        form = _token_form(request)
        if not self._scope or form.get("grant_type") != "client_credentials":
            return request
        # Of a token whose answer names no scope.
        self._provider.context.client_metadata.scope = self._scope
        return _replace_form(request, {**form, "scope": self._scope})


def _token_form(request: httpx2.Request) -> dict[str, str]:
    """The form of a request to a token endpoint; empty for any other request."""
    content_type = request.headers.get("content-type", "")
    if request.method != "POST" or content_type != _FORM:
        return {}
    form = dict(parse_qsl(request.content.decode(), keep_blank_values=True))
    return form if "grant_type" in form else {}


def _replace_form(request: httpx2.Request, form: dict[str, str]) -> httpx2.Request:
    headers = [
        (name, value)
        for name, value in request.headers.multi_items()
        if name.lower() != "content-length"
    ]
    return httpx2.Request(request.method, request.url, headers=headers, data=form)


def _build_client_credentials_auth(url: str, client: ClientCredentials) -> httpx2.Auth:
    provider = _build_client_credentials_provider(url, client)
    return _ClientCredentialsAuth(provider, client.scope)


def _build_client_credentials_provider(
    url: str, client: ClientCredentials
) -> OAuthClientProvider:
    if client.private_key is None:
        return ClientCredentialsOAuthProvider(
            server_url=url,
            storage=_MemoryStorage(),
            client_id=client.client_id,
            client_secret=reveal_secret(client.client_secret),
            scope=client.scope or None,
            issuer=client.issuer,
        )
    signing = SignedJWTParameters(
        issuer=client.client_id,
        subject=client.client_id,
        signing_key=reveal_secret(client.private_key),
        signing_algorithm=client.algorithm,
    )
    return PrivateKeyJWTOAuthProvider(
        server_url=url,
        storage=_MemoryStorage(),
        client_id=client.client_id,
        assertion_provider=signing.create_assertion_provider(),
        scope=client.scope or None,
        issuer=client.issuer,
    )


# Authorization code: tokens are stored, with what is needed to renew them


class _AuthorizationCodeAuth(httpx2.Auth):
    """Runs the SDK's flow, with stored tokens and a sign-in in two requests.

    The second request repeats the flow with the code that came back. The SDK's new
    state and verifier are replaced by those of the first request: the state in the
    answer that it is given, the verifier in the token request that it makes.
    """

    def __init__(
        self, url: str, client: AuthorizationCode, health: Health | None = None
    ) -> None:
        self._url = url
        self._health = health
        self._client = client
        self._store = TokenStorage(client)
        self._provider: OAuthClientProvider | None = None
        self._lock = anyio.Lock()
        self._response: AuthorizationResponse | None = None
        self._is_code_used = False  # the authorization code has been exchanged

    def _create_provider(self) -> OAuthClientProvider:
        """A new provider reads the stored tokens at its first request."""
        client = self._client
        provider = self._provider = OAuthClientProvider(
            server_url=self._url,
            client_metadata=OAuthClientMetadata(
                client_name=client.client_name,
                redirect_uris=[AnyUrl(client.redirect_uri)],
                grant_types=["authorization_code", "refresh_token"],
                response_types=["code"],
                scope=client.scope or None,
            ),
            storage=self._store,
            redirect_handler=self._visit,
            callback_handler=self._take_response,
            client_metadata_url=client.metadata_url or None,
        )
        self._store.provider = provider
        return provider

    @property
    def _context(self) -> Any:
        return (self._provider or self._create_provider()).context

    async def async_auth_flow(self, request: httpx2.Request) -> Flow:
        """The SDK's flow, repeated once if the server rejects the access token: with a
        token that another process has renewed meanwhile, or after renewing it."""
        async with self._lock:
            flow, may_renew = self._start_flow(request), True
            try:
                sent = await anext(flow)
                while True:
                    response = yield self._adapt_request(sent)
                    if sent is not request:
                        response = await self._prefer_issuer(response)
                    elif self._must_repeat(response, may_renew):
                        await flow.aclose()
                        flow, may_renew = self._start_flow(request), False
                        sent = await anext(flow)
                        continue
                    sent = await flow.asend(response)
            except StopAsyncIteration:
                return
            except OAuthFlowError as exc:
                raise SignInFailed(self._reason(exc)) from exc
            finally:
                try:
                    await flow.aclose()
                finally:
                    await self._store.release()

    def _start_flow(self, request: httpx2.Request) -> Flow:
        provider = self._provider
        if provider is None or not provider.context.is_token_valid():
            provider = self._create_provider()
        return provider.async_auth_flow(request)

    def _must_repeat(self, response: httpx2.Response, may_renew: bool) -> bool:
        """True if the server rejected the access token and it can be renewed.

        Raises SignInFailed if only a person can sign in again, and none can now.
        """
        if response.status_code != 401:
            return False
        if may_renew and self._forget_token():
            return True
        self._require_person()
        return False

    def _forget_token(self) -> bool:
        """Mark the access token as rejected; False if it cannot be renewed."""
        tokens = self._context.current_tokens
        if tokens is None or not tokens.refresh_token:
            return False
        self._store.rejected_token, self._provider = tokens.access_token, None
        return True

    def _require_person(self) -> None:
        """Raises SignInFailed if no person can sign in now; called before the SDK
        registers a client."""
        if self._client.visit is None and self._client.came_back is None:
            if self._client.by_user:
                if self._health:
                    current_health(self._health).needs_sign_in = True
                raise SignInNeeded
            raise SignInFailed("a member of staff must sign in at this MCP server.")

    async def _prefer_issuer(self, response: httpx2.Response) -> httpx2.Response:
        """The response without authorization servers other than the configured issuer,
        if it is the metadata of a protected resource (RFC 9728).

        Raises SignInFailed if the issuer is not among them.
        """
        if not (issuer := self._client.issuer) or response.status_code != 200:
            return response
        try:
            about = ProtectedResourceMetadata.model_validate_json(
                await response.aread()
            )
        except ValidationError:  # another response, or one that the SDK refuses
            return response
        servers = about.authorization_servers
        about.authorization_servers = [
            each for each in servers if is_same_issuer(str(each), issuer)
        ]
        if not about.authorization_servers:
            raise SignInFailed(_ISSUER_MISMATCH)
        content = about.model_dump_json(exclude_none=True)
        return httpx2.Response(200, content=content, request=response.request)

    def _adapt_request(self, request: httpx2.Request) -> httpx2.Request:
        """Use the verifier of the first request. Raises SignInFailed."""
        form = _token_form(request)
        back = self._client.came_back
        if back is None or form.get("grant_type") != "authorization_code":
            return request
        if str(request.url) != back.token_endpoint:
            raise SignInFailed("the server now uses a different authorization server.")
        return _replace_form(request, {**form, "code_verifier": back.verifier})

    async def _visit(self, url: str) -> None:
        """Send the person to the page of the authorization server, or take the response
        that has come back from it."""
        self._require_person()
        self._check_client()
        self._set_secret_method()
        page = URL(url)
        if self._client.scope:
            self._context.client_metadata.scope = self._client.scope
            page = page.update_query(scope=self._client.scope)
        if (back := self._client.came_back) is None:
            assert self._client.visit
            await self._store.note(token_endpoint=self._token_endpoint())
            self._response = await self._client.visit(str(page))
            return
        if self._is_code_used:
            raise SignInFailed(
                "the server refused the token that its authorization server issued."
            )
        self._is_code_used = True
        self._response = AuthorizationResponse(
            code=back.code, state=page.query["state"], issuer=back.issuer
        )

    def _check_client(self) -> None:
        """Raises SignInFailed if the SDK replaced the client that staff entered."""
        found = self._context.client_info
        entered = self._client.client_id
        if entered and found and found.client_id != entered:
            raise SignInFailed(_ISSUER_MISMATCH)

    def _token_endpoint(self) -> str:
        """Where the SDK will exchange the code."""
        context = self._context
        if context.oauth_metadata is not None:
            return str(context.oauth_metadata.token_endpoint)
        return urljoin(str(context.get_authorization_base_url(self._url)), "/token")

    async def _take_response(self) -> AuthorizationCodeResult:
        assert self._response
        back, self._response = self._response, None
        return AuthorizationCodeResult(
            code=back.code, state=back.state, iss=back.issuer
        )

    def _set_secret_method(self) -> None:
        """Set how the client secret is sent, for a client that staff have entered: only
        the server's metadata says it."""
        context = self._context
        if context.client_info and self._client.client_secret:
            method = secret_method(context.oauth_metadata)
            context.client_info.token_endpoint_auth_method = method

    async def build_revocations(self) -> list[httpx2.Request]:
        context = self._create_provider().context
        await self._store.get_tokens()  # reads the metadata too
        context.client_info = await self._store.get_client_info()
        metadata = context.oauth_metadata
        if metadata is None or metadata.revocation_endpoint is None:
            return []
        if (issuer := self._client.issuer) and not is_same_issuer(
            str(metadata.issuer), issuer
        ):
            raise SignInFailed(_ISSUER_MISMATCH)
        self._set_secret_method()
        url = str(metadata.revocation_endpoint)
        return [self._revocation(url, *token) for token in self._store.list_tokens()]

    def _revocation(self, url: str, hint: str, token: str) -> httpx2.Request:
        assert self._context.client_info
        parameters = {"token": token, "token_type_hint": hint}
        parameters["client_id"] = self._context.client_info.client_id or ""
        try:
            data, headers = self._context.prepare_token_auth(parameters)
        except OAuthFlowError as exc:
            raise SignInFailed(self._reason(exc)) from exc
        return httpx2.Request("POST", url, data=data, headers=headers)

    def _reason(self, exc: OAuthFlowError) -> str:
        """A message without the SDK's text, which may quote answers of the servers."""
        match exc:
            case OAuthRegistrationError() if self._context.oauth_metadata is None:
                return (
                    "the server requires a sign-in, but neither it nor an"
                    " authorization server has metadata for it."
                )
            case OAuthRegistrationError():
                return (
                    "the authorization server does not register clients automatically;"
                    " enter the id of a registered client."
                )
            case OAuthTokenError():
                return "the authorization server issued no token."
        return (
            "the metadata of the server and of its authorization server do not match."
        )


def is_same_issuer(one: str, other: str) -> bool:
    """Whether the strings are equal (RFC 8414, section 3.3), apart from the slash after
    the host of an address without a path."""
    return _without_root_slash(one) == _without_root_slash(other)


def _without_root_slash(issuer: str) -> str:
    return issuer[:-1] if issuer.count("/") == 3 and issuer.endswith("/") else issuer
