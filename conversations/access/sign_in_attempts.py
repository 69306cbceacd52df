"""Delay of sign-in attempts after wrong passwords, on top of django-axes.

django-axes counts failures of each pair of account and address in rows, so all
processes count together. From the fifth failure on the pair must wait, and each further
failure doubles the delay. Other addresses are not affected, so an attacker cannot lock
an account out. A browser in which the account signed in before has a signed cookie and
counts its own failures, so it is not affected by other people who try passwords from
the same address.

An address that failed with many names must wait as well, for five minutes at most. This
slows attacks with stolen passwords of many accounts. It does not apply to known
browsers and to accounts that signed in from this address before, so other users behind
the same proxy are not locked out.

A refused attempt is neither counted nor checked against the password. Unknown names are
stored as keyed hashes, because people sometimes type a password into the name field.

This module uses only the settings and models of django-axes, and `AXES_HANDLER` with
the methods of `axes.handlers.base`.
Source: https://django-axes.readthedocs.io/en/latest/8_reference.html
"""

from __future__ import annotations

import logging
import math
import secrets
from datetime import timedelta
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from axes.models import AccessAttempt, AccessLog
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.signals import user_logged_in, user_login_failed
from django.core import signing
from django.db.models import Count, Max, Sum
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import ngettext, override

from conversations.access.admission import client_address

DELAY = 30  # seconds after AXES_FAILURE_LIMIT failures; each further one doubles it
LONGEST = 3600  # seconds
NAMES = 20  # distinct names with which an address may fail before it is delayed
NAMES_DELAY = 5  # seconds; each further `NAMES_STEP` names double it
NAMES_STEP = 5
NAMES_LONGEST = 300  # seconds
BROWSER_COOKIE_AGE = timedelta(days=180)
UNKNOWN_ADDRESS = "0.0.0.0"  # for a Unix socket or an invalid forwarded address
_SALT = "conversations.access.sign_in_attempts:"

logger = logging.getLogger("conversations.access.session_user")

Credentials = dict[str, Any] | None


class AttemptHandler(AxesDatabaseHandler):
    """The `AXES_HANDLER`: django-axes' rows with growing delays."""

    def is_locked(self, request: HttpRequest, credentials: Credentials = None) -> bool:
        is_refused = seconds_left(request, credentials) > 0
        annotated: Any = request  # the sign-in page reads the attribute
        annotated.is_sign_in_refused = is_refused
        return is_refused


def seconds_left(request: HttpRequest, credentials: Credentials) -> float:
    """Seconds until this account may try again from this address."""
    address = sign_in_address(request)
    recent = AccessAttempt.objects.filter(
        ip_address=address, attempt_time__gt=timezone.now() - settings.AXES_COOLOFF_TIME
    )
    counted = axes_username(request, credentials)
    pair = recent.filter(username=counted).aggregate(
        count=Sum("failures_since_start"), last=Max("attempt_time")
    )
    remaining = _remaining(_delay(pair["count"] or 0), pair["last"])
    if _is_trusted(request, _username_in(request, credentials), address):
        return remaining
    names = recent.aggregate(
        count=Count("username", distinct=True), last=Max("attempt_time")
    )
    return max(remaining, _remaining(_delay_of_address(names["count"]), names["last"]))


def _remaining(delay: int, last: Any) -> float:
    if last is None:
        return 0.0
    return float(max(0.0, delay - (timezone.now() - last).total_seconds()))


def _delay(failures: int) -> int:
    """Delay in seconds after the last of `failures` failures."""
    beyond = failures - settings.AXES_FAILURE_LIMIT
    if beyond < 0:
        return 0
    return int(min(LONGEST, DELAY * 2 ** min(beyond, 20)))


