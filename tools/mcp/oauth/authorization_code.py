"""OAuth authorization code: tokens are stored, with what is needed to renew them.

Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization
Loads the SDK; import it where needed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urljoin

import httpx2
from mcp.client.auth import (
    OAuthClientProvider,
    OAuthFlowError,
    OAuthRegistrationError,
    OAuthTokenError,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientMetadata,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, ValidationError
from yarl import URL

from tools.mcp.errors import RenewalRefused, SignInFailed, SignInNeeded
from tools.mcp.http_transport import Health, current_health
from tools.mcp.oauth.token_auth import Flow, TokenAuth
from tools.mcp.oauth.token_endpoint import (
    build_renewal_failure,
    is_followed,
    is_token,
    read_error,
    replace_form,
    token_form,
)
from tools.mcp.oauth.token_storage import TokenStorage, secret_method
from tools.mcp.server_spec import AuthorizationCode, AuthorizationResponse

_ISSUER_MISMATCH = (
    "the server's authorization server is not the issuer that is set here."
)

#: Errors that only a new sign-in mends.
_REFUSALS = (
    "invalid_grant",
    "invalid_token",
    "bad_refresh_token",  # GitHub, with HTTP 200
    "invalid_refresh_token",  # Slack, with HTTP 200
    # OpenID Connect and Entra ID: a person must do something there.
    "interaction_required",
    "login_required",
    "consent_required",
    "access_denied",  # Auth0: the consent was withdrawn
)
#: Of a client. One that staff entered is theirs to correct; one that registered itself
#: is forgotten by the authorization server, and only a new sign-in registers another.
_CLIENT_REFUSAL = "invalid_client"


class AuthorizationCodeAuth(TokenAuth):
    """Runs the SDK's flow, with stored tokens and a sign-in in two requests.

    The second request repeats the flow with the code that came back. The SDK's new
    state and verifier are replaced by those of the first request: the state in the
    answer that it is given, the verifier in the token request that it makes.
    """

    def __init__(
        self, url: str, client: AuthorizationCode, health: Health | None = None
    ) -> None:
        super().__init__()
        self._url = url
        self._health = health or Health()
        self._client = client
        self._store = TokenStorage(client)
        self._provider: OAuthClientProvider | None = None
        self._response: AuthorizationResponse | None = None
        self._refusal: RenewalRefused | None = None  # which ends the session soon
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

    @asynccontextmanager
    async def _watch_flow(self) -> AsyncGenerator[None, None]:
        try:
            yield
        except OAuthFlowError as exc:
            raise SignInFailed(self._reason(exc)) from exc
        finally:
            await self._store.release()

    def _start_flow(self, request: httpx2.Request) -> Flow:
        provider = self._provider
        if provider is None or not provider.context.is_token_valid():
            provider = self._create_provider()
        return provider.async_auth_flow(request)

    def _is_hopeless(self) -> bool:
        if self._refusal is not None:
            current_health(self._health).sign_in_failure = self._refusal
        return self._refusal is not None

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
                failure = SignInNeeded()
                current_health(self._health).sign_in_failure = failure
                raise failure
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

    async def _ends_sending(
        self, request: httpx2.Request, response: httpx2.Response
    ) -> bool:
        """The SDK would forget the tokens for any answer without a new one. So the
        sending ends with this answer; as an exception, it would end the session and all
        its calls."""
        grant = token_form(request).get("grant_type")
        if grant == "authorization_code":
            await self._forget_unknown_client(read_error(await response.aread()))
        if grant != "refresh_token" or is_followed(request, response):
            return False
        if await self._settles_renewal(response):
            return False
        error = read_error(await response.aread())
        failure = build_renewal_failure(response.status_code, error)
        current_health(self._health).sign_in_failure = failure
        if isinstance(failure, RenewalRefused):
            self._refusal = failure
        if response.status_code < 400:
            # The SDK would take it for the answer to the request.
            response.status_code = httpx2.codes.BAD_GATEWAY
        return True

    async def _forget_unknown_client(self, error: str) -> bool:
        """Forget the client if it registered itself and the authorization server does
        not know it: the next sign-in registers another."""
        if error != _CLIENT_REFUSAL or self._client.client_id:
            return False
        await self._store.forget_client()
        return True

    async def _settles_renewal(self, response: httpx2.Response) -> bool:
        """Whether the answer has a new token or refuses the refresh token for good,
        unlike an outage, a rate limit or the wrong secret of a client that staff have
        entered."""
        body = await response.aread()
        error = read_error(body)
        if await self._forget_unknown_client(error):
            return True
        if error in _REFUSALS:
            return True
        if response.status_code == 200:
            return is_token(body)
        return response.status_code in (400, 401) and not error

    def _adapt_request(self, request: httpx2.Request) -> httpx2.Request:
        """Use the verifier of the first request. Raises SignInFailed."""
        form = token_form(request)
        back = self._client.came_back
        if back is None or form.get("grant_type") != "authorization_code":
            return request
        if str(request.url) != back.token_endpoint:
            raise SignInFailed("the server now uses a different authorization server.")
        return replace_form(request, {**form, "code_verifier": back.verifier})

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
        if context.client_info is None:  # the authorization server has forgotten it
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
