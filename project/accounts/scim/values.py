"""Checks of the values in SCIM requests: a wrong one is answered with 400."""

from __future__ import annotations

from typing import Any

from django_scim import exceptions

from project.accounts.scim.paths import Target

_BOOLEANS = {"true": True, "false": False}  # as Entra ID writes them


def check_mapping(value: Any) -> None:
    """Raises BadRequestError."""
    if not isinstance(value, dict):
        raise exceptions.BadRequestError("Write an object.")


def check_texts(values: dict[str, Any], *names: str) -> None:
    """Raises BadRequestError."""
    for name in names:
        read_text(Target(name), values.get(name))


def read_text(target: Target, value: Any) -> str | None:
    """Raises BadRequestError."""
    if value is not None and not isinstance(value, str):
        raise exceptions.BadRequestError(
            f"{target.name}: write a text.", scim_type="invalidValue"
        )
    return value


def read_boolean(value: Any) -> bool:
    """Raises BadRequestError."""
    found = _BOOLEANS.get(str(value).lower())
    if found is None:
        raise exceptions.BadRequestError(
            "active: write true or false.", scim_type="invalidValue"
        )
    return found


def with_active(values: dict[str, Any]) -> dict[str, Any]:
    """`values` with `active` as a boolean, and without it if it is null, which means
    unset (RFC 7643, section 2.5). Raises BadRequestError."""
    if values.get("active") is None:
        return {key: values[key] for key in values if key != "active"}
    return {**values, "active": read_boolean(values["active"])}


def list_values(value: list[Any]) -> list[Any]:
    return [each.get("value") for each in value if isinstance(each, dict)]


def read_members(value: Any) -> set[str]:
    """Raises BadRequestError."""
    members = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) and "value" in each for each in members):
        raise exceptions.BadRequestError(
            "members: write a list of {value: id}.", scim_type="invalidValue"
        )
    return {str(each["value"]) for each in members}
