"""Synchronisation with a provider's list of models: new, changed and removed ones.

`compare` asks the provider and changes nothing; `apply` carries out what staff
selected. New models are added disabled, unless staff choose otherwise, and removed ones
are disabled. No row is ever deleted, because calls and conversations refer to it.
Prices that a host names count from the day of the sync; earlier calls keep theirs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from llm import router
from llm.capabilities import Capabilities, capabilities_of
from llm.concurrency.thread_lending import lend_thread
from llm.error_texts.staff_instructions import instruct
from llm.errors import (
    BadRequest,
    BadResponse,
    InvalidKey,
    LLMError,
    ModelNotAvailable,
    ProviderTimeout,
)
from llm.http import client
from llm.http.connection_problems import SILENT
from llm.http.request import url_of_path
from llm.models import ApiKey, LanguageModel, ModelPrice, Provider
from llm.pricing.cost import (
    PRICE_NAMES,
    SEARCH_PRICE_NAMES,
    TIERS,
    has_conditions,
    listed_prices,
    prices_at,
)
from llm.pricing.price_list import HOUR_FACTOR
from llm.provider import Endpoint
from llm.sync.price_doubts import find_doubts
from llm.wire import model_lists
from llm.wire.model_lists import ModelInfo

TIME_LIMIT = 20.0  # seconds, because a user waits at the page
MAX_PAGES = 50
RETIREMENT = "retires_at"  # among the listed values of a row
_HOUR_PRICE = "cache_write_1h"
#: Dates of versions behind a name: "-20250514", "-2024-08-06", "-2411".
_DATE = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2}|\d{4})")
_ROUTINGS = frozenset({"online", "nitro", "floor", "exacto"})
MAX_NAME = 200  # characters, the size of the column


@dataclass(frozen=True, slots=True)
class ModelChange:
    """A model whose entry in the list differs from our data."""

    model: LanguageModel
    before: dict[str, Any]  # our data; None for unknown
    after: dict[str, Any]  # the values in the list
    #: USD per million tokens: what counts now, and what the host says if that differs.
    prices_before: Mapping[str, Decimal] = field(default_factory=dict)
    prices_after: Mapping[str, Decimal] = field(default_factory=dict)
    retires_at: datetime | None = None  # if the host says so, and not staff
    ends_retirement: bool = False  # the list no longer has the day that it had

    def __bool__(self) -> bool:
        return bool(
            self.after or self.prices_after or self.retires_at or self.ends_retirement
        )

    @property
    def ends_conditions(self) -> bool:
        """Whether prices of the list would replace bundled ones that say more."""
        row, provider = self.model, self.model.provider
        if row.prices or row.price_schedule:
            return False
        return has_conditions(provider.kind, provider.address, row.name)

    @property
    def lines(self) -> list[str]:
        lines = [
            f"{name}: {_format_value(self.before[name])} → {_format_value(value)}"
            for name, value in self.after.items()
        ]
        lines += [
            _("price of %(name)s: %(before)s → %(after)s USD per million tokens")
            % {
                "name": _describe_price(name),
                "before": _format_price(self.prices_before.get(name)),
                "after": _format_price(price),
            }
            for name, price in self.prices_after.items()
            if price != self.prices_before.get(name)
        ]
        doubts = find_doubts(self.model.name, self.prices_before, self.prices_after)
        lines += [
            _("the scheduled sync leaves the price of %(name)s to you: %(why)s")
            % {"name": _describe_price(name), "why": why}
            for name, why in doubts.items()
        ]
        if self.prices_after and (price := self.prices_before.get(_HOUR_PRICE)):
            lines.append(_describe_hour_price(price, self.prices_after["input"]))
        if self.prices_after and self.ends_conditions:
            lines.append(
                _(
                    "bundled prices of long prompts, of requests, of service tiers or"
                    " of times of day count no longer"
                )
            )
        if self.retires_at or self.ends_retirement:
            days = {
                "before": _format_day(self.model.retires_at),
                "after": _format_day(self.retires_at),
            }
            lines.append(_("retired from: %(before)s → %(after)s") % days)
        return lines


@dataclass(frozen=True, slots=True)
class ModelListComparison:
    new: Sequence[ModelInfo] = ()
    changed: Sequence[ModelChange] = ()
    gone: Sequence[LanguageModel] = ()  # only enabled ones
    left_out: int = 0  # models whose names are too long for a row

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.gone)

    def names(self) -> dict[str, list[str]]:
        """The names of all models, as the arguments of `apply`."""
        return {
            "new": [info.name for info in self.new],
            "changed": [change.model.name for change in self.changed],
            "gone": [row.name for row in self.gone],
        }

    def digests(self) -> dict[str, dict[str, str]]:
        """By the kinds and names of `names`: digests of what `apply` would write, and
        of what that replaces."""
        changed = {
            each.model.name: _digest(
                *("changed", each.model.name, each.before, each.after),
                *(each.prices_before, each.prices_after),
                *(each.model.retires_at, each.retires_at, each.ends_retirement),
            )
            for each in self.changed
        }
        return {
            "new": {info.name: _digest("new", info) for info in self.new},
            "changed": changed,
            "gone": {row.name: _digest("gone", row.name) for row in self.gone},
        }

    def without_prices(self) -> ModelListComparison:
        """For those who may not set prices."""
        changes = (replace(change, prices_after={}) for change in self.changed)
        return replace(
            self,
            new=[replace(info, prices={}) for info in self.new],
            changed=[change for change in changes if change],
        )


def _digest(*values: Any) -> str:
    return sha256(repr(values).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class SyncResult:
    added: int = 0
    changed: int = 0
    switched_off: int = 0


def compare(provider: Provider) -> ModelListComparison:
    """Request the list, with the first key that works.

    Raises LLMError if that fails or the provider has no list of models.
    """
    listed = {info.name: info for info in reversed(_ask(provider))}
    rows = sorted(provider.models.all(), key=lambda row: row.name)
    if rows and not listed:
        raise BadResponse(_("The provider's list of models is empty."))
    for row in rows:
        row.provider = provider
    names = [row.name.removeprefix("models/") for row in rows]
    pairs = list(zip(rows, names, strict=True))
    changes = (_change(row, listed[name]) for row, name in pairs if name in listed)
    unknown = [listed[name] for name in sorted(listed.keys() - set(names))]
    unknown = [info for info in unknown if info.chats]
    fitting = [info for info in unknown if len(info.name) <= MAX_NAME]
    return ModelListComparison(
        new=fitting,
        changed=[change for change in changes if change],
        gone=[
            row
            for row, name in pairs
            if row.enabled and name not in listed and not _is_alias(name, listed)
        ],
        left_out=len(unknown) - len(fitting),
    )


def _is_alias(name: str, listed: Collection[str]) -> bool:
    """Whether a host takes `name` for a model of its list: without the date of its
    version or Ollama's tag, or with a way of routing of OpenRouter."""
    model, _colon, variant = name.partition(":")
    if f"{name}:latest" in listed or (variant in _ROUTINGS and model in listed):
        return True
    family = name.removesuffix("-latest").removesuffix("-0")
    start = len(family)
    return any(
        each.startswith(family) and _DATE.fullmatch(each, start) for each in listed
    )


