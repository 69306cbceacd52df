"""Admission checks for requests: access tokens (address, scopes, models, rate limits)
and the rate limits of signed-in users who have no token."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from conversations.access import rate_limits
from conversations.access.errors import Forbidden, TooFast, WrongAddress
from conversations.access.rate_limits import Charge, Verdict
from conversations.models.access_token import AccessToken, is_within
from llm.errors import ModelNotAvailable


def client_address(peer: str, forwarded: str) -> str:
    """The client's address: the peer's, or the one that our reverse proxy reports.

    `forwarded` is the header `X-Forwarded-For`. Any client can send it, so it is used
    only if BEHIND_HTTPS says that a reverse proxy is in front of the server, and then
    only its last entry, which is the one that the proxy has added.
    """
    if settings.BEHIND_HTTPS and (last := forwarded.rpartition(",")[2].strip()):
        return last
    return peer


def check_address(token: AccessToken, peer: str, forwarded: str) -> None:
    """`peer` and `forwarded` as for `client_address`. Raises WrongAddress."""
    if not token.networks:
        return
    address = client_address(peer, forwarded)
    if not is_within(address, token.networks):
        raise WrongAddress(
            f"This access token may not be used from {address or 'here'}."
        )


def scope_missing(token: AccessToken, *scopes: str) -> Forbidden:
    return Forbidden(
        f"This access token lacks the scope {_join_quoted(scopes, ' or ')};"
        f" it has {_join_quoted(token.scopes, ', ')}."
    )


def _join_quoted(names: Iterable[str], between: str) -> str:
    return between.join(repr(str(name)) for name in names)


def check_model(token: AccessToken, model_id: int | None, name: str) -> None:
    """Raises ModelNotAvailable where the token may not use the model.

    The message is the one for a model that does not exist, so that a token cannot find
    out which other models there are.
    """
    if not token.may_use_model(model_id):
        raise ModelNotAvailable(
            f"There is no model {name!r}; choose another one.", param="model"
        )


def check_tool(token: AccessToken, name: str) -> None:
    """Raises Forbidden where the token may not use the tool."""
    if not token.may_use_tool(name):
        raise Forbidden(f"This access token may not use the tool {name!r}.")


# Limits


def take_request(token: AccessToken) -> Verdict:
    """Count one request against the token's limit. Raises TooFast."""
    return _require_allowed(
        rate_limits.take(token_bucket_owner(token), _request_charges(token))
    )


async def atake_request(token: AccessToken) -> Verdict:
    """Like `take_request`, for code on an event loop."""
    return _require_allowed(
        await rate_limits.atake(token_bucket_owner(token), _request_charges(token))
    )


def check_tokens_available(token: AccessToken, amount: int) -> Verdict:
    """Check that `amount` tokens are available now, without taking them: a run that
    starts later takes them. Raises TooFast."""
    return _require_allowed(
        rate_limits.take(
            token_bucket_owner(token), _token_charges(token, amount, False)
        )
    )


async def atake_tokens(
    token: AccessToken, amount: int, *, is_taken: bool = True
) -> Verdict:
    """Take `amount` tokens, or only check for them. Raises TooFast."""
    charges = _token_charges(token, amount, is_taken)
    return _require_allowed(await rate_limits.atake(token_bucket_owner(token), charges))


# People who are signed in


def take_user_request(user: Any, size: int) -> Verdict:
    """Count one request of `size` bytes. Raises TooFast."""
    return _require_allowed(
        rate_limits.take(user_bucket_owner(user), _user_request_charges(size)),
        "You may take",
    )


def take_user_look(user: Any) -> Verdict:
    """Count the look of an open page for what is new, up to as many a minute as
    requests. Pages look by themselves, so looks take nothing from what the person
    does. Raises TooFast."""
    owner = f"{user_bucket_owner(user)}:looks"
    verdict = rate_limits.take(owner, _user_request_charges(0))
    return _require_allowed(verdict, "You may take")


async def atake_user_request(owner: str, size: int) -> Verdict:
    """Like `take_user_request`, on an event loop; `owner`: `user_bucket_owner()`."""
    return _require_allowed(
        await rate_limits.atake(owner, _user_request_charges(size)), "You may take"
    )


def check_user_tokens_available(user: Any, amount: int) -> Verdict:
    """Check that `amount` tokens are available now, without taking them: the tokens
    really used are charged later. Raises TooFast."""
    charges = _user_token_charges(amount, is_taken=False)
    return _require_allowed(
        rate_limits.take(user_bucket_owner(user), charges), "You may take"
    )


