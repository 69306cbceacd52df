"""Command `create_token`: create an access token and print it."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, OperationalError, ProgrammingError
from django.utils import timezone

from conversations.models import AccessToken
from conversations.models.access_token import Scope, usual_scopes
from conversations.models.folder import Folder
from llm import router
from llm.errors import LLMError
from llm.models import LanguageModel
from tools.models import Tool


class Command(BaseCommand):
    help = (
        "Create an access token for the API; the last line of the output is the token."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("user", metavar="USER", help="name of the user")
        add(
            "--label", default="token", help="label of the token, as the admin shows it"
        )
        add(
            "--days",
            type=_days,
            help="days that the token is valid, from 1 to 36500; default: no limit",
        )
        add(
            "--cache-seconds",
            type=int,
            metavar="N",
            help="seconds that answers are used for equal requests; 0: never",
        )
        _add_rights(parser)
        _add_spending(parser)

    def handle(self, *, user: str, label: str, **options: Any) -> None:
        try:
            owner = User.objects.get(username=user, is_active=True)
            token = self._issue(owner, label, options)
        except User.DoesNotExist:
            raise CommandError(f"There is no active user {user!r}.") from None
        except (OperationalError, ProgrammingError) as exc:
            raise CommandError(_explain(exc)) from exc
        self.stderr.write(f"Token {label!r} of {user}, shown only this once:")
        self.stdout.write(token)

    def _issue(self, owner: User, label: str, options: dict[str, Any]) -> str:
        """Raises CommandError."""
        models = [_resolve_model(name, owner) for name in options["model"]]
        days = options["days"]
        _check_tools(options["tool"], owner)
        limits = {
            "scopes": options["scope"] or usual_scopes(),
            "allowed_tools": " ".join(sorted(options["tool"])),
            "allowed_conversations": " ".join(sorted(options["conversation"])),
            "allowed_folders": " ".join(_find_folders(options["folder"], owner)),
            "networks": options["network"],
            "requests_per_minute": options["requests_per_minute"],
            "tokens_per_minute": options["tokens_per_minute"],
            "budget": _parse_amount(options["budget"]),
            "budget_period": options["period"],
            "declares_any_tool": options["declares_any_tool"],
            "cache_seconds": options["cache_seconds"],
        }
        row = AccessToken(user=owner, label=label, **limits)
        row.generate_token()
        try:
            row.full_clean()
        except ValidationError as exc:
            raise CommandError("; ".join(_problems(exc))) from exc
        until = timezone.now() + timedelta(days=days) if days is not None else None
        _, token = AccessToken.issue(
            owner, label, until, allowed_models=models, **limits
        )
        return token


def _add_rights(parser: ArgumentParser) -> None:
    """What the token may do, use and reach."""
    add = parser.add_argument
    add(
        "--scope",
        action="append",
        choices=Scope.values,
        help="a scope of the token, may be repeated; default: chat and gateway",
    )
    add(
        "--model",
        action="append",
        default=[],
        help="a model that the token may use, may be repeated; default: all",
    )
    add(
        "--tool",
        action="append",
        default=[],
        help="a tool that the token may use, may be repeated; default: all",
    )
    add(
        "--conversation",
        action="append",
        default=[],
        help=(
            "a conversation of the user, by its id, that the token may reach, may"
            " be repeated; default: all"
        ),
    )
    add(
        "--folder",
        action="append",
        default=[],
        help=(
            "a folder of the user, by its name, whose conversations the token may"
            " reach, may be repeated; default: all"
        ),
    )
    add(
        "--network",
        action="append",
        default=[],
        help=(
            "an address or network that may use the token, may be repeated;"
            " default: any"
        ),
    )
    add(
        "--declares-any-tool",
        action="store_true",
        help=("allow requests to declare tools that the user's groups may not declare"),
    )


def _add_spending(parser: ArgumentParser) -> None:
    """How often the token may be used, and for how much."""
    add = parser.add_argument
    add("--requests-per-minute", type=int, metavar="N")
    add("--tokens-per-minute", type=int, metavar="N")
    add("--budget", metavar="USD", help="budget of the token")
    add(
        "--period",
        choices=AccessToken.Period.values,
        default=AccessToken.Period.TOTAL.value,
        help="period of the budget",
    )


def _days(text: str) -> int:
    if re.fullmatch("[0-9]{1,5}", text) and 1 <= int(text) <= 36500:
        return int(text)
    raise ArgumentTypeError(f"{text!r} is not a number of days from 1 to 36500")


def _resolve_model(name: str, owner: User) -> LanguageModel:
    try:
        model_id = router.resolve(name, user=owner).model_id
    except LLMError as exc:
        raise CommandError(str(exc)) from exc
    assert model_id is not None, "a resolved name has a row"
    return LanguageModel.objects.get(pk=model_id)


def _check_tools(names: Iterable[str], owner: User) -> None:
    """Raises CommandError."""
    known = {row.name for row in Tool.objects.rows_for(owner)}
    if unknown := set(names) - known:
        raise CommandError(f"There is no tool {min(unknown)!r} for {owner}.")


def _find_folders(names: Iterable[str], owner: User) -> list[str]:
    """Raises CommandError."""
    known = {row.name: str(row.pk) for row in Folder.objects.of(owner)}
    if unknown := set(names) - set(known):
        raise CommandError(f"There is no folder {min(unknown)!r} of {owner}.")
    return sorted(known[name] for name in names)


def _explain(exc: DatabaseError) -> str:
    """Explain the error. PostgreSQL and SQLite report missing tables differently."""
    if isinstance(exc, ProgrammingError) or "no such table" in str(exc):
        return (
            "There are no tables in the database yet; start the server once with"
            f" `{settings.LOCATIONS.start}`."
        )
    message = str(exc).partition("\n")[0].rstrip(".")
    return f"The database does not respond: {message}."


def _parse_amount(text: str | None) -> Decimal | None:
    try:
        return None if text is None else Decimal(text)
    except InvalidOperation as exc:
        raise CommandError(f"{text!r} is not an amount; write 5 or 0.50.") from exc


def _problems(exc: ValidationError) -> list[str]:
    return [
        f"{name}: {problem}"
        for name, problems in exc.message_dict.items()
        for problem in problems
    ]
