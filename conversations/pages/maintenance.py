"""The maintenance banner for the templates of the chat pages."""

from __future__ import annotations

from django.http import HttpRequest

from conversations.access import maintenance


def banner(request: HttpRequest) -> dict[str, str]:
    return {"maintenance_banner": maintenance.state.notice.banner}
