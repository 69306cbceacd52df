"""Model pools of the configuration file, with their hosts.

A pool's `hosts` are exactly those of the file. Models are named as `provider/model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError

from llm.models import LanguageModel, ModelPool, PoolMember
from project.config_file.findings import Findings
from project.config_file.shape import Shape
from project.config_file.tables import (
    MODEL_POOL,
    WrongValue,
    build_table,
    convert_value,
)

Hosts = Mapping[str, int]  # weights, by the names of the models


def build_pool_tables() -> list[dict[str, Any]]:
    rows = ModelPool.objects.prefetch_related("members__model__provider")
    return [_build_table(row) for row in rows]


def _build_table(row: ModelPool) -> dict[str, Any]:
    table = build_table(row, MODEL_POOL)
    hosts = [
        {"model": name} | ({"weight": weight} if weight != 1 else {})
        for name, weight in _weights(row).items()
    ]
    return table | ({"hosts": hosts} if hosts else {})


def _weights(row: ModelPool) -> Hosts:
    return {each.model.full_name: each.weight for each in row.members.all()}


def read_hosts(path: str, tables: Any, shape: Shape) -> Hosts | None:
    """None after a problem."""
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        shape.problems.append(f"{path}: write a list of tables.")
        return None
    count = len(shape.problems)
    hosts: dict[str, int] = {}
    for number, table in enumerate(tables, 1):
        where = f"{path}[{number}]"
        shape.check_fields(where, table, ["model", "weight"])
        name = shape.filled_text(f"{where}.model", table.get("model"))
        if name in hosts:
            shape.problems.append(f"{where}.model: this name occurs twice.")
        hosts[name] = _read_weight(f"{where}.weight", table.get("weight", 1), shape)
    return None if len(shape.problems) > count else hosts


def _read_weight(path: str, value: Any, shape: Shape) -> int:
    column: Any = PoolMember._meta.get_field("weight")
    try:
        weight = convert_value(column, value)
        column.run_validators(weight)
    except WrongValue as exc:
        shape.problems.append(f"{path}: {exc}")
    except ValidationError as exc:
        shape.problems.append(f"{path}: {' '.join(exc.messages)}")
    else:
        return int(weight)
    return 1


def set_hosts(path: str, row: ModelPool, hosts: Hosts, findings: Findings) -> None:
    """Give the pool exactly these hosts, when all models of the file have rows."""
    stored = _weights(row) if row.pk else {}
    if list(stored.items()) == list(hosts.items()):
        return
    members: list[PoolMember] = []
    for name, weight in hosts.items():
        if (model := find_model(name)) is None:
            findings.problems.append(f"{path}: there is no model {name!r}.")
            return
        members.append(PoolMember(pool=row, model=model, weight=weight))
    row.members.all().delete()
    for member in members:
        member.save()
    names = ", ".join(f"{name} ({weight})" for name, weight in hosts.items())
    findings.changes.append(f"{path}: now {names or 'none'}")


def find_model(full_name: str) -> LanguageModel | None:
    """The model that a file names as `provider/model`."""
    provider, _, name = full_name.partition("/")
    return LanguageModel.objects.filter(provider__name=provider, name=name).first()
