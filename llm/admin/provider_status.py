"""Whether providers work at the moment: for the admin's pages.

Bounded, whatever the size of the tables: the newest model calls are read once for all
providers of a page.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from django.db.models import QuerySet
from django.db.models.functions import Left
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _

from llm import errors
from llm.error_texts.for_staff import add_status, describe_code, describe_reason
from llm.error_texts.staff_instructions import instruct
from llm.http.connection_problems import MAX_SENTENCE, describe_connection_problem
from llm.models import ApiKey, LanguageModel, ModelCall, Provider
from llm.pools.load import KEY_ERROR_CODES, PERSONAL_SOURCES

NEWEST_CALLS = 1_000  # rows that are read

Light = Literal["works", "warning", "fails", "off", "unknown", "incomplete"]


@dataclass(frozen=True, slots=True)
class Gap:
    """What a provider lacks before people can use it."""

    text: str
    url: str  # where it is added
    is_certain: bool = True  # False: it may work without


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    light: Light
    text: str
    gaps: Sequence[Gap] = ()

    def to_html(self) -> str:
        labels = {
            "works": _("works"),
            "warning": _("works in part"),
            "fails": _("fails"),
            "off": _("off"),
            "unknown": _("not called lately"),
            "incomplete": _("not set up"),
        }
        label, light = labels[self.light], self.light
        mark = format_html('<span class="light light-{}">{}</span>', light, label)
        links = [(gap.url, gap.text) for gap in self.gaps]
        parts = [mark, self.text] if self.text else [mark]
        parts += [format_html('<a href="{}">{}</a>', *each) for each in links]
        return format_html_join(" ", "{}", ([part] for part in parts))


def statuses_of(providers: Iterable[Provider]) -> dict[int, ProviderStatus]:
    """By primary key. One query for calls, one for models, and one for keys unless
    prefetched."""
    rows, last = list(providers), _last_calls()
    switches = _switches_of_models(rows)
    return {
        row.pk: _status(row, last.get(row.pk), switches.get(row.pk, ())) for row in rows
    }


def _switches_of_models(providers: Iterable[Provider]) -> dict[int, set[bool]]:
    """By provider: {True} if all models are on, {False} if all are off, or both."""
    found: dict[int, set[bool]] = {}
    models = LanguageModel.objects.filter(provider__in=providers).order_by()
    for pk, is_on in models.values_list("provider", "enabled").distinct():
        found.setdefault(pk, set()).add(is_on)
    return found


# The light

#: Statuses by which a host refuses one request, and may well answer others: the request
#: is wrong (400), too large (413) or cannot be processed (422).
_REFUSED_REQUEST = (400, 413, 422)


def _last_calls() -> Mapping[int, Mapping[str, Any]]:
    """The newest call of each provider that shows its state, among the newest ones."""
    # A connection is tested before there are models; its call names the key alone.
    columns = ["model__provider_id", "key__provider_id"]
    columns += ["status", "error_code", "http_status", "created_at", "purpose"]
    columns += ["is_cached", "key_source"]
    rows: QuerySet[Any, Any] = ModelCall.objects.order_by("-id")
    detail = Left("error_detail", MAX_SENTENCE)
    rows = rows.values(*columns, detail=detail)[:NEWEST_CALLS]
    last: dict[int, Mapping[str, Any]] = {}
    refused: dict[int, Mapping[str, Any]] = {}
    for row in rows:
        if not _shows_state(row):
            continue
        # A request that its client wrote wrongly shows a fault only if all fail.
        calls = refused if _is_refused(row) else last
        calls.setdefault(row["model__provider_id"] or row["key__provider_id"], row)
    return {**refused, **last}


def _shows_state(row: Mapping[str, Any]) -> bool:
    if row["status"] == ModelCall.Status.FAILED:
        # A probe asks what a host may refuse, so its failures are no fault.
        is_probe = row["purpose"] == ModelCall.Purpose.PROBE
        is_personal = row["key_source"] in PERSONAL_SOURCES
        return not (is_probe or (is_personal and row["error_code"] in KEY_ERROR_CODES))
    # A stored answer did not come from the host.
    return row["status"] != ModelCall.Status.CANCELLED and not row["is_cached"]


def _is_refused(row: Mapping[str, Any]) -> bool:
    is_unknown_model = row["error_code"] == errors.ModelNotAvailable.code
    return is_unknown_model or row["http_status"] in _REFUSED_REQUEST


def _status(
    provider: Provider, call: Mapping[str, Any] | None, switches: Collection[bool]
) -> ProviderStatus:
    if why := provider.why_unusable:
        return ProviderStatus("off", _sentence(instruct(why)))
    keys = list(provider.keys.all())
    problems = [f"{key}: {why}" for key in keys if (why := _why_unused(key))]
    text = "; ".join([*problems, *provider.secrets_not_sent])
    gaps = [*_key_gaps(provider, keys, call), *_model_gaps(provider, switches)]
    if keys and len(problems) == len(keys):
        return ProviderStatus("fails", text, gaps)
    if call and call["status"] == ModelCall.Status.FAILED:
        words = _("Last call at %(at)s: %(error)s") % {
            "at": _format(call["created_at"]),
            "error": _describe_error(provider, call),
        }
        return ProviderStatus("fails", f"{words} {text}".strip(), gaps)
    if _lacks_key(provider, keys):
        return ProviderStatus("fails", text, gaps)
    if text:
        return ProviderStatus("warning", text, gaps)
    if call is None:
        is_incomplete = any(gap.is_certain for gap in gaps)
        return ProviderStatus("incomplete" if is_incomplete else "unknown", "", gaps)
    at = _format(call["created_at"]).removesuffix(".")  # of "p.m."
    return ProviderStatus("works", _("Last answer at %(at)s.") % {"at": at}, gaps)


def _lacks_key(provider: Provider, keys: Sequence[ApiKey]) -> bool:
    """Whether the host needs a key and no call can have one. People's own keys count,
    if the provider accepts them."""
    if keys or provider.accepts_own_keys or provider.host is None:
        return False
    return provider.host.needs_key


def _key_gaps(
    provider: Provider, keys: Sequence[ApiKey], call: Mapping[str, Any] | None
) -> list[Gap]:
    if keys or provider.accepts_own_keys:
        return []
    if _lacks_key(provider, keys):
        return [Gap(_("There is no key."), _part_of_page(provider, "keys"))]
    if call is None:  # it may answer without one
        text = _("There is no key; some hosts of this kind need one.")
        return [Gap(text, _part_of_page(provider, "keys"), is_certain=False)]
    return []


def _model_gaps(provider: Provider, switches: Collection[bool]) -> list[Gap]:
    if True in switches:
        return []
    text = _("No model is switched on.") if switches else _("There is no model.")
    return [Gap(text, _part_of_page(provider, "models"))]


def _part_of_page(provider: Provider, rows: Literal["keys", "models"]) -> str:
    page = reverse("admin:llm_provider_change", args=[provider.pk])
    return f"{page}#{rows}-group"


def _why_unused(key: ApiKey) -> str:
    """Why no call uses the key now; "" if calls may."""
    now = timezone.now()
    if key.state == key.State.DISABLED:
        return describe_reason(key.state_reason) or _("disabled")
    if key.state == key.State.RESTING and (not key.rest_until or key.rest_until > now):
        return describe_reason(key.state_reason) or _("resting")
    if key.expires_at and key.expires_at <= now:
        return _("expired at %(at)s") % {"at": _format(key.expires_at)}
    if key.has_ended:
        return _("draining")
    return "" if key.weight else _("has the weight 0")


def _describe_error(provider: Provider, call: Mapping[str, Any]) -> str:
    """By its code if a host or token issuer worded it, who may quote a conversation."""
    if problem := describe_connection_problem(call["detail"]):
        return problem
    status = call["http_status"]
    words = add_status(describe_code(call["error_code"]), status)
    is_outage = status is not None and status >= 500
    if not is_outage or not provider.proxy_url or provider.base_url[:6] == "https:":
        return words
    # Over plain http a proxy answers in the same way as the host.
    return _("%(error)s The proxy may have answered so.") % {"error": words}


def _format(at: datetime) -> str:
    return date_format(timezone.localtime(at), "SHORT_DATETIME_FORMAT")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
