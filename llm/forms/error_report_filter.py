"""Error reports without secrets, for views with a secret in their form.

Django hides sensitive parameters only if DEBUG is off, and never inside other
variables. On these views both is not enough.
"""

from __future__ import annotations

from collections.abc import ItemsView
from types import FrameType
from typing import Any

from django.http import HttpRequest, QueryDict
from django.views.debug import SafeExceptionReporterFilter


def hide_secrets(request: HttpRequest) -> None:
    """Hide secrets posted with this request from all error reports."""
    names = [name for name in request.POST if name.rpartition("-")[2] == "secret"]
    annotated: Any = request  # the attribute that Django's own decorator sets
    annotated.sensitive_post_parameters = names
    request.exception_reporter_filter = SecretFilter()


class SecretFilter(SafeExceptionReporterFilter):
    def is_active(self, request: HttpRequest | None) -> bool:
        return True

    def get_traceback_frame_variables(
        self, request: Any, tb_frame: FrameType
    ) -> ItemsView[str, Any]:
        secrets = _list_posted_secrets(request)
        variables = dict(super().get_traceback_frame_variables(request, tb_frame))
        for name, value in variables.items():
            if _contains_secret(value, secrets):
                variables[name] = self.cleansed_substitute
        return variables.items()


def _list_posted_secrets(request: Any) -> list[str]:
    names = getattr(request, "sensitive_post_parameters", [])
    values = (request.POST.get(name, "") for name in names)
    return [text for text in values if text]


def _contains_secret(value: Any, secrets: list[str]) -> bool:
    if not secrets or isinstance(value, QueryDict):
        return False  # Django cleanses those by name
    try:
        shown = f"{value!r}{value}"
    except Exception:  # a broken repr may raise anything; then the value is hidden
        return True
    return any(secret in shown for secret in secrets)
