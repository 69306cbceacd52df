"""The admin's page of probes."""

from __future__ import annotations

import threading

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from llm.models import LanguageModel, ModelCall, ModelProbe, Provider
from llm.models.model_probe import STALE
from llm.probing.jobs import KEPT, MAX_RUNNING, run_probe

from .host import ProbedHost

pytestmark = pytest.mark.django_db

PLANTED = "sk-planted-0123456789-wxyz"


@pytest.fixture
def model() -> LanguageModel:
    provider = Provider.objects.create(
        name="Fake",
        kind="openai_compatible",
        base_url="http://127.0.0.1:9/v1",
        allow_private_network=True,
    )
    provider.keys.create(secret=PLANTED)
    return provider.models.create(name="a-model")


def page(provider: Provider) -> str:
    return reverse("admin:llm_provider_probe", args=[provider.pk])


@pytest.mark.django_db(transaction=True)
def test_the_button_probes_in_the_background_and_the_page_shows_all_findings(
    admin_client: Client, admin_user: User, model: LanguageModel
):
    with ProbedHost("dies at images").listening() as base_url:
        Provider.objects.update(base_url=base_url)
        model.provider.refresh_from_db()
        key = model.provider.keys.get()
        key.secret = PLANTED
        key.save()
        answer = admin_client.post(page(model.provider), {"model": model.pk})
        row = ModelProbe.objects.get()
        assert answer.url.endswith(f"?model={model.pk}&probe={row.pk}")
        for thread in threading.enumerate():
            if thread.name == f"probe-{row.pk}":
                thread.join()
    html = admin_client.get(answer.url).text
    assert 'http-equiv="refresh"' not in html
    assert "Failed twice, while plain text works" in html
    assert html.count("probe-works") == 8
    assert "<code>vision</code>: no" in html
    assert PLANTED not in html
    callers = ModelCall.objects.values_list("user_id", flat=True)
    assert {*callers} == {admin_user.pk}
    changed = admin_client.get(
        reverse("admin:llm_languagemodel_change", args=[model.pk])
    )
    assert "vision: no" in changed.text


@pytest.mark.django_db(transaction=True)
def test_an_error_is_in_the_language_of_who_asked(
    admin_client: Client, model: LanguageModel
):
    with ProbedHost("refuses schemas").listening() as base_url:
        Provider.objects.update(base_url=base_url)
        german = {"accept-language": "de"}
        key = model.provider.keys.get()
        key.provider.refresh_from_db()
        key.secret = PLANTED
        key.save()
        admin_client.post(page(model.provider), {"model": model.pk}, headers=german)
        row = ModelProbe.objects.get()
        for thread in threading.enumerate():
            if thread.name == f"probe-{row.pk}":
                thread.join()
    row.refresh_from_db()
    found = {each["feature"]: each["values"] for each in row.findings}
    assert found["json_schema"]["why"].startswith("Der Anbieter hat")


def test_the_page_reloads_while_the_probe_runs(
    admin_client: Client, model: LanguageModel
):
    row = model.probes.create()
    html = admin_client.get(page(model.provider)).text
    assert '<meta http-equiv="refresh"' in html
    assert "0 of 9" in html
    ModelProbe.objects.update(seen_at=timezone.now() - STALE)
    html = admin_client.get(page(model.provider) + f"?probe={row.pk}").text
    assert '<meta http-equiv="refresh"' not in html
    assert "Interrupted" in html


def test_a_second_press_shows_the_running_probe(
    admin_client: Client, model: LanguageModel
):
    row = model.probes.create()
    answer = admin_client.post(page(model.provider), {"model": model.pk})
    assert answer.url.endswith(f"probe={row.pk}")
    assert ModelProbe.objects.count() == 1


def test_only_some_probes_run_at_once(admin_client: Client, model: LanguageModel):
    for number in range(MAX_RUNNING):
        other = model.provider.models.create(name=f"other-{number}")
        other.probes.create()
    answer = admin_client.post(page(model.provider), {"model": model.pk}, follow=True)
    assert "Other probes are running" in answer.text
    assert not model.probes.exists()


def test_only_the_last_probes_of_a_model_are_kept(
    admin_client: Client, model: LanguageModel
):
    for _ in range(KEPT + 5):
        model.probes.create(finished_at=timezone.now())
    admin_client.post(page(model.provider), {"model": model.pk})
    assert model.probes.count() == KEPT


def test_who_may_only_view_providers_may_not_probe(
    client: Client, model: LanguageModel
):
    reader = User.objects.create_user("reader", is_staff=True)
    reader.user_permissions.add(Permission.objects.get(codename="view_provider"))
    client.force_login(reader)
    assert client.get(page(model.provider)).status_code == 403
    assert client.post(page(model.provider), {"model": model.pk}).status_code == 403
    change = client.get(reverse("admin:llm_provider_change", args=[model.provider_id]))
    assert page(model.provider) not in change.text
    assert not ModelProbe.objects.exists()


def test_models_of_other_providers_cannot_be_probed_here(
    admin_client: Client, model: LanguageModel
):
    other = Provider.objects.create(name="Other", kind="openai")
    answer = admin_client.post(page(other), {"model": model.pk})
    assert answer.status_code == 200
    assert not ModelProbe.objects.exists()
    assert admin_client.get("/admin/llm/provider/0/probe/").status_code == 404
    odd = f"?model={10**30}&probe=x"
    assert admin_client.get(page(model.provider) + odd).status_code == 200


def test_a_provider_without_a_key_is_not_probed(
    admin_client: Client, model: LanguageModel
):
    bare = Provider.objects.create(name="Bare", kind="openai")
    named = bare.models.create(name="gpt")
    answer = admin_client.post(page(bare), {"model": named.pk}, follow=True)
    assert "There is no key" in answer.text


def test_the_override_of_staff_is_shown_beside_the_finding(
    admin_client: Client, model: LanguageModel
):
    LanguageModel.objects.update(capabilities={"vision": True})
    with ProbedHost("dies at images").listening() as base_url:
        Provider.objects.update(base_url=base_url)
        provider = Provider.objects.get()
        provider.keys.all().delete()
        provider.keys.create(secret=PLANTED)
        run_probe(model.probes.create().pk)
    assert "overridden by staff" in admin_client.get(page(provider)).text


def test_pages_say_that_findings_are_of_another_address(
    admin_client: Client, model: LanguageModel
):
    target = model.probe_target
    ModelProbe.objects.create(model=model, target=target, finished_at=timezone.now())
    LanguageModel.objects.update(
        probed_capabilities={"vision": False},
        probed_at=timezone.now(),
        probed_target=target,
    )
    pages = [
        page(model.provider),
        reverse("admin:llm_languagemodel_change", args=[model.pk]),
        reverse("admin:llm_languagemodel_capabilities", args=[model.pk]),
    ]
    words = "has changed since this probe"
    assert not any(words in admin_client.get(each).text for each in pages)
    Provider.objects.update(base_url="http://127.0.0.1:10/v1")
    assert all(words in admin_client.get(each).text for each in pages)
