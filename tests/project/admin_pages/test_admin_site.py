"""Every query of an admin list gives a list or a message."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import models
from django.urls import reverse

from llm.models import Provider
from tests.conversations.scene import signed_in

pytestmark = pytest.mark.django_db(transaction=True)

_HUGE = "9" * 30
_PARAMETERS = ("p", "o", "q", "_to_field", "pk__in")

#: Each kind of field is tested in the first list that has it.
_FIELDS: dict[type[models.Field], tuple[type[models.Model], str]] = {}
MODELS = [each for each in apps.get_models() if admin.site.is_registered(each)]
for _model in MODELS:
    for _field in _model._meta.fields:
        _FIELDS.setdefault(type(_field), (_model, _field.name))


def _queries(model: type[models.Model]) -> Iterator[dict[str, str]]:
    for name in _PARAMETERS:
        yield {name: "\0" + _HUGE}
    if isinstance(model._meta.pk, models.CharField):  # any text may be a key there
        dates = [f for f in model._meta.fields if isinstance(f, models.DateTimeField)]
        yield {f"{dates[0].name}__year": "0"}
    for name in [name for first, name in _FIELDS.values() if first is model]:
        yield {name: "("}
        yield {f"{name}__in": _HUGE}
        yield from ({f"{name}__{lookup}": "("} for lookup in ("regex", "range"))
        yield from ({f"{name}__year": year} for year in ("0", "99999"))


@pytest.mark.parametrize("model", MODELS, ids=lambda it: it.__name__)
def test_no_query_string_is_a_fault_of_a_list(model: type[models.Model]):
    browser = signed_in(User.objects.create_superuser("ada"))
    url = reverse(f"admin:{model._meta.label_lower.replace('.', '_')}_changelist")
    refused = 0
    for query in _queries(model):
        response = browser.get(url, query)
        assert response.status_code in (200, 302, 400), query
        if response.status_code == 302:
            assert response["Location"].endswith("?e=1"), query
            refused += 1
    assert refused
    assert browser.get(url).status_code == 200


def test_a_list_that_fails_without_a_query_is_an_internal_error(
    monkeypatch: pytest.MonkeyPatch,
):
    browser = signed_in(User.objects.create_superuser("ada"))
    url = reverse("admin:llm_provider_changelist")

    def broken(*_: object) -> None:
        raise ValueError("unexpected")

    monkeypatch.setattr(
        type(admin.site.get_model_admin(Provider)), "get_queryset", broken
    )
    assert browser.get(url, {"name": "x"})["Location"] == f"{url}?e=1"
    for query in ({}, {"e": "1"}):
        with pytest.raises(ValueError, match="unexpected"):
            browser.get(url, query)
    with pytest.raises(ValueError, match="unexpected"):
        browser.post(f"{url}?name=x", {"action": "delete_selected"})
