"""App configuration: installs the triggers after `migrate`, and records sign-ins."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.contrib.auth.signals import (
    user_logged_in,
    user_logged_out,
    user_login_failed,
)
from django.db import connections
from django.db.models.signals import post_migrate, post_save


class AuditConfig(AppConfig):
    name = "conversations.audit"
    label = "audit"
    verbose_name = "Audit"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from conversations.audit import sign_ins
        from conversations.audit.watch import record_log_entry

        post_migrate.connect(install_triggers, sender=self)
        user_logged_in.connect(sign_ins.record_sign_in)
        user_logged_out.connect(sign_ins.record_sign_out)
        user_login_failed.connect(sign_ins.record_failure)
        post_save.connect(record_log_entry, sender="admin.LogEntry")


def install_triggers(*, using: str, **_: Any) -> None:
    from conversations.audit import triggers

    connection = connections[using]
    existing = connection.introspection.table_names()
    if set(triggers.TABLES) <= set(existing):
        triggers.install(connection)
