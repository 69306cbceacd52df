"""The API key of the demo provider, derived from SECRET_KEY instead of stored."""

from __future__ import annotations

import hashlib
import hmac

from django.conf import settings


def demo_key() -> str:
    """The key. It changes only with SECRET_KEY and does not reveal it."""
    digest = hmac.new(settings.SECRET_KEY.encode(), b"parley demo", hashlib.sha256)
    return f"demo-{digest.hexdigest()[:40]}"
