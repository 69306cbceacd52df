"""Record sign-ins, sign-outs and refused ones in the audit log.

The name that was typed is recorded only as the account that it names: it may be a
password by mistake.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model

from conversations.audit.act import Act, Channel, acting, current_act
from conversations.audit.record import record_event


def record_sign_in(*, user: Any, request: Any = None, **_: Any) -> None:
    """A receiver of Django's `user_logged_in`."""
    _record("sign_in", user, request)


def record_sign_out(*, user: Any, request: Any = None, **_: Any) -> None:
    """A receiver of Django's `user_logged_out`, whose user may be none."""
    if user is not None and user.pk is not None:
        _record("sign_out", user, request)


def record_failure(
    *, credentials: dict[str, Any], request: Any = None, **_: Any
) -> None:
    """A receiver of Django's `user_login_failed`."""
    name = str(credentials.get("username") or "").replace("\0", "")
    model = get_user_model()
    named = {model.USERNAME_FIELD: name[:150]}
    user = model._default_manager.filter(**named).first() if name else None
    is_delayed = bool(getattr(request, "is_sign_in_refused", False))
    details = {"reason": "too many failures"} if is_delayed else {}
    record_refusal(user, details, request)


def record_wrong_code(
    *, user: Any, request: Any = None, reauthentication: bool = False, **_: Any
) -> None:
    """A receiver of django-allauth's `authentication_failed`: of a second factor after
    the right password, or to confirm a dangerous act (`reauthentication`), or of a
    passkey that signs in without a name (`user` is None)."""
    reason = "wrong second factor" if user else "wrong passkey"
    if reauthentication:
        reason += ", to confirm an act"
    record_refusal(user, {"reason": reason}, request)


def record_refusal(user: Any, details: dict[str, str], request: Any = None) -> None:
    """Record a refused sign-in. `user`: the account, if it is known; `details`: the
    reason, and what refused it."""
    with acting(_act_of(request)):
        record_event(
            "sign_in",
            target=user,
            subject=user,
            details={"account": "known" if user else "unknown", **details},
            is_refused=True,
        )


def record_refused_connection(user: Any, details: dict[str, str]) -> None:
    """Record that a signed-in person may not connect an identity to the account."""
    record_event(
        "identity.add",
        target=user,
        actor=user,
        subject=user,
        details=details,
        is_refused=True,
    )


def _record(action: str, user: Any, request: Any) -> None:
    with acting(_act_of(request)):
        record_event(action, target=user, actor=user, subject=user)


def _act_of(request: Any) -> Act:
    """The current act, or one of a request that came past the middleware."""
    act = current_act()
    if act.request is None and request is not None:
        return Act(channel=Channel.PAGE, request=request)
    return act
