from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from conversations.models import Backup, ProcessStatus
from conversations.staff.live_board import LOST_AFTER
from llm.models import ApiKey, LanguageModel, Provider
from llm.probing.findings import fails, works
from project.admin_pages.first_steps import STEPS, Step, first_steps
from project.diagnosis.facts import BACKUP_LASTS
from tests.conversations.scene import signed_in, staff
from tests.tools import isolated_tools
from tools import registry
from tools.models import Tool
from tools.python import sandbox
from tools.registry import python_tools

pytestmark = pytest.mark.django_db
INDEX = reverse("admin:index")
PAGE = reverse("admin:first_steps")
STRONG = "kq7-Zb0xV_mN3tLw9RfYc2HsJ8dPaUeG"


@pytest.fixture
def ada() -> User:
    return User.objects.create_superuser("ada")


def a_model(**fields: Any) -> LanguageModel:
    provider = Provider.objects.create(name="Workshop", kind="openai")
    return LanguageModel.objects.create(provider=provider, name="m-1", **fields)


def an_answering_model() -> LanguageModel:
    model = a_model()
    ApiKey.objects.create(provider=model.provider, secret="planted-0123456789")
    findings = [works("text", "Answered.").to_dict()]
    model.probes.create(finished_at=timezone.now(), findings=findings)
    return model


def step(name: str, user: User, **meta: Any) -> Step:
    request = RequestFactory().get("/admin/", **meta)
    request.user = user
    return next(each for each in first_steps(request) if each.name == name)


def a_process(**fields: Any) -> ProcessStatus:
    now = timezone.now()
    values = {"id": "p1", "runs_turns": True, "started_at": now, "heard_at": now}
    return ProcessStatus.objects.create(**{**values, **fields})


def test_isolated_tools_appear_with_what_isolates_them(ada: User, monkeypatch: Any):
    assert not [each for each in first_steps(_request(ada)) if each.name == "sandbox"]
    python_tools.cache_clear()
    monkeypatch.setattr(registry, "_modules", lambda: [isolated_tools])
    try:
        found = step("sandbox", ada)
    finally:
        python_tools.cache_clear()
    assert found.is_done == sandbox.is_available()
    assert "greet" in found.state


def test_made_up_weather_is_named_while_real_models_are_offered_it(ada: User):
    weather = Tool.objects.get(name="weather_demo")

    def is_named() -> bool:
        return any(each.name == "sample" for each in first_steps(_request(ada)))

    assert not is_named()  # the demo answers with it
    an_answering_model()
    assert is_named()
    assert step("sample", ada).url == reverse(
        "admin:tools_tool_change", args=[weather.pk]
    )
    weather.enabled = False
    weather.save()
    assert not is_named()


def test_tools_without_the_sandbox_that_is_demanded_are_no_longer_within_reach(
    ada: User, monkeypatch: Any, settings: Any
):
    settings.ISOLATED_REQUIRE_SANDBOX = True
    monkeypatch.setattr(sandbox, "is_available", lambda: False)
    monkeypatch.setattr(
        "project.admin_pages.first_steps.list_isolated_tools", lambda: ["greet"]
    )
    assert step("sandbox", ada).state == (
        "greet: each call fails, as there is no sandbox."
    )


def _request(user: User) -> Any:
    request = RequestFactory().get("/admin/")
    request.user = user
    return request


@pytest.mark.parametrize(
    ("secret", "debug", "is_done"),
    [
        (STRONG, False, True),
        (STRONG, True, False),
        ("changeme", False, False),
        ("a" * 50, False, False),
    ],
)
def test_secret_keys_must_be_hard_to_guess(
    ada: User, settings: Any, secret: str, debug: bool, is_done: bool
):
    settings.SECRET_KEY, settings.DEBUG = secret, debug
    assert step("secrets", ada).is_done is is_done


@pytest.mark.parametrize(
    ("behind_https", "listens", "asked", "is_done"),
    [
        (True, "0.0.0.0", "chat.example.org", True),
        (False, "127.0.0.1", "127.0.0.1:8000", True),
        (False, "127.0.0.1", "[::1]:8000", True),
        (False, "127.0.0.1", "chat.example.org", False),
        (False, "0.0.0.0", "127.0.0.1:8000", False),
    ],
)
def test_https_is_needed_where_others_reach_the_server(
    ada: User,
    settings: Any,
    behind_https: bool,
    listens: str,
    asked: str,
    is_done: bool,
):
    settings.ALLOWED_HOSTS = ["*"]
    settings.BEHIND_HTTPS, settings.HOST = behind_https, listens
    assert step("https", ada, HTTP_HOST=asked).is_done is is_done


def test_a_full_disk_opens_the_step_of_the_database(
    ada: User, monkeypatch: pytest.MonkeyPatch
):
    assert step("database", ada).is_done
    path = "conversations.engine.database.disk_space.has_room"
    monkeypatch.setattr(path, lambda: False)
    assert not step("database", ada).is_done


def test_a_backup_ticks_its_step_for_a_month(ada: User):
    assert not step("backup", ada).is_done
    row = Backup.objects.create()
    assert step("backup", ada).is_done
    Backup.objects.filter(pk=row.pk).update(
        finished_at=timezone.now() - BACKUP_LASTS - timedelta(hours=1)
    )
    found = step("backup", ada)
    assert not found.is_done
    assert str(timezone.now().year) in found.state


