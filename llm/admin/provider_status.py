"""Whether providers work at the moment: for the admin's pages.

Bounded, whatever the size of the tables: the newest model calls are read once for all
providers of a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.translation import gettext as _

from llm.errors import LLMError
from llm.models import ApiKey, ModelCall, Provider

NEWEST_CALLS = 1_000  # rows that are read

Light = Literal["works", "warning", "fails", "off", "unknown"]


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    light: Light
    text: str

    def to_html(self) -> str:
        labels = {
            "works": _("works"),
            "warning": _("works in part"),
            "fails": _("fails"),
            "off": _("off"),
            "unknown": _("not called lately"),
        }
        label, light = labels[self.light], self.light
        mark = format_html('<span class="light light-{}">{}</span>', light, label)
        return format_html("{} {}", mark, self.text) if self.text else mark


def statuses_of(providers: Iterable[Provider]) -> dict[int, ProviderStatus]:
    """By primary key. One query for calls, and one for keys unless prefetched."""
    last = _last_calls()
    return {row.pk: _status(row, last.get(row.pk)) for row in providers}


# The light


def _last_calls() -> Mapping[int, Mapping[str, Any]]:
    """The newest call of each provider that tells something, among the newest ones."""
    # A connection is tested before there are models; its call names the key alone.
    columns = ["model__provider_id", "key__provider_id"]
    columns += ["status", "error_code", "http_status"]
    rows: QuerySet[Any, Any] = ModelCall.objects.order_by("-id")
    rows = rows.values(*columns, "created_at", "purpose")[:NEWEST_CALLS]
    last: dict[int, Mapping[str, Any]] = {}
    for row in rows:
        # A probe asks what a host may refuse, so its failures tell nothing.
        is_probe = row["purpose"] == ModelCall.Purpose.PROBE
        if row["status"] == "cancelled" or (is_probe and row["status"] == "failed"):
            continue
        provider = row["model__provider_id"] or row["key__provider_id"]
        last.setdefault(provider, row)
    return last


def _status(provider: Provider, call: Mapping[str, Any] | None) -> ProviderStatus:
    if why := provider.why_unusable:
        return ProviderStatus("off", _sentence(why))
    keys = list(provider.keys.all())
    problems = [f"{key}: {why}" for key in keys if (why := _why_unused(key))]
    text = "; ".join([*problems, *provider.secrets_not_sent])
    if len(problems) == len(keys) and (keys or _needs_key(provider)):
        return ProviderStatus("fails", text or _("There is no key."))
    if call and call["status"] == ModelCall.Status.FAILED:
        words = _("Last call at %(at)s: %(error)s") % {
            "at": _format(call["created_at"]),
            "error": _describe_error(call),
        }
        return ProviderStatus("fails", f"{words} {text}".strip())
    if text:
        return ProviderStatus("warning", text)
    if call is None:
        return ProviderStatus("unknown", "")
    at = _format(call["created_at"]).removesuffix(".")  # of "p.m."
    return ProviderStatus("works", _("Last answer at %(at)s.") % {"at": at})


def _needs_key(provider: Provider) -> bool:
    return provider.host is not None and provider.host.needs_key


def _why_unused(key: ApiKey) -> str:
    """Why no call uses the key now; "" if calls may."""
    now = timezone.now()
    if key.state == key.State.DISABLED:
        return key.state_reason or _("disabled")
    if key.state == key.State.RESTING and (not key.rest_until or key.rest_until > now):
        return key.state_reason or _("resting")
    if key.expires_at and key.expires_at <= now:
        return _("expired at %(at)s") % {"at": _format(key.expires_at)}
    if key.has_ended:
        return _("draining")
    return "" if key.weight else _("has the weight 0")


def _describe_error(call: Mapping[str, Any]) -> str:
    """By its code: the provider's message may quote a conversation."""
    words = _words_by_code().get(call["error_code"], call["error_code"])
    status = call["http_status"]
    return f"{words} (HTTP {status})" if status and status >= 400 else words


def _words_by_code() -> dict[str, str]:
    # A class that has its code from its base has no words of its own for it.
    _base, *classes = _error_classes(LLMError)
    return {e.code: str(e()) for e in reversed(classes) if "code" in vars(e)}


def _error_classes(base: type[LLMError]) -> list[type[LLMError]]:
    found = [base]
    for each in base.__subclasses__():
        found += _error_classes(each)
    return found


def _format(at: datetime) -> str:
    return date_format(timezone.localtime(at), "SHORT_DATETIME_FORMAT")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
