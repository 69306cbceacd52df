"""Prices of a model with their dates in the configuration file, as a list of tables.

`valid_from` names a price. One that is in effect is history, so the file may add prices
of the past, which no call's cost follows any more, but not change them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.core.exceptions import ValidationError

from llm.models import LanguageModel, ModelPrice
from llm.models.model_price import COLUMNS
from llm.pricing.cost import TIERS
from project.config_file.findings import Findings
from project.config_file.tables import WrongValue, convert_value

_FROM = "valid_from"


def build_price_tables(model: LanguageModel) -> list[dict[str, Any]]:
    """Oldest first."""
    rows = sorted(model.dated_prices.all(), key=lambda row: row.valid_from)
    return [{_FROM: row.valid_from, **row.values} for row in rows]


def load_prices(
    path: str, tables: Any, model: LanguageModel, findings: Findings
) -> None:
    """Create and update the prices of the tables; leave others alone."""
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        findings.problems.append(f"{path}: write a list of tables.")
        return
    for number, table in enumerate(tables, 1):
        problems = list(_load_price(f"{path}[{number}]", table, model, findings))
        findings.problems.extend(problems)


def _load_price(
    path: str, table: Mapping[str, Any], model: LanguageModel, findings: Findings
) -> Iterator[str]:
    """Yields problems."""
    known = (_FROM, *COLUMNS, TIERS)
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name not in known:
            yield f"{path}: unknown field {name!r}; known: {', '.join(known)}."
            continue
        try:
            column: Any = ModelPrice._meta.get_field(name)
            values[name] = convert_value(column, value)
        except WrongValue as exc:
            yield f"{path}.{name}: {exc}"
            return
    if not isinstance(values.get(_FROM), datetime):
        yield f"{path}.{_FROM}: write the date and time from which the price counts."
        return
    yield from _store(path, model, values, findings)


def _store(
    path: str, model: LanguageModel, values: dict[str, Any], findings: Findings
) -> Iterator[str]:
    begins = values.pop(_FROM)
    row = ModelPrice.objects.filter(model=model, valid_from=begins).first()
    is_new = row is None
    row = row or ModelPrice(model=model, valid_from=begins)
    before: dict[str, Any] = {name: _exact(getattr(row, name)) for name in COLUMNS}
    before[TIERS] = row.tiers
    after: dict[str, Any] = {name: _exact(values.get(name)) for name in COLUMNS}
    after[TIERS] = values.get(TIERS) or {}
    if before == after and not is_new:
        return
    if not is_new and row.is_in_effect:
        yield f"{path}: this price is in effect; add one with a later {_FROM} instead."
        return
    for name, value in after.items():
        setattr(row, name, value)
    try:
        row.full_clean()
    except ValidationError as exc:
        yield f"{path}: {' '.join(exc.messages)}"
        return
    row.save()
    what = "created" if is_new else "changed"
    findings.changes.append(f"{path}: {what}, from {begins:%Y-%m-%d %H:%M} UTC")


def _exact(value: Any) -> Decimal | None:
    return None if value is None else Decimal(str(value)).quantize(Decimal("0.000001"))