@transaction.atomic
def apply(
    provider: Provider,
    comparison: ModelListComparison,
    *,
    new: Collection[str] = (),
    changed: Collection[str] = (),
    gone: Collection[str] = (),
    enables_new: bool = False,
    user: Any = None,
) -> SyncResult:
    """Carry out `comparison` for the named models. Prices count from now on; `user` is
    who set them."""
    rows = [_new_row(provider, info) for info in comparison.new if info.name in new]
    for row in rows:  # one by one, as only then the audit log has them
        row.enabled = enables_new
        row.save()
    listed = {info.name: info for info in comparison.new}
    for row in rows:
        _store_prices(row, _new_prices(row, listed[row.name])[1], user)
    changes = [change for change in comparison.changed if change.model.name in changed]
    for change in changes:
        change.model.store_listed(change.after)
        _store_retirement(change.model, change.retires_at)
        if change.ends_retirement:
            _end_retirement(change.model)
        columns = [*LanguageModel.OVERRIDE_COLUMNS, "retires_at"]
        change.model.save(update_fields=columns)
        _store_prices(change.model, change.prices_after, user)
    off = [row for row in comparison.gone if row.name in gone]
    for row in off:
        row.enabled = False
        row.save(update_fields=["enabled"])
    return SyncResult(len(rows), len(changes), len(off))


