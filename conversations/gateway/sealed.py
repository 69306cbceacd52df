"""What a client carries for us and cannot read: summaries, and providers' proofs.

Encrypted under the server's own keys and bound to the user, so that nobody can put
words into it, or use what was given to somebody else.
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
    """The value; None where it is no such thing of this user's and this server's."""
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
