"""Django's `LOGGING`: one line an event, never a key, a prompt or a body."""

from __future__ import annotations

from typing import Any


def log_settings(*, level: str, format: str, audit_address: Any) -> dict[str, Any]:
    """`format` is `line` or `json`; the audit log is also sent to `audit_address`."""
    apps = ("llm", "tools", "conversations", "project")
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {"()": "project.startup.line_log.LineFormatter"},
            "json": {"()": "project.startup.json_log.JsonFormatter"},
        },
        "filters": {
            "tracebacks": {"()": "project.startup.log_filter.TracebackFilter"},
            "tokens": {"()": "project.startup.log_filter.AddressTokenFilter"},
        },
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": format,
                "filters": ["tracebacks", "tokens"],
            },
            "audit": {
                "class": "conversations.audit.syslog.AuditSysLogHandler",
                "address": audit_address,
            },
        },
        "root": {"handlers": ["stderr"], "level": "WARNING"},
        "loggers": {
            **{name: {"level": level} for name in apps},
            # axes masks user names; conversations/access/sign_in_attempts.py logs them.
            "axes": {"level": "ERROR"},
            "audit.stream": {
                "level": "INFO",
                "handlers": ["audit"],
                "propagate": False,
            },
        },
    }