# Requests for the list


def _ask(provider: Provider) -> list[ModelInfo]:
    """Try each key until one is accepted."""
    error: LLMError | None = None
    for key in _keys(provider):
        try:
            endpoint = router.endpoint_of(provider, key)
            with lend_thread():
                return asyncio.run(_fetch(endpoint))
        except InvalidKey as exc:
            error = exc
    raise error or InvalidKey(_("There is no key; add one first."))


def _keys(provider: Provider) -> Iterator[ApiKey | None]:
    host = provider.host
    if why := provider.why_disabled:
        raise BadRequest(_("Not synced: %(why)s.") % {"why": instruct(why)})
    if host is not None and not host.models_path:
        text = _("%(host)s has no list of available models.")
        raise BadRequest(text % {"host": host.label})
    yield from provider.keys.order_by("state", "-weight", "pk")
    if host is None or not host.needs_key:
        yield None


async def _fetch(endpoint: Endpoint) -> list[ModelInfo]:
    """Run in a new event loop, whose connections are closed with it."""
    try:
        async with asyncio.timeout(TIME_LIMIT):
            return await _pages(endpoint)
    except TimeoutError as exc:
        raise ProviderTimeout(detail=SILENT.format(seconds=TIME_LIMIT)) from exc
    finally:
        await client.aclose()


async def _pages(endpoint: Endpoint) -> list[ModelInfo]:
    first = path = endpoint.provider.models_path
    found: list[ModelInfo] = []
    for _page_number in range(MAX_PAGES):
        body = await _page(endpoint, path)
        found += model_lists.parse_models(body)
        if not (query := model_lists.next_page(body)):
            return found
        path = f"{first}{'&' if '?' in first else '?'}{urlencode(query)}"
    raise BadResponse(_("The provider's list of models has too many pages."))


async def _page(endpoint: Endpoint, path: str) -> bytes:
    try:
        body = await client.get(endpoint, path)
    except ModelNotAvailable as exc:  # usually this is a 404
        url = url_of_path(endpoint, endpoint.provider.models_path)
        text = _("There is no list of models at %(url)s.") % {"url": url}
        raise BadRequest(text) from exc
    if body.lstrip()[:1] == b"<":
        raise client.web_page_error()
    return body


# Rows


def _change(row: LanguageModel, info: ModelInfo) -> ModelChange:
    """The differences between the list and our data on a model."""
    known = router.capabilities(row, wire=_wire_format(row.provider)).to_dict()
    after = _differences(known, info)
    prices_before, prices_after = _new_prices(row, info)
    return ModelChange(
        row,
        {name: known.get(name) for name in after},
        after,
        prices_before,
        prices_after,
        _new_retirement(row, info),
        ends_retirement=info.retires_at is None and _has_listed_retirement(row),
    )


def _new_retirement(row: LanguageModel, info: ModelInfo) -> datetime | None:
    """The day in the list, unless staff have set one or it is known."""
    is_free = row.retires_at is None or _has_listed_retirement(row)
    return info.retires_at if is_free and info.retires_at != row.retires_at else None


