"""The language of a page: its reader's."""

from __future__ import annotations

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        ("de-AT,de;q=0.9,en;q=0.5", "de"),
        ("zh-CN,zh;q=0.9", "zh-hans"),
        ("tlh", "en"),
        ("", "en"),
        ("de;q=x,\x80;;,," + "fr," * 500, "en"),
    ],
)
def test_a_stranger_gets_the_browsers_language(accepted: str, expected: str):
    page = Client().get("/login/", headers={"Accept-Language": accepted})
    assert f'<html lang="{expected}"' in page.text
    assert page["Content-Language"] == expected


def test_a_page_names_its_direction(settings):
    settings.LANGUAGES = [*settings.LANGUAGES, ("ar", "العربية")]
    right_to_left = Client().get("/login/", headers={"Accept-Language": "ar"})
    left_to_right = Client().get("/login/", headers={"Accept-Language": "fr"})
    assert 'dir="rtl"' in right_to_left.text
    assert 'dir="ltr"' in left_to_right.text
