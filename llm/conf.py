"""Django settings of the app `llm`, with defaults for projects that do not set them.

docs/library.md lists them. A setting is read when it is first used, and read again
after Django's signal `setting_changed`, so that a test may override it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from django.conf import settings as project_settings
from django.core.signals import setting_changed

DEFAULTS: Mapping[str, Any] = {
    "SELF_URL": "http://127.0.0.1:8010",  # where `serve_demo` serves the demo provider
    "DISABLED_PROVIDERS": frozenset(),  # kinds
    "LLM_CONNECT_TIMEOUT": 10,  # seconds
    "LLM_FIRST_BYTE_TIMEOUT": 120,  # seconds
    "LLM_IDLE_TIMEOUT": 120,  # seconds between two chunks
    "LLM_TOTAL_TIMEOUT": 1800,  # seconds
    "LLM_MAX_CONNECTIONS": 2000,
    "LLM_CONNECTION_WAIT": 2,  # seconds
    "LLM_KEY_WAIT": 2,  # seconds
    "EXCHANGE_MAX_SIZE": 262_144,  # bytes of a stored request, and of its response
    "TRANSCRIPTION_MODEL": "",  # public name; it is offered for dictation only
    "KEY_VARIABLES": ("*_API_KEY",),  # environment variables that a key may name
    "OUTBOUND_HOSTS": [],  # hosts that may be reached; empty: every one
    "KEY_FOLDERS": ("/run/secrets",),  # of files that a key may name
    "STRUCTURED_OUTPUT_CORRECTIONS": 1,  # calls
}


_UNSET = object()


class SettingsWithDefaults:
    """The project's settings, and a default for each that the project leaves out.

    Values that were read are attributes of the instance, as in Django's own settings:
    a provider call reads a dozen of them.
    """

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        self._defaults = defaults
        setting_changed.connect(self._on_change)

    def __getattr__(self, name: str) -> Any:
        value = getattr(project_settings, name, _UNSET)
        if value is _UNSET and name == "ENCRYPTION_KEYS":
            return derive_encryption_keys()  # not stored: it follows two other settings
        if value is _UNSET:
            try:
                value = self._defaults[name]
            except KeyError:
                raise AttributeError(f"The setting {name} has no default.") from None
        self.__dict__[name] = value
        return value

    def _on_change(self, *, setting: str, **kwargs: Any) -> None:
        self.__dict__.pop(setting, None)


def derive_encryption_keys() -> list[str]:
    """A key ring derived from SECRET_KEY, and from SECRET_KEY_FALLBACKS behind it."""
    secrets = [project_settings.SECRET_KEY, *project_settings.SECRET_KEY_FALLBACKS]
    return [_derive_key(secret) for secret in secrets]


def _derive_key(secret: str | bytes) -> str:
    encoded = secret.encode() if isinstance(secret, str) else secret
    digest = hmac.digest(encoded, b"parley encryption key", hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode()


settings = SettingsWithDefaults(DEFAULTS)