def _has_listed_retirement(row: LanguageModel) -> bool:
    """Whether its day is from the list, and not of staff."""
    listed = (row.listed_values or {}).get(RETIREMENT)
    return row.retires_at is not None and row.retires_at.isoformat() == listed


def _store_retirement(row: LanguageModel, moment: datetime | None) -> None:
    if moment:
        row.retires_at = moment.astimezone(UTC)  # as it is read again
        stored = {RETIREMENT: row.retires_at.isoformat()}
        row.listed_values = {**(row.listed_values or {}), **stored}


def _end_retirement(row: LanguageModel) -> None:
    row.retires_at = None
    values = dict(row.listed_values or {})
    del values[RETIREMENT]
    row.listed_values = values


def _new_prices(
    row: LanguageModel, info: ModelInfo
) -> tuple[dict[str, Decimal], dict[str, Decimal]]:
    """What calls cost now, and what they will by the list; {} if that is the same.

    A price that the host does not name stays as it is, except that of one-hour cache
    writes, which rows with a date do not have: they cost a multiple of the input.
    """
    stated = prices_at(row.prices, row.price_schedule)
    provider = row.provider
    known = stated or listed_prices(provider.kind, provider.address, row.name)
    before = {n: _round_price(price) for n, price in known.items() if n != TIERS}
    named = {name: _round_price(price) for name, price in info.prices.items()}
    if all(before.get(name) == price for name, price in named.items()):
        return before, {}
    after = before | named
    names = (*PRICE_NAMES, *SEARCH_PRICE_NAMES)
    return before, {name: after[name] for name in names if name in after}


def _store_prices(row: LanguageModel, prices: Mapping[str, Decimal], user: Any) -> None:
    if prices:
        ModelPrice.objects.create(
            model=row,
            valid_from=timezone.now(),
            added_by=user,
            is_listed=True,
            tiers=prices_at(row.prices, row.price_schedule).get(TIERS, {}),
            **prices,
        )


def _round_price(price: Any) -> Decimal:
    """As exact as the columns."""
    return Decimal(str(price)).quantize(Decimal("0.000001")).normalize()


def _new_row(provider: Provider, info: ModelInfo) -> LanguageModel:
    """Only values that differ from the bundled data are stored, so that the rest is
    updated with it."""
    kind, wire = provider.kind, _wire_format(provider)
    known = capabilities_of(kind, info.name, wire=wire).to_dict()
    row = LanguageModel(
        provider=provider,
        name=info.name,
        label=info.label[:100],
        enabled=False,
    )
    row.store_listed(_differences(known, info))
    _store_retirement(row, info.retires_at)
    return row


def _differences(known: dict[str, Any], info: ModelInfo) -> dict[str, Any]:
    reported = Capabilities.from_dict(info.capabilities_and_limits).to_dict()
    return {name: value for name, value in reported.items() if known.get(name) != value}


def _wire_format(provider: Provider) -> str:
    """The wire format; "" if its host does not support the one in the row."""
    try:
        host = provider.host
        return host.codec(provider.codec, provider.options).name if host else ""
    except KeyError:
        return ""


def _format_value(value: Any) -> str:
    match value:
        case None:
            return _("unknown")
        case bool():
            return _("yes") if value else _("no")
        case list():
            return ", ".join(value) or _("none")
    return f"{value:,}" if isinstance(value, int) else str(value)


def _describe_hour_price(before: Decimal, input_price: Decimal) -> str:
    text = _("price of %(name)s: %(before)s → %(after)s USD per million tokens")
    return text % {
        "name": _("one-hour cache write"),
        "before": _format_price(before),
        "after": _format_price(_round_price(input_price * HOUR_FACTOR)),
    }


def _describe_price(name: str) -> str:
    column: Any = ModelPrice._meta.get_field(name)
    return str(column.verbose_name)


def _format_day(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d}" if moment else _("unknown")


def _format_price(price: Decimal | None) -> str:
    return _("unknown") if price is None else f"{price:f}"
