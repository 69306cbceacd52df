"""Whether a token may come in, by whatever door, and what it is told of its limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from conversations import limits
from conversations.limits import Verdict, Wanted
from conversations.token_errors import Forbidden, TooFast, WrongAddress
from conversations.tokens import AccessToken
from llm.errors import ModelNotAvailable


def check_door(token: AccessToken, address: str, *scopes: str) -> None:
    """Raises WrongAddress, and Forbidden where the token has none of `scopes`."""
    check_address(token, address)
    check_scope(token, *scopes)


def check_address(token: AccessToken, address: str) -> None:
    if not token.may_come_from(address):
        raise WrongAddress(
            f"This access token may not be used from {address or 'here'}."
        )


def check_scope(token: AccessToken, *scopes: str) -> None:
    if not token.has_scope(*scopes):
        raise Forbidden(
            f"This access token lacks the scope {_quoted(scopes, ' or ')};"
            f" it has {_quoted(token.scopes, ', ')}."
        )


def _quoted(names: Iterable[str], between: str) -> str:
    return between.join(repr(str(name)) for name in names)


def check_model(token: AccessToken, model_id: int | None, name: str) -> None:
    """A model that the token may not ask is as good as none.

    Raises ModelNotAvailable, in the words for one that there is not.
    """
    if not token.may_ask(model_id):
        raise ModelNotAvailable(
            f"There is no model {name!r}; choose another one.", param="model"
        )


# Limits


def take_request(token: AccessToken) -> Verdict:
    """Raises TooFast."""
    return _admitted(limits.take(owner_of(token), _request(token)))


async def atake_request(token: AccessToken) -> Verdict:
    """As `take_request`, for event loops."""
    return _admitted(await limits.atake(owner_of(token), _request(token)))


def look_for_tokens(token: AccessToken, amount: int) -> Verdict:
    """Whether so many may be used now, by what is run later. Raises TooFast."""
    return _admitted(limits.take(owner_of(token), _tokens(token, amount, False)))


async def atake_tokens(
    token: AccessToken, amount: int, *, is_taken: bool = True
) -> Verdict:
    """Raises TooFast."""
    wanted = _tokens(token, amount, is_taken)
    return _admitted(await limits.atake(owner_of(token), wanted))


def owner_of(token: AccessToken) -> str:
    # Not its number, which another database may give to another token.
    return token.digest[:24]


def headers_of(verdict: Verdict, *, anthropic: bool = False) -> Mapping[str, str]:
    """What SDKs look at to pace themselves.

    Source: https://platform.openai.com/docs/guides/rate-limits
    Source: https://platform.claude.com/docs/en/api/rate-limits
    """
    told = {}
    for left in verdict.left:
        name, limit = left.wanted.name, str(left.wanted.limit)
        if anthropic:
            told[f"anthropic-ratelimit-{name}-limit"] = limit
            told[f"anthropic-ratelimit-{name}-remaining"] = str(left.remaining)
            told[f"anthropic-ratelimit-{name}-reset"] = _moment(left.full_in)
        told[f"x-ratelimit-limit-{name}"] = limit
        told[f"x-ratelimit-remaining-{name}"] = str(left.remaining)
        told[f"x-ratelimit-reset-{name}"] = _duration(left.full_in)
    return told


def _request(token: AccessToken) -> list[Wanted]:
    limit = token.requests_per_minute
    return [Wanted("requests", limit, 1)] if limit else []


def _tokens(token: AccessToken, amount: int, is_taken: bool) -> list[Wanted]:
    limit = token.tokens_per_minute
    return [Wanted("tokens", limit, amount, is_taken)] if limit else []


def _admitted(verdict: Verdict) -> Verdict:
    if verdict.is_allowed:
        return verdict
    short = max(verdict.left, key=lambda left: left.enough_in)
    exc = TooFast(
        f"This access token may take {short.wanted.limit} {short.wanted.name} a minute;"
        f" try again in {math.ceil(verdict.retry_after)} s.",
        retry_after=verdict.retry_after,
    )
    exc.verdict = verdict
    raise exc


def _duration(seconds: float) -> str:
    """As OpenAI writes it: 12ms, 8.64s, 1m0s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    if seconds < 60:
        return f"{seconds:.2f}".rstrip("0").rstrip(".") + "s"
    whole = math.ceil(seconds)
    return f"{whole // 60}m{whole % 60}s"


def _moment(seconds: float) -> str:
    then = datetime.now(UTC) + timedelta(seconds=seconds)
    return f"{then:%Y-%m-%dT%H:%M:%SZ}"
