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
        from allauth.mfa.signals import authentication_failed

        from conversations.access.sign_in_attempts import log_wrong_code
        from conversations.audit.sign_ins import record_wrong_code
        from conversations.engine.maintenance.retention import add_expired_rows
        from project.accounts import audited_rows, session_marks
        from project.accounts.identities import receivers
        from project.accounts.models import Invitation

        audited_rows.watch_rows()
        session_marks.connect()
        receivers.connect()
        add_expired_rows(Invitation.find_expired)
        authentication_failed.connect(log_wrong_code)
        authentication_failed.connect(record_wrong_code)
