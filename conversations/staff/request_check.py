"""Would this request pass? The checks that a request meets, tried without one.

They read what the entry points read, and charge nothing: neither to rate limits nor
to budgets. What only the request itself shows (its text, files and tools) is not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from django.contrib.auth.models import User
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from conversations.access import admission, budget, maintenance, rate_limits
from conversations.access.errors import PriceUnknown, UnderMaintenance
from conversations.access.limits.admission import LimitLeft, find_limits_left
from conversations.access.rate_limits import Charge
from conversations.engine.metering import (
    DEFAULT_MAX_OUTPUT,
    PROMPT_SAFETY_FACTOR,
    RESERVED_OUTPUT,
    highest_cost,
)
from conversations.models.access_token import (
    NANOS_PER_DOLLAR,
    AccessToken,
    Scope,
    is_within,
)
from llm import router
from llm.errors import LLMError
from llm.provider import Route

Outcome = Literal["passes", "refuses", "unlimited"]
#: The scopes of which a token needs one, by entry point.
SCOPES = {"gateway": Scope.GATEWAY, "rest": Scope.CHAT}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImaginedRequest:
    user: User
    token: AccessToken | None  # None: signed in, in a browser
    entry_point: str  # "page", or a key of `SCOPES`
    model: str  # a name; empty for the default model
    prompt_tokens: int
    max_output_tokens: int | None
    address: str  # of the client; empty if that does not matter


@dataclass(frozen=True, slots=True)
class RequestCheck:
    name: str
    outcome: Outcome
    text: str = ""


@dataclass(frozen=True, slots=True)
class RequestReport:
    checks: list[RequestCheck]
    #: The models that would answer in turn, first the one that is asked.
    models: list[str]

    @property
    def passes(self) -> bool:
        return all(each.outcome != "refuses" for each in self.checks)


def check_request(request: ImaginedRequest) -> RequestReport:
    """All checks, also those after one that refuses."""
    checks = list(_checks_of_caller(request))
    route, found = _find_route(request)
    checks.append(found)
    models = []
    if route is not None:
        checks += _checks_of_model(request, route)
        fallbacks = router.routes_of(route, user=request.user)
        token = request.token
        models = [
            each.name
            for each in fallbacks
            if token is None or token.may_use_model(each.model_id)
        ]
    return RequestReport(checks, models)


# The caller


def _checks_of_caller(request: ImaginedRequest) -> Iterator[RequestCheck]:
    yield _try(_("Maintenance"), maintenance.check_open, _("Messages are accepted."))
    is_active = request.user.is_active
    text = _("May sign in.") if is_active else _("The account is deactivated.")
    yield RequestCheck(_("User"), "passes" if is_active else "refuses", text)
    if request.token is not None:
        yield from _checks_of_token(request, request.token)
    yield from _rate_checks(request)


def _checks_of_token(
    request: ImaginedRequest, token: AccessToken
) -> Iterator[RequestCheck]:
    if token.is_live:
        yield RequestCheck(_("Access token"), "passes", _("It is valid."))
    else:
        yield RequestCheck(
            _("Access token"), "refuses", _("It has expired or was revoked.")
        )
    scope = SCOPES.get(request.entry_point)
    if scope is None:
        text = _("The pages take no access tokens.")
        yield RequestCheck(_("Scope"), "refuses", text)
    elif token.has_scope(scope):
        yield RequestCheck(_("Scope"), "passes", str(scope.value))
    else:
        yield RequestCheck(
            _("Scope"), "refuses", str(admission.scope_missing(token, scope))
        )
    if not token.networks:
        yield RequestCheck(_("Address"), "unlimited")
    elif is_within(request.address, token.networks):
        yield RequestCheck(_("Address"), "passes", request.address)
    else:
        text = _("The token is valid at %(networks)s only.")
        networks = ", ".join(token.networks)
        yield RequestCheck(_("Address"), "refuses", text % {"networks": networks})


def _rate_checks(request: ImaginedRequest) -> Iterator[RequestCheck]:
    owner, requests, tokens = admission.charges_of_request(
        request.user, request.token, request.prompt_tokens
    )
    yield _rate_check(_("Requests a minute"), owner, requests)
    yield _rate_check(_("Tokens a minute"), owner, tokens)


def _rate_check(name: str, owner: str, charges: list[Charge]) -> RequestCheck:
    if not charges:
        return RequestCheck(name, "unlimited")
    looked_at = [replace(each, is_taken=False) for each in charges]
    verdict = rate_limits.take(owner, looked_at)
    text = "; ".join(
        _("%(left)s of %(limit)s %(what)s are left")
        % {
            "left": number_format(bucket.remaining, force_grouping=True),
            "limit": number_format(bucket.charge.limit, force_grouping=True),
            "what": bucket.charge.name,
        }
        for bucket in verdict.buckets
    )
    return RequestCheck(name, "passes" if verdict.is_allowed else "refuses", text)


# The model


def _find_route(request: ImaginedRequest) -> tuple[Route | None, RequestCheck]:
    name = _("Model")
    try:
        model = router.find_model(request.model or None, user=request.user)
        route = router.route_of(model, user=request.user)
    except LLMError as exc:
        return None, RequestCheck(name, "refuses", str(exc))
    return route, RequestCheck(name, "passes", route.name)


def _checks_of_model(request: ImaginedRequest, route: Route) -> Iterator[RequestCheck]:
    token = request.token
    if token is not None and not token.model_ids:
        yield RequestCheck(_("Models of the token"), "unlimited")
    elif token is not None:
        yield _try(
            _("Models of the token"),
            partial(admission.check_model, token, route.model_id, request.model),
            route.name,
        )
    limits = find_limits_left(request.user.pk, token)
    has_bound = any(
        each.measure == "cost" and each.model_name in ("", route.name)
        for each in limits
    )
    has_bound |= token is not None and token.budget is not None
    answer, cost = _answer_and_cost(request, route)
    if token is not None:
        yield _budget_check(token, cost)
    needed = {
        "requests": 1,
        "tokens": request.prompt_tokens + (answer if has_bound else _reserved(request)),
        "cost": cost,
        "size": 0,  # only the request itself shows it
    }
    for limit in limits:
        if limit.model_name not in ("", route.name):
            continue
        yield _limit_check(limit, needed[limit.measure])


def _answer_and_cost(request: ImaginedRequest, route: Route) -> tuple[int, int | None]:
    """Tokens of the longest answer where cost has a bound, and the cost with it in
    billionths of a USD; None without a price."""
    most = route.capabilities.max_output_tokens or DEFAULT_MAX_OUTPUT
    answer = request.max_output_tokens or min(DEFAULT_MAX_OUTPUT, most)
    prompt = PROMPT_SAFETY_FACTOR * request.prompt_tokens
    return answer, highest_cost(prompt, answer, route)


def _reserved(request: ImaginedRequest) -> int:
    return request.max_output_tokens or RESERVED_OUTPUT


def _limit_check(limit: LimitLeft, needed: int | None) -> RequestCheck:
    """As `Meter.admit` and `admit_message` decide, at this moment."""
    values = {"period": limit.period_label, "whose": limit.kind_label}
    name = _("Limit %(period)s (%(whose)s)") % values
    name += f", {limit.model_name}" if limit.model_name else ""
    if needed is None:
        return RequestCheck(name, "refuses", str(PriceUnknown.__doc__ or ""))
    return RequestCheck(
        name, "passes" if needed <= limit.left else "refuses", limit.words
    )


def _budget_check(token: AccessToken, amount: int | None) -> RequestCheck:
    """As `budget.reserve` decides, at this moment."""
    name, limit = _("Budget"), token.budget_nanos
    if limit is None:
        return RequestCheck(name, "unlimited")
    if amount is None:
        return RequestCheck(name, "refuses", str(PriceUnknown.__doc__ or ""))
    spent, reserved = budget.balance_of(token)
    text = _("It may cost %(cost)s; %(left)s of %(budget)s are left.") % {
        "cost": _dollars(amount),
        "left": _dollars(limit - spent - reserved),
        "budget": _dollars(limit),
    }
    fits = spent + reserved + amount <= limit
    return RequestCheck(name, "passes" if fits else "refuses", text)


def _dollars(nanos: int) -> str:
    return f"${nanos / NANOS_PER_DOLLAR:,.6f}"


def _try(name: str, check: Callable[[], Any], text: str) -> RequestCheck:
    try:
        check()
    except (LLMError, UnderMaintenance) as exc:
        return RequestCheck(name, "refuses", str(exc))
    return RequestCheck(name, "passes", text)
