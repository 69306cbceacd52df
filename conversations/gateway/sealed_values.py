"""Encrypted values that clients store for the server: summaries and providers' proofs.

They are encrypted with the server's keys and bound to the user, so that no client can
forge one or use another user's.
"""

from __future__ import annotations

from typing import Any, Literal

import orjson

from llm.db.encrypted_field import SecretUnavailable, decrypt, encrypt

Kind = Literal["compaction", "proof", "answer_proofs"]


def seal(kind: Kind, user_id: int, value: Any) -> str:
    envelope = {"kind": kind, "user": user_id, "value": value}
    return encrypt(orjson.dumps(envelope).decode())


def unseal(kind: Kind, user_id: int, text: Any) -> Any:
    """The value; None if this server did not seal it as this kind for this user."""
    if not isinstance(text, str):
        return None
    try:
        envelope = orjson.loads(decrypt(text))
    except (SecretUnavailable, orjson.JSONDecodeError):
        return None
    if not isinstance(envelope, dict):
        return None
    if envelope.get("kind") != kind or envelope.get("user") != user_id:
        return None
    return envelope.get("value")
