"""Authentication, permission and throttle classes of the REST API.

They are set in settings.REST_FRAMEWORK. The throttle also limits requests of browser
sessions, with the same limits for every user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from conversations.access import admission, budget
from conversations.access.client_address import client_address
from conversations.access.errors import TooFast
from conversations.access.rate_limits import Verdict
from conversations.models.access_token import AccessToken, Scope
from conversations.turns.history import estimate_tokens
from llm.models import LanguageModel
from llm.wire.items import Item

_VERDICT_ATTRIBUTE = (
    "parley_limits"  # the attribute of a request that holds its rate limit verdict
)


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer <AccessToken>`. Other schemes are ignored."""

    def authenticate(self, request: Request) -> tuple[Any, AccessToken] | None:
        scheme, *rest = get_authorization_header(request).split() or [b""]
        if scheme.lower() != b"bearer":
            return None
        token = AccessToken.objects.find(_text(rest)) if len(rest) == 1 else None
        if token is None:
            raise AuthenticationFailed(
                "The access token is wrong, expired or revoked.", code="invalid_api_key"
            )
        admission.check_address(token, _address(request))
        token.note_use()
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="api"'


class TokenPermission(BasePermission):
    """Requires one of the view's `token_scopes`; views without it accept any scope.

    Raises Forbidden.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        if token := token_of(request):
            scopes = getattr(view, "token_scopes", tuple(Scope.values))
            admission.check_scope(token, *scopes)
        return True


class TokenThrottle(BaseThrottle):
    """Counts each request of a token or user against its limit. Raises TooFast."""

    def allow_request(self, request: Request, view: Any) -> bool:
        token = token_of(request)
        if token is None and not request.user.is_authenticated:
            return True
        try:
            if token is not None:
                verdict = admission.take_request(token)
            else:
                size = admission.request_size(request._request)
                verdict = admission.take_user_request(request.user, size)
        except TooFast as exc:
            setattr(request._request, _VERDICT_ATTRIBUTE, exc.verdict)
            raise
        setattr(request._request, _VERDICT_ATTRIBUTE, verdict)
        return True


def token_of(request: Request) -> AccessToken | None:
    """The token of a request; None for a browser session."""
    return request.auth if isinstance(request.auth, AccessToken) else None


def limit_headers(request: Request) -> Mapping[str, str]:
    """The rate limit headers of the answer."""
    verdict: Verdict | None = getattr(request._request, _VERDICT_ATTRIBUTE, None)
    return admission.rate_limit_headers(verdict) if verdict else {}


def admit_turn(token: AccessToken, model: LanguageModel, items: Sequence[Item]) -> None:
    """Check the token's limits before a turn is opened.

    Raises ModelNotAvailable, TooFast, BudgetExhausted.
    """
    admission.check_model(token, model.pk, model.public_name)
    if token.tokens_per_minute:
        admission.check_tokens_available(token, estimate_tokens("", items))
    budget.check_budget(token)


def _address(request: Request) -> str:
    meta = request._request.META
    return client_address(
        meta.get("REMOTE_ADDR") or "", meta.get("HTTP_X_FORWARDED_FOR") or ""
    )


def _text(rest: list[bytes]) -> str:
    return rest[0].decode("latin-1")
