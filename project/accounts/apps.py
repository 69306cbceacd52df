"""App configuration: accounts, how people sign in to them, and its signals."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AccountsConfig(AppConfig):
    name = "project.accounts"
    label = "accounts"
    verbose_name = _("Signing in")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from project.accounts import audited_rows, session_marks
        from project.accounts.identities import receivers

        audited_rows.watch_rows()
        session_marks.connect()
        receivers.connect()
