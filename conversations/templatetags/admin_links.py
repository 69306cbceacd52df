"""Template tag: what a page of the admin shows of a row, without links that refuse.

Django links each related row that may not be edited, whether the viewer may see it or
not; columns and fields of our own link rows as well.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from django import template
from django.apps import apps
from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.template import Context
from django.urls import Resolver404, resolve
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString

register = template.Library()

_LINK = re.compile(r'<a href="([^"]*)"[^>]*>(.*?)</a>', re.DOTALL)


@register.simple_tag(takes_context=True)
def readonly_value(context: Context, field: Any) -> SafeString:
    """The value of a field that is not edited; `field` is the admin's."""
    request: HttpRequest = context["request"]

    def show(link: re.Match[str]) -> str:
        return link[0] if may_open(request, link[1]) else link[2]

    # Both the text of a link and what surrounds it are escaped already.
    return SafeString(_LINK.sub(show, field.contents()))


@register.simple_tag(takes_context=True)
def permitted_link(context: Context, address: str, text: Any) -> SafeString:
    """A link for who may see the row, or the list of rows; else only its text."""
    if may_open(context["request"], address):
        return format_html('<a href="{}">{}</a>', address, text)
    return conditional_escape(text)


def may_open(request: HttpRequest, address: str) -> bool:
    """False for a row or a list of rows that the viewer may not see."""
    try:
        name = resolve(urlsplit(address).path).view_name
    except Resolver404:
        return True  # outside of the site
    model = _models_of_pages().get(name)
    if model is None:
        return True
    return admin.site.get_model_admin(model).has_view_permission(request)


@cache
def _models_of_pages() -> dict[str, type[Model]]:
    return {
        f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}": model
        for model in apps.get_models()
        if admin.site.is_registered(model)
        for page in ("change", "changelist")
    }