def test_only_a_process_that_takes_turns_ticks_the_worker(ada: User):
    long_ago = timezone.now() - LOST_AFTER - timedelta(seconds=1)
    a_process(id="web", runs_turns=False)
    a_process(id="lost", heard_at=long_ago)
    a_process(id="drains", drains=True)
    assert not step("worker", ada).is_done
    a_process(id="works")
    assert step("worker", ada).is_done


def test_the_provider_is_added_then_probed(ada: User):
    Provider.objects.create(name="demo", kind="demo")
    assert step("provider", ada).url == reverse("admin:llm_provider_add")
    model = a_model()
    found = step("provider", ada)
    assert found.url == reverse("admin:llm_provider_probe", args=[model.provider.pk])
    assert not found.is_done
    ApiKey.objects.create(provider=model.provider, secret="planted-0123456789")
    assert step("provider", ada).state == "Workshop was not probed yet."
    for finding, is_done in [
        (fails("text", "The provider refused the request."), False),
        (works("text", "Answered."), True),
        (fails("text", "The provider refused the request."), False),
    ]:
        model.probes.create(finished_at=timezone.now(), findings=[finding.to_dict()])
        assert step("provider", ada).is_done is is_done
    assert step("provider", ada).state == "Workshop does not answer."


def test_the_provider_step_opens_again_when_the_address_changes(ada: User):
    model = an_answering_model()
    model.probes.update(target=model.probe_target)
    assert step("provider", ada).is_done
    Provider.objects.filter(pk=model.provider_id).update(base_url="https://new.test/v1")
    found = step("provider", ada)
    assert not found.is_done
    assert found.state == "Workshop has changed since it was probed."


def test_the_provider_step_opens_again_when_its_provider_is_lost(ada: User):
    provider = an_answering_model().provider
    assert step("provider", ada).is_done
    provider.keys.update(state=ApiKey.State.RESTING)
    assert step("provider", ada).is_done
    provider.keys.update(state=ApiKey.State.DISABLED)
    found = step("provider", ada)
    assert not found.is_done
    assert found.state == "Workshop has no key that may be used."
    provider.keys.update(state=ApiKey.State.ACTIVE)
    Provider.objects.filter(pk=provider.pk).update(enabled=False)
    found = step("provider", ada)
    assert not found.is_done
    assert found.state == "Workshop is switched off."


def test_a_provider_answers_if_one_of_its_models_does(ada: User):
    provider = an_answering_model().provider
    other = provider.models.create(name="embeddings", label="Embeddings")
    refused = fails("text", "The provider refused the request.").to_dict()
    other.probes.create(finished_at=timezone.now(), findings=[refused])
    assert step("provider", ada).state == "Workshop answers."
    provider.models.exclude(pk=other.pk).update(enabled=False)
    provider.models.filter(pk=other.pk).update(enabled=True)
    assert step("provider", ada).state == "Workshop does not answer."


def test_a_model_of_a_provider_that_is_off_is_for_nobody(ada: User):
    assert not step("model", ada).is_done
    model = a_model(label="Orchard 7B")
    found = step("model", ada)
    assert found.is_done
    assert found.state == "Orchard 7B can be chosen in the chat."
    Provider.objects.filter(pk=model.provider.pk).update(enabled=False)
    assert not step("model", ada).is_done


def test_a_second_administrator_must_be_able_to_sign_in(ada: User):
    second = User.objects.create_superuser("bea", is_active=False)
    assert not step("administrator", ada).is_done
    User.objects.filter(pk=second.pk).update(is_active=True)
    assert step("administrator", ada).is_done


@pytest.mark.parametrize("name", STEPS)
def test_staff_see_only_the_steps_that_they_may_take(name: str):
    codename = STEPS[name].partition(".")[2]
    browser = signed_in(staff("bo", codename))
    shown = {step.name for step in browser.get(INDEX).context["steps"]}
    assert shown == {each for each, needed in STEPS.items() if needed == STEPS[name]}
    for url in {step.url for step in browser.get(PAGE).context["steps"]}:
        assert browser.get(url).status_code == 200, url


def test_staff_without_a_step_see_no_checklist():
    browser = signed_in(staff("bo", "view_item"))
    assert b"first-steps" not in browser.get(INDEX).content
    assert browser.get(PAGE).status_code == 403


def test_the_checklist_closes_when_all_is_done(ada: User, settings: Any):
    settings.SECRET_KEY = STRONG
    browser = signed_in(ada)
    assert b'first-steps" open' in browser.get(INDEX).content
    User.objects.create_superuser("bea")
    Backup.objects.create()
    a_process()
    settings.BEHIND_HTTPS = settings.SENDS_MAIL = True
    an_answering_model()
    Tool.objects.filter(name="weather_demo").update(enabled=False)
    response = browser.get(INDEX)
    assert response.context["is_complete"], response.context["steps"]
    assert b'first-steps" open' not in response.content
    assert b"All done" in response.content


def test_the_first_page_takes_at_most_twelve_queries(ada: User):
    for n in range(20):
        Provider.objects.create(name=f"host {n}", kind="scripted")
    browser = signed_in(ada)
    browser.get(INDEX)  # notes the browser of this session
    with CaptureQueriesContext(
        connection,
    ) as queries:
        browser.get(INDEX)
    assert len(queries) <= 12, "\n".join(q["sql"][:150] for q in queries)


def test_the_page_names_the_command_or_setting_of_each_step(ada: User):
    text = signed_in(ada).get(PAGE).content.decode()
    for words in ("SECRET_KEY=", "BEHIND_HTTPS=true", "backup /backup", " worker"):
        assert words in text
