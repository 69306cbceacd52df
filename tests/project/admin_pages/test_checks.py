"""Django's checks of the admin."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.models import User
from django.urls import get_resolver


def test_django_finds_nothing_wrong_with_the_admin():
    """`manage.py check` may check it before the URLs have loaded it."""
    assert get_resolver().url_patterns
    assert admin.site.is_registered(User)
    assert admin.site.check(None) == []
