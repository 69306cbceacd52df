from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from conversations.models import AccessToken


class Command(BaseCommand):
    help = "Make an access token for the API; its last line is the token alone."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", metavar="USER", help="whose token it is")
        parser.add_argument(
            "--label", default="token", help="what it is for, as the admin shows it"
        )

    def handle(self, *, user: str, label: str, **options: Any) -> None:
        try:
            owner = User.objects.get(username=user, is_active=True)
        except User.DoesNotExist:
            raise CommandError(f"There is no active user {user!r}.") from None
        except OperationalError as exc:
            raise CommandError("There is no database yet; `make run` first.") from exc
        _, token = AccessToken.issue(owner, label)
        self.stderr.write(f"Token {label!r} of {user}, shown only this once:")
        self.stdout.write(token)
