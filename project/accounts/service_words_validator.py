"""Refuses passwords that are little more than the names of this service."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

WORDS = frozenset({"parley", "admin", "password", "assistant", "chat"})
SHORTEST_LABEL = 4  # characters of a part of a host name that counts
REST = 6  # characters that a password has beside these words


class ServiceWordsValidator:
    """A password validator. It has no opinion on passwords without such a word.
    Source: OWASP ASVS 5.0, 6.2.11
    """

    def validate(self, password: str, user: Any = None) -> None:
        rest = password.casefold()
        for word in sorted(words(), key=len, reverse=True):
            rest = rest.replace(word, "")
        if len(rest) < REST and rest != password.casefold():
            raise ValidationError(
                _("This password is little more than the name of this service."),
                code="service_words",
            )

    def get_help_text(self) -> str:
        return _("Your password cannot be built from the name of this service.")


def words() -> frozenset[str]:
    hosts = ".".join(settings.ALLOWED_HOSTS).casefold().split(".")
    return WORDS | {label for label in hosts if len(label) >= SHORTEST_LABEL}
