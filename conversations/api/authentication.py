"""Authentication, permission and throttle classes of the REST API.

They are set in settings.REST_FRAMEWORK. The throttle also limits requests of browser
sessions, with the same limits for every user.
"""

from __future__ import annotations

from typing import Any

from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from conversations.access import admission
from conversations.access.errors import ConversationNotAllowed, Forbidden, TooFast
from conversations.access.policy import terms
from conversations.access.rate_limits import Verdict
from conversations.models.access_token import AccessToken, Scope

VERDICT = "parley.limits"  # in a request's META: the verdict of its rate limit


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer <AccessToken>`. Other schemes are ignored."""

    def authenticate(self, request: Request) -> tuple[Any, AccessToken] | None:
        scheme, *rest = get_authorization_header(request).split() or [b""]
        if scheme.lower() != b"bearer":
            return None
        token = None
        if len(rest) == 1:
            token = AccessToken.objects.find(rest[0].decode("latin-1"))
        if token is None:
            raise AuthenticationFailed(
                "The access token is wrong, expired or revoked.", code="invalid_api_key"
            )
        if token.networks:
            peer = request.META.get("REMOTE_ADDR") or ""
            forwarded = request.META.get("HTTP_X_FORWARDED_FOR") or ""
            admission.check_address(token, peer, forwarded)
        if terms.state.binds_tokens is not False:
            terms.check_token(token.user_id)
        token.note_use()
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="api"'


class TokenPermission(BasePermission):
    """Requires one of the view's `token_scopes`; views without it accept any scope. A
    token that is limited to conversations may use only views that declare that they
    show and change nothing else (`limits_conversations`).

    Raises Forbidden, ConversationNotAllowed.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        if token := token_of(request):
            scopes = getattr(view, "token_scopes", tuple(Scope.values))
            if not token.has_scope(*scopes):
                raise admission.scope_missing(token, *scopes)
            is_limited = token.allowed_conversations or token.allowed_folders
            if is_limited and not getattr(view, "limits_conversations", False):
                raise ConversationNotAllowed
        return True


class BrowserPermission(BasePermission):
    """Refuses access tokens, which must not extend their own rights. Raises
    Forbidden."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if token_of(request):
            raise Forbidden(
                "Only a person who is signed in may do this, not an access token."
            )
        return True


class TokenThrottle(BaseThrottle):
    """Counts each request of a token or user against its limit. Raises TooFast."""

    def allow_request(self, request: Request, view: Any) -> bool:
        token = token_of(request)
        if token is None and not request.user.is_authenticated:
            return True
        if token is not None and not token.requests_per_minute:
            return True
        try:
            if token is not None:
                verdict = admission.take_request(token)
            else:
                verdict = self._take_of_user(request)
        except TooFast as exc:
            request.META[VERDICT] = exc.verdict
            raise
        request.META[VERDICT] = verdict
        return True

    def _take_of_user(self, request: Request) -> Verdict:
        size = admission.request_size(request)
        return admission.take_user_request(request.user, size)


class LookThrottle(TokenThrottle):
    """For what open pages read by themselves, beside the requests of their person."""

    def _take_of_user(self, request: Request) -> Verdict:
        return admission.take_user_look(request.user)


def token_of(request: Request) -> AccessToken | None:
    """The token of a request; None for a browser session."""
    return request.auth if isinstance(request.auth, AccessToken) else None