def check_user_may_continue(user: Any) -> Verdict:
    """Check that at least one token is available, for a turn without a new message.

    Raises TooFast.
    """
    return check_user_tokens_available(user, 1)


def charge_user_tokens(owner: str, amount: int) -> None:
    for used in _user_token_charges(amount, is_taken=True):
        rate_limits.charge(owner, used)


def request_size(request: HttpRequest) -> int:
    """Bytes of the body. Where the client sent no `Content-Length` or compressed the
    body, the server's handler has set the header to the number of bytes it read."""
    announced = request.META.get("CONTENT_LENGTH") or ""
    return int(announced) if announced.isdecimal() else 0


def user_bucket_owner(user: Any) -> str:
    """The owner of the user's rate-limit buckets in Redis. The time of joining is part
    of it, because in another database the primary key may belong to another user."""
    joined = getattr(user, "date_joined", None)
    return f"user:{user.pk}:{joined.timestamp() if joined else 0:.6f}"


def _user_request_charges(size: int) -> list[Charge]:
    charges = [
        Charge("requests", settings.USER_REQUESTS_PER_MINUTE, 1),
        Charge("bytes", settings.USER_BYTES_PER_MINUTE, size),
    ]
    return [each for each in charges if each.limit]


def _user_token_charges(amount: int, *, is_taken: bool) -> list[Charge]:
    limit = settings.USER_TOKENS_PER_MINUTE
    return [Charge("tokens", limit, amount, is_taken)] if limit else []


def charges_of_request(
    user: Any, token: AccessToken | None, amount: int
) -> tuple[str, list[Charge], list[Charge]]:
    """What a request of `amount` tokens takes: the buckets' owner, the charges for the
    request, and those for its tokens."""
    if token is None:
        charges = _user_request_charges(0)
        return (
            user_bucket_owner(user),
            charges,
            _user_token_charges(amount, is_taken=False),
        )
    tokens = _token_charges(token, amount, is_taken=False)
    return token_bucket_owner(token), _request_charges(token), tokens


# Bucket owners and headers


def token_bucket_owner(token: AccessToken) -> str:
    # Not the primary key: in another database it may belong to another token.
    return token.digest[:24]


def rate_limit_headers(
    verdict: Verdict, *, anthropic: bool = False
) -> Mapping[str, str]:
    """The rate-limit headers by which SDKs pace their requests.

    Source: https://platform.openai.com/docs/guides/rate-limits
    Source: https://platform.claude.com/docs/en/api/rate-limits
    """
    headers = {}
    for bucket in verdict.buckets:
        name, limit = bucket.charge.name, str(bucket.charge.limit)
        if anthropic:
            headers[f"anthropic-ratelimit-{name}-limit"] = limit
            headers[f"anthropic-ratelimit-{name}-remaining"] = str(bucket.remaining)
            headers[f"anthropic-ratelimit-{name}-reset"] = _moment(bucket.full_in)
        headers[f"x-ratelimit-limit-{name}"] = limit
        headers[f"x-ratelimit-remaining-{name}"] = str(bucket.remaining)
        headers[f"x-ratelimit-reset-{name}"] = _duration(bucket.full_in)
    return headers


def _request_charges(token: AccessToken) -> list[Charge]:
    limit = token.requests_per_minute
    return [Charge("requests", limit, 1)] if limit else []


def _token_charges(token: AccessToken, amount: int, is_taken: bool) -> list[Charge]:
    limit = token.tokens_per_minute
    return [Charge("tokens", limit, amount, is_taken)] if limit else []


def _require_allowed(
    verdict: Verdict, subject: str = "This access token may take"
) -> Verdict:
    if verdict.is_allowed:
        return verdict
    slowest = max(verdict.buckets, key=lambda left: left.available_in)
    exc = TooFast(
        f"{subject} {slowest.charge.limit} {slowest.charge.name} a minute;"
        f" try again in {math.ceil(verdict.retry_after)} s.",
        retry_after=verdict.retry_after,
    )
    exc.verdict = verdict
    raise exc


def _duration(seconds: float) -> str:
    """In OpenAI's format: 12ms, 8.64s, 1m0s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    if seconds < 60:
        return f"{seconds:.2f}".rstrip("0").rstrip(".") + "s"
    whole = math.ceil(seconds)
    return f"{whole // 60}m{whole % 60}s"


def _moment(seconds: float) -> str:
    then = datetime.now(UTC) + timedelta(seconds=seconds)
    return f"{then:%Y-%m-%dT%H:%M:%SZ}"
