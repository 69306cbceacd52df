"""A secret that is decrypted when it is sent, without Django's models.

Clients of MCP servers import it where Django is not configured.
"""

from __future__ import annotations

import json
from typing import Protocol


class RevealableSecret(Protocol):
    """A secret that is decrypted only when it is sent."""

    def reveal(self) -> str:
        """Raises `llm.db.encrypted_field.SecretUnavailable`."""
        ...


def reveal_headers(stored: RevealableSecret | None) -> dict[str, str]:
    """The headers and their values. Raises SecretUnavailable."""
    if not stored:
        return {}
    headers: dict[str, str] = json.loads(stored.reveal())
    return headers
