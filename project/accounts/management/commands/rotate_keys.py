"""Command `rotate_keys`: as that of llm, and for the secrets of second factors."""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from django.core.management.base import CommandError

from llm.db.command_errors import report_database_errors
from llm.db.encrypted_field import SecretUnavailable, decrypt, encrypt
from llm.management.commands import rotate_keys

#: Encrypted texts in `Authenticator.data`: of an app with codes, of recovery codes.
_SECRETS = ("secret", "seed")


class Command(rotate_keys.Command):
    def handle(self, *, print_new_key: bool, **options: Any) -> None:
        super().handle(print_new_key=print_new_key, **options)
        if print_new_key:
            return
        with report_database_errors():
            unreadable, changed = _rotate_second_factors()
        if changed:
            self.stdout.write(f"Second factors: {changed} changed meanwhile")
        if unreadable:
            rows = ", ".join(map(str, unreadable))
            raise CommandError(
                f"Second factors that cannot be read (rows {rows}): keep the older"
                " keys, or remove these rows; their users set them up again."
            )
        if changed:
            raise CommandError(
                "Not all second factors are encrypted with the newest key. Keep the"
                " older keys, and run this command again."
            )


def _rotate_second_factors() -> tuple[list[int], int]:
    """Encrypt each secret again, unless its row has changed meanwhile. Returns the rows
    that no key decrypts, and the number of those that have changed."""
    unreadable, changed = [], 0
    for row in Authenticator.objects.exclude(type=Authenticator.Type.WEBAUTHN):
        before = row.data
        try:
            after = {
                name: encrypt(decrypt(value)) if name in _SECRETS else value
                for name, value in before.items()
            }
        except SecretUnavailable:
            unreadable.append(row.pk)
            continue
        unchanged = Authenticator.objects.filter(pk=row.pk, data=before)
        changed += not unchanged.update(data=after)
    return unreadable, changed
