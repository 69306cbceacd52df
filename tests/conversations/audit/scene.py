"""Forms of the admin, filled in as its pages show them."""

from __future__ import annotations

from typing import Any

from django.test import Client


def fill(client: Client, address: str, **changes: Any) -> Any:
    """Open the page of a form, change these fields, and send it."""
    page = client.get(address)
    assert page.status_code == 200, (address, page.status_code)
    data = _values(page.context["adminform"].form)
    for inline in page.context["inline_admin_formsets"]:
        data |= _values(inline.formset.management_form)
        for form in inline.formset.forms:
            data |= _values(form)
    answer = client.post(address, {**data, **changes})
    assert answer.status_code == 302, _errors(answer)
    return answer


def _errors(answer: Any) -> Any:  # of the form and of the forms inside it
    return answer.context["errors"] if answer.context else answer.status_code


def _values(form: Any) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for field in form:
        value = field.value()
        if hasattr(field.field.widget, "decompress"):
            parts = field.field.widget.decompress(value)
            names = [f"{field.html_name}_{n}" for n in range(len(parts))]
            data |= dict(zip(names, parts, strict=True))
        else:
            data[field.html_name] = value
    return {
        name: "on" if value is True else value
        for name, value in data.items()
        if value is not None and value is not False
    }
