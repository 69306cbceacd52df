"""Identity providers of the configuration file, with the groups of their claims."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from llm.db.bound_secrets import SecretUnavailable
from project.accounts.models import GroupMapping, IdentityProvider
from project.config_file.links import Links
from project.config_file.shape import Shape, Table
from project.config_file.tables import IDENTITY_PROVIDER, build_table
from project.config_file.variables import Secrets, VariableNames

Mapping = tuple[str, str]  # value in the claim, name of the group


def find_secret(
    path: str, table: Table, row: IdentityProvider, secrets: Secrets
) -> str:
    """The secret to store; "" if it stays as it is or after a problem."""
    if "secret" not in table:
        return ""
    text = secrets.text(path, table["secret"], "secret", bool(row.secret))
    is_moved = table.get("server_url", "") != row.server_url
    return "" if not is_moved and text == _stored_secret(row) else text


def _stored_secret(row: IdentityProvider) -> str:
    with suppress(SecretUnavailable):  # then the file's is entered
        return row.secret.reveal() if row.secret else ""
    return ""


def read_mappings(path: str, tables: Any, shape: Shape) -> list[Mapping] | None:
    """None after a problem."""
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        shape.problems.append(f"{path}: write a list of tables.")
        return None
    count = len(shape.problems)
    found = []
    for number, table in enumerate(tables, 1):
        where = f"{path}[{number}]"
        shape.check_fields(where, table, ["claim", "group"])
        pair = [
            shape.filled_text(f"{where}.{name}", table.get(name))
            for name in ("claim", "group")
        ]
        found.append((pair[0], pair[1]))
    return None if len(shape.problems) > count else list(dict.fromkeys(found))


def set_mappings(
    row: IdentityProvider, wanted: list[Mapping], links: Links
) -> Iterator[str]:
    """Give the provider exactly these; yield the change."""
    stored = {(each.claim, each.group.name) for each in _mappings_of(row)}
    if stored == set(wanted):
        return
    row.group_mappings.all().delete()
    for claim, name in wanted:
        GroupMapping.objects.create(
            provider=row, claim=claim, group=links.ensure_group(name)
        )
    pairs = ", ".join(f"{claim} → {name}" for claim, name in wanted)
    yield f"group_mappings: now {pairs or 'none'}"


def build_identity_table(
    row: IdentityProvider, variables: VariableNames
) -> dict[str, Any]:
    table = build_table(row, IDENTITY_PROVIDER)
    if row.secret:
        table["secret"] = f"env:{variables.name_for(row.slug, '_SECRET')}"
    if row.default_group:
        table["default_group"] = row.default_group.name
    mappings = [
        {"claim": each.claim, "group": each.group.name} for each in _mappings_of(row)
    ]
    return table | ({"group_mappings": mappings} if mappings else {})


def _mappings_of(row: IdentityProvider) -> Any:
    return row.group_mappings.select_related("group")