def _delay_of_address(names: int) -> int:
    """Delay in seconds for an address that failed with `names` distinct names."""
    if names < NAMES:
        return 0
    doublings = min((names - NAMES) // NAMES_STEP, 20)
    return int(min(NAMES_LONGEST, NAMES_DELAY * 2**doublings))


def _is_trusted(request: HttpRequest, name: str, address: str) -> bool:
    """Whether the account signed in with this browser or from this address before."""
    if browser_id_for(request, name):
        return True
    return bool(AccessLog.objects.filter(username=name, ip_address=address).exists())


# The log


def log_failure(*, credentials: Any, request: Any = None, **_: Any) -> None:
    """A receiver of `user_login_failed`."""
    name = _name_in_log(_username_in(request, credentials))
    address = sign_in_address(request) if request else UNKNOWN_ADDRESS
    if getattr(request, "is_sign_in_refused", False):
        logger.warning(
            "sign-in as %s from %s refused: too many failures", name, address
        )
    else:
        logger.warning(
            "sign-in as %s from %s failed: wrong name or password", name, address
        )


def log_wrong_code(
    *, user: Any, request: Any = None, reauthentication: bool = False, **_: Any
) -> None:
    """A receiver of django-allauth's `authentication_failed`; `user` is None for a
    passkey that signs in without a name."""
    act = "confirmation" if reauthentication else "sign-in"
    name = repr(user.get_username()) if user else "an unknown name"
    address = sign_in_address(request) if request else UNKNOWN_ADDRESS
    factor = "second factor" if user else "passkey"
    logger.warning("%s as %s from %s failed: wrong %s", act, name, address, factor)


def log_success(*, request: Any, user: Any, **_: Any) -> None:
    """A receiver of `user_logged_in`."""
    name = user.get_username()
    logger.info("sign-in as %r from %s", name, sign_in_address(request))
    request.browser_to_remember = name


user_login_failed.connect(log_failure)
user_logged_in.connect(log_success)


def _name_in_log(name: str) -> str:
    return repr(name) if _user_exists(name) else "an unknown name"


def _user_exists(name: str) -> bool:
    users = get_user_model()._default_manager
    field = get_user_model().USERNAME_FIELD
    return bool(users.filter(**{field: name}).exists())


# Callables of django-axes: settings.AXES_*_CALLABLE


def sign_in_address(request: HttpRequest) -> str:
    """The client's address in a form that every database stores.

    For IPv6 it is the /64 network, because one client usually has a whole /64.
    """
    meta = request.META
    forwarded = client_address(
        meta.get("REMOTE_ADDR") or "", meta.get("HTTP_X_FORWARDED_FOR") or ""
    )
    try:
        address = ip_address(_without_port(forwarded).partition("%")[0])
    except ValueError:
        return UNKNOWN_ADDRESS
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ip_network((address, 64), strict=False).network_address)


def _without_port(address: str) -> str:
    """Remove a port: some proxies write `192.0.2.7:4711` and `[2001:db8::7]:4711`."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


def axes_username(request: HttpRequest, credentials: Credentials) -> str:
    """The name under which django-axes counts failures.

    It names the account, or the account and a known browser. A name that no user has is
    hashed with the server's secret key; all its spellings count together, as LDAP
    directories take them for one.
    """
    name = _username_in(request, credentials)
    if not _user_exists(name):
        spelling = " ".join(name.split()).casefold()
        signed = signing.Signer(salt=f"{_SALT}name").sign(spelling)
        signature = signed.rpartition(":")[2]
        return f"unknown name {signature[:32]}"
    browser = browser_id_for(request, name)
    return f"{name} (known browser {browser})" if browser else name


def _username_in(request: HttpRequest | None, credentials: Credentials) -> str:
    form_data = credentials or getattr(request, "data", getattr(request, "POST", {}))
    return str(form_data.get("username") or "").replace("\0", "")[:150]


def refusal(
    request: HttpRequest, response: Any = None, credentials: Any = None
) -> HttpResponse:
    seconds = max(1, math.ceil(seconds_left(request, credentials)))
    denial: HttpResponse
    if "application/json" in request.headers.get("Accept", ""):
        with override("en"):  # as all errors for programs
            message = _refuse(seconds)
        code = "too_many_sign_in_attempts"
        error = {"message": message, "type": "too_many_requests", "code": code}
        denial = JsonResponse({"error": {**error, "param": None}}, status=429)
    else:
        context = {"message": _refuse(seconds)}
        denial = render(request, "registration/locked_out.html", context, status=429)
    denial["Retry-After"] = str(seconds)
    return denial


def _refuse(seconds: int) -> str:
    if seconds > 3600 - 60:
        count = math.ceil(seconds / 3600)
        text = ngettext(
            "Too many failed sign-ins. Try again in %(count)d hour.",
            "Too many failed sign-ins. Try again in %(count)d hours.",
            count,
        )
    elif seconds > 60 - 1:
        count = math.ceil(seconds / 60)
        text = ngettext(
            "Too many failed sign-ins. Try again in %(count)d minute.",
            "Too many failed sign-ins. Try again in %(count)d minutes.",
            count,
        )
    else:
        count = seconds
        text = ngettext(
            "Too many failed sign-ins. Try again in %(count)d second.",
            "Too many failed sign-ins. Try again in %(count)d seconds.",
            count,
        )
    return text % {"count": count}


# Known browsers


def browser_id_for(request: HttpRequest, name: str) -> str:
    """The id of the browser, if `name` has signed in with it before; else ""."""
    cookie = request.COOKIES.get(settings.BROWSER_COOKIE_NAME, "")
    try:
        return str(signing.loads(cookie, salt=_SALT + name, max_age=BROWSER_COOKIE_AGE))
    except signing.BadSignature:
        return ""


def remember_browser(
    request: HttpRequest, name: str, response: HttpResponseBase
) -> None:
    """Set the cookie of `browser_id_for` after a sign-in."""
    browser = browser_id_for(request, name) or secrets.token_hex(8)
    response.set_cookie(
        settings.BROWSER_COOKIE_NAME,
        signing.dumps(browser, salt=_SALT + name),
        max_age=BROWSER_COOKIE_AGE,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
