"""How texts are marked that this server has sealed for a client to store and return."""

from __future__ import annotations

from typing import Any

#: How every sealed text of proofs begins.
PREFIX = "parley:proofs:"


def is_sealed(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(PREFIX)
