"""Encrypted values that clients store for the server: summaries and providers' proofs.

They are encrypted with the server's keys and bound to the user, so that no client can
forge one or use another user's.
"""

from __future__ import annotations

from typing import Any, Literal

import orjson

from llm.encrypted import SecretUnavailable, decrypt, encrypt

Kind = Literal["compaction", "proof"]


def seal(kind: Kind, user_id: int, value: Any) -> str:
    told = {"kind": kind, "user": user_id, "value": value}
    return encrypt(orjson.dumps(told).decode())


def unseal(kind: Kind, user_id: int, text: Any) -> Any:
    """The value; None if this server did not seal it as this kind for this user."""
    if not isinstance(text, str):
        return None
    try:
        told = orjson.loads(decrypt(text))
    except (SecretUnavailable, orjson.JSONDecodeError):
        return None
    if not isinstance(told, dict):
        return None
    if told.get("kind") != kind or told.get("user") != user_id:
        return None
    return told.get("value")
