from __future__ import annotations

import html
import io
import json
import logging
import re
from datetime import timedelta

import httpx
import pytest
import respx
from django.conf import settings as django_settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format

from llm.admin import ApiKeyAdmin, BoundedPaginator, ProviderAdmin
from llm.admin.provider import MAX_INLINE_MODELS
from llm.models import ApiKey, LanguageModel, ModelCall, Provider

PLANTED = "sk-planted-0123456789-wxyz"
GROQ = "https://api.groq.com/openai/v1/chat/completions"
HOST = "https://models.example/v1"
SPOKEN = (
    b'data: {"id":"c1","model":"llama-3-x","choices":[{"index":0,"delta":'
    b'{"role":"assistant","content":"OK"},"finish_reason":null}]}\n\n'
    b'data: {"id":"c1","model":"llama-3-x","choices":[{"index":0,"delta":{},'
    b'"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1,'
    b'"total_tokens":10}}\n\ndata: [DONE]\n\n'
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def provider() -> Provider:
    provider = Provider.objects.create(name="Groq", kind="groq")
    provider.keys.create(secret=PLANTED)
    provider.models.create(name="llama-3", capabilities={"tools": True, "x": False})
    return provider


def page(name: str, *args: object) -> str:
    return reverse(f"admin:llm_{name}", args=args)


def provider_form(provider: Provider | None = None, **fields: object) -> dict:
    """The form as a browser sends it, a new key and no model in it."""
    return {
        "name": "Groq",
        "kind": "groq",
        "enabled": "on",
        "options": "",
        "keys-TOTAL_FORMS": 1,
        "keys-INITIAL_FORMS": 0,
        "keys-0-label": "default",
        "keys-0-secret": PLANTED,
        "keys-0-state": "active",
        "keys-0-weight": 1,
        "models-TOTAL_FORMS": 0,
        "models-INITIAL_FORMS": 0,
    } | fields


def shown_messages(response) -> list[str]:
    """The messages of the page that the request led to."""
    return [str(message) for message in response.context["messages"]]


# Secrets


def test_a_key_is_never_on_a_page(admin_client: Client, provider: Provider):
    key = provider.keys.get()
    admin_client.post(
        page("apikey_change", key.pk),
        {
            "provider": provider.pk,
            "label": "renamed",
            "secret": PLANTED + "-2",
            "state": "active",
            "weight": 1,
        },
    )
    pages = [
        page("apikey_changelist"),
        page("apikey_add"),
        page("apikey_change", key.pk),
        page("apikey_history", key.pk),
        page("apikey_delete", key.pk),
        page("provider_changelist"),
        page("provider_change", provider.pk),
        page("provider_history", provider.pk),
        page("provider_delete", provider.pk),
        reverse("admin:index"),
    ]
    for url in pages:
        response = admin_client.get(url)
        assert response.status_code == 200, url
        assert PLANTED not in response.text, url
        assert "f1:" not in response.text, url
        assert "f2:" not in response.text, url
    assert ApiKey.objects.get().is_current_key(PLANTED + "-2")
    assert PLANTED not in repr(list(LogEntry.objects.values()))


def test_a_refused_form_does_not_show_the_key_again(admin_client: Client):
    response = admin_client.post(
        page("provider_add"), provider_form(name="a/b", **{"keys-0-weight": "x"})
    )
    assert response.status_code == 200
    assert "cannot contain a slash" in response.text
    assert PLANTED not in response.text


def test_the_secret_is_a_password_field_that_no_browser_fills_in(
    admin_client: Client, provider: Provider
):
    text = admin_client.get(page("apikey_change", provider.keys.get().pk)).text
    [field] = re.findall(r'<input[^>]*name="secret"[^>]*>', text)
    assert 'type="password"' in field
    assert 'autocomplete="new-password"' in field
    assert "value=" not in field
    assert "sk-…wxyz" in text


def test_an_empty_secret_keeps_the_stored_one(admin_client, provider: Provider):
    key = provider.keys.get()
    admin_client.post(
        page("apikey_change", key.pk),
        {
            "provider": provider.pk,
            "label": "renamed",
            "secret": "",
            "state": "disabled",
            "weight": 2,
        },
    )
    key = ApiKey.objects.get()
    assert (key.label, key.state, key.hint) == ("renamed", "disabled", "sk-…wxyz")
    assert key.is_current_key(PLANTED)


def test_a_new_key_needs_its_secret(admin_client: Client, provider: Provider):
    response = admin_client.post(
        page("apikey_add"),
        {"provider": provider.pk, "label": "b", "state": "active", "weight": 1},
    )
    assert "This field is required" in response.text
    assert ApiKey.objects.count() == 1


def refused(provider: Provider) -> ApiKey:
    key = provider.keys.get()
    ApiKey.objects.filter(pk=key.pk).disable("E_LLM_INVALID_KEY: No.", timezone.now())
    return provider.keys.get()


def test_staff_see_a_key_that_was_disabled_and_enable_it(
    admin_client: Client, provider: Provider
):
    key = refused(provider)
    index, keys = reverse("admin:index"), page("apikey_changelist")
    alert = f"The key {key} of Groq was disabled: E_LLM_INVALID_KEY: No."
    assert alert in admin_client.get(index).content.decode()
    shown = admin_client.get(keys)
    assert alert in shown_messages(shown)
    assert "disabled: E_LLM_INVALID_KEY: No." in shown.content.decode()
    wish = {"action": "enable", "_selected_action": [key.pk]}
    done = admin_client.post(keys, wish, follow=True)
    assert shown_messages(done) == ["1 key enabled."]
    key.refresh_from_db()
    assert (key.state, key.state_reason, key.rest_until) == ("active", "", None)
    assert "was disabled" not in admin_client.get(index).content.decode()


def test_only_staff_with_permission_see_keys(client: Client, provider: Provider):
    refused(provider)
    client.force_login(User.objects.create_user("some", is_staff=True))
    assert "was disabled" not in client.get(reverse("admin:index")).content.decode()


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"state": "active"}, "active"),
        ({"secret": "sk-another-key"}, "active"),
        ({"label": "renamed"}, "disabled"),
    ],
)
def test_another_key_in_the_place_of_a_refused_one_is_used(
    admin_client: Client, provider: Provider, change: dict[str, str], state: str
):
    key = refused(provider)
    form = {"provider": provider.pk, "label": key.label, "state": "disabled"}
    form |= {"secret": "", "weight": 1, **change}
    admin_client.post(page("apikey_change", key.pk), form, follow=True)
    key.refresh_from_db()
    assert key.state == state
    assert bool(key.state_reason) == (state == "disabled")


def test_a_rest_until_another_day_shows_the_day(
    admin_client: Client, provider: Provider
):
    end = timezone.now() + timedelta(hours=30)
    ApiKey.objects.rest(end, "E_LLM_RATE_LIMIT: Later.", timezone.now())
    shown = admin_client.get(page("apikey_changelist")).text
    day = date_format(timezone.localtime(end), "SHORT_DATE_FORMAT")
    assert f"resting until {day}" in shown


def test_staff_who_disable_a_key_get_no_alert_about_it(
    admin_client: Client, provider: Provider
):
    key = provider.keys.get()
    soon = timezone.now() + timedelta(minutes=5)
    ApiKey.objects.rest(soon, "E_LLM_RATE_LIMIT: Later.", timezone.now())
    shown = admin_client.get(page("apikey_changelist")).content.decode()
    assert "resting until" in shown
    form = {"provider": provider.pk, "label": key.label, "state": "disabled"}
    admin_client.post(
        page("apikey_change", key.pk), form | {"secret": "", "weight": 1}, follow=True
    )
    key.refresh_from_db()
    assert (key.state, key.is_disabled_automatically) == ("disabled", False)


def fields_of(response) -> dict:
    """What the page's form sends if nothing is entered."""
    form = response.context["adminform"].form
    sets = [each.formset for each in response.context["inline_admin_formsets"]]
    forms = [form, *(each for s in sets for each in (s.management_form, *s.forms))]
    sent = {}
    for each in forms:
        for bound in each:
            sent[bound.html_name] = bound.value()
            if bound.field.show_hidden_initial:
                shown = bound.value()
                sent[bound.html_initial_name] = "False" if shown is False else shown
    return {
        name: value
        for name, value in sent.items()
        if not (value is None or value is False or name.endswith("secret"))
    }


@pytest.mark.parametrize("of_provider", [True, False])
def test_an_older_page_enables_no_key_that_was_disabled_meanwhile(
    admin_client: Client, provider: Provider, of_provider: bool
):
    key = provider.keys.get()
    owner = provider if of_provider else key
    url = page(f"{owner._meta.model_name}_change", owner.pk)
    older = fields_of(admin_client.get(url))
    refused(provider)
    changed = {"name": "Renamed"} if of_provider else {"label": "renamed"}
    done = admin_client.post(url, older | changed)
    assert done.status_code == 302, done.context["errors"]
    owner.refresh_from_db()
    assert (owner.name if of_provider else owner.label).lower() == "renamed"
    key.refresh_from_db()
    assert (key.state, key.is_disabled_automatically) == ("disabled", True)


@pytest.mark.parametrize("name", ["provider", "languagemodel"])
def test_an_older_page_enables_nothing_that_was_switched_off_meanwhile(
    admin_client: Client, provider: Provider, name: str
):
    row = provider if name == "provider" else provider.models.get()
    url = page(f"{name}_change", row.pk)
    older = fields_of(admin_client.get(url))
    type(row).objects.update(enabled=False)
    done = admin_client.post(url, older | {"name": "renamed"})
    assert done.status_code == 302, done.context["errors"]
    row.refresh_from_db()
    assert (row.name, row.enabled) == ("renamed", False)
    assert not provider.models.get().enabled or name == "provider"


def test_a_page_with_an_error_keeps_the_dates_that_were_entered(
    admin_client: Client, provider: Provider
):
    key = provider.keys.get()
    key.rest_until = timezone.now() + timedelta(hours=1)
    key.save()
    url = page("apikey_change", key.pk)
    hidden = re.compile(r'type="hidden" name="(initial-[^"]+)"(?: value="([^"]*)")?')
    entered = {"provider": provider.pk, "label": "b", "state": "active", "secret": ""}
    entered |= {"drains_at_0": "2031-02-03", "drains_at_1": "04:05:06"}
    entered |= {"rest_until_0": "", "rest_until_1": ""}
    shown = admin_client.get(url).text
    for weight, status in (("none", 200), ("2", 302)):
        form = entered | {"weight": weight} | dict(hidden.findall(shown))
        assert "initial-drains_at_0" in form
        done = admin_client.post(url, form)
        assert done.status_code == status
        shown = done.text
    key.refresh_from_db()
    assert key.drains_at is not None
    assert (key.drains_at.year, key.rest_until, key.weight) == (2031, None, 2)


def test_an_older_page_takes_no_default_model_and_no_weight_back(
    admin_client: Client, provider: Provider
):
    first = provider.models.get()
    first.is_default = True
    first.save()
    second = provider.models.create(name="llama-4")
    url = page("provider_change", provider.pk)
    older = fields_of(admin_client.get(url))
    second.is_default = True
    second.save()
    provider.keys.update(weight=7)
    done = admin_client.post(url, older | {"name": "Renamed"})
    assert done.status_code == 302, done.context["errors"]
    assert LanguageModel.objects.get(is_default=True) == second
    assert provider.keys.get().weight == 7
    newer = fields_of(admin_client.get(url))
    number = 0 if newer["models-0-id"] == first.pk else 1
    newer[f"models-{number}-is_default"] = "on"
    assert admin_client.post(url, newer).status_code == 302
    assert LanguageModel.objects.get(is_default=True) == first


def test_a_key_with_a_space_is_refused_and_one_around_it_is_not(
    admin_client: Client, provider: Provider
):
    form = {"provider": provider.pk, "label": "b", "state": "active", "weight": 1}
    response = admin_client.post(page("apikey_add"), form | {"secret": "two words"})
    assert "A key cannot contain spaces" in html.unescape(response.text)
    admin_client.post(page("apikey_add"), form | {"secret": " pasted\n"})
    assert ApiKey.objects.get(label="b").is_current_key("pasted")


@pytest.mark.parametrize("debug", [True, False])
@pytest.mark.parametrize("breaks", ["save_model", "get_form", "log_addition"])
def test_no_error_page_shows_a_key_that_was_being_saved(
    admin_user, provider, settings, monkeypatch, caplog, breaks: str, debug: bool
):
    def broken(self, request, *args, **kwargs):
        everything = {"form": request.POST, "args": args, "body": request.POST.dict()}
        typed = request.POST["secret"]
        raise RuntimeError(f"out of order ({len(everything) + len(typed)})")

    settings.DEBUG = debug
    settings.DEBUG_PROPAGATE_EXCEPTIONS = False
    monkeypatch.setattr(ApiKeyAdmin, breaks, broken)
    client = Client(raise_request_exception=False)
    client.force_login(admin_user)
    form = {"provider": provider.pk, "label": "b", "state": "active", "weight": 1}
    with caplog.at_level(logging.DEBUG):
        response = client.post(page("apikey_add"), form | {"secret": PLANTED})
    assert response.status_code == 500
    assert ("out of order" in response.text) is debug
    assert PLANTED not in response.text
    assert PLANTED not in caplog.text


@pytest.mark.slow
@pytest.mark.smoke
def test_no_error_page_shows_a_key_typed_beside_its_provider(
    admin_user, settings, monkeypatch
):
    def broken(self, request, form, formsets, *args):
        cleaned = [formset.cleaned_data for formset in formsets]
        instances = [formset.save(commit=False) for formset in formsets]
        raise RuntimeError(f"out of order ({len(cleaned) + len(instances)})")

    settings.DEBUG = True
    monkeypatch.setattr(ProviderAdmin, "save_related", broken)
    client = Client(raise_request_exception=False)
    client.force_login(admin_user)
    response = client.post(page("provider_add"), provider_form())
    assert response.status_code == 500
    assert "formsets" in response.text
    assert PLANTED not in response.text
    assert django_settings.ENCRYPTION_KEYS[0] not in response.text


def test_a_key_is_in_no_dump_and_no_text_of_its_row(provider: Provider):
    out = io.StringIO()
    call_command("dumpdata", stdout=out)
    key = ApiKey.objects.get()
    assert json.loads(out.getvalue())
    for text in (out.getvalue(), str(key), repr(key), repr(vars(key))):
        assert PLANTED not in text


# Providers


def test_a_provider_its_key_and_its_model_are_made_on_one_page(admin_client: Client):
    response = admin_client.post(
        page("provider_add"),
        provider_form(
            options='{"headers": {"X-Team": "a"}}',
            **{
                "models-TOTAL_FORMS": 2,
                "models-0-name": "llama-3",
                "models-0-enabled": "on",
                "models-0-is_default": "on",
                "models-1-name": "llama-4",
                "models-1-is_default": "on",
            },
        ),
    )
    assert response.status_code == 302
    provider = Provider.objects.get()
    assert provider.options == {"headers": {"X-Team": "a"}}
    assert provider.keys.get().is_current_key(PLANTED)
    assert [model.is_default for model in provider.models.all()] == [False, True]


def test_the_list_shows_the_state_of_each_provider(admin_client, provider: Provider):
    ApiKey.objects.update(last_error="E_LLM_QUOTA: no credit", state="resting")
    text = admin_client.get(page("provider_changelist")).text
    for shown in (
        "Groq",
        "https://api.groq.com/openai/v1",
        f"?provider__id__exact={provider.pk}",
        "default sk-…wxyz (resting)",
        "E_LLM_QUOTA: no credit",
    ):
        assert shown in text


def test_the_list_explains_why_a_provider_is_not_used(admin_client, provider, settings):
    settings.DISABLED_PROVIDERS = frozenset({"groq"})
    text = admin_client.get(page("provider_changelist")).text
    assert "ENABLE_GROQ=false switches its provider off" in text


def test_a_provider_of_very_many_models_can_still_be_saved(admin_client, provider):
    LanguageModel.objects.bulk_create(
        LanguageModel(provider=provider, name=f"m{number}")
        for number in range(MAX_INLINE_MODELS)
    )
    text = admin_client.get(page("provider_change", provider.pk)).text
    assert "keys-TOTAL_FORMS" in text
    assert "models-TOTAL_FORMS" not in text


@pytest.mark.parametrize("model", ["provider", "languagemodel"])
def test_rows_are_switched_off_and_on_by_the_dozen(admin_client, provider, model: str):
    row = provider if model == "provider" else provider.models.get()
    for action, enabled in (("disable", False), ("enable", True)):
        response = admin_client.post(
            page(f"{model}_changelist"),
            {"action": action, "_selected_action": [row.pk]},
            follow=True,
        )
        row.refresh_from_db()
        assert row.enabled is enabled
        assert shown_messages(response) == [f"1 switched {'on' if enabled else 'off'}."]


# Trying a provider


@pytest.fixture
def groq():
    with respx.mock(using="parley", assert_all_called=False) as router:
        yield router.post(GROQ)


@pytest.fixture
def listed():
    """The list of models of a host of one's own."""
    with respx.mock(using="parley", assert_all_called=False) as router:
        yield router.get(f"{HOST}/models")


def try_connection(client: Client, provider: Provider) -> list[str]:
    response = client.post(
        page("provider_changelist"),
        {"action": "test_connection", "_selected_action": [provider.pk]},
        follow=True,
    )
    return shown_messages(response)


def test_only_some_connections_are_tested_at_once(admin_client, groq):
    many = [Provider.objects.create(name=f"P{n}", kind="groq") for n in range(11)]
    response = admin_client.post(
        page("provider_changelist"),
        {
            "action": "test_connection",
            "_selected_action": [each.pk for each in many],
        },
        follow=True,
    )
    assert shown_messages(response) == [
        "Select at most 10 providers: each waits for its host."
    ]
    assert not groq.called


def test_a_successful_connection_test_is_shown_and_recorded(
    admin_client, provider, groq
):
    groq.respond(200, content=SPOKEN, headers={"content-type": "text/event-stream"})
    [text] = try_connection(admin_client, provider)
    assert text.startswith("Groq, key default sk-…wxyz: ok: llama-3 answered in 0.")
    body = json.loads(groq.calls.last.request.content)
    assert body["model"] == "llama-3"
    assert groq.calls.last.request.headers["authorization"] == f"Bearer {PLANTED}"
    row = ModelCall.objects.get()
    assert (row.status, row.model_name, row.input_tokens) == (
        "completed",
        "llama-3-x",
        9,
    )
    assert row.purpose == "test"
    assert ApiKey.objects.get().last_used_at == row.created_at


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (401, {"message": f"Incorrect API key {PLANTED}", "code": "x"}, "bad key: "),
        (429, {"message": "No credit", "code": "insufficient_quota"}, "no quota: "),
        (429, {"message": "Slow down"}, "rate limit reached: "),
        (404, {"message": "?", "code": "model_not_found"}, "no such model: "),
        (503, {"message": "Overloaded"}, "fails: https://api.groq.com"),
        (400, {"message": "Unknown parameter"}, "E_LLM_BAD_REQUEST: "),
    ],
)
def test_each_failure_of_the_connection_test_is_explained(
    admin_client, provider, groq, status: int, error: dict, expected: str
):
    groq.respond(status, json={"error": error})
    [text] = try_connection(admin_client, provider)
    assert text.startswith(f"Groq, key default sk-…wxyz: {expected}")
    assert PLANTED not in text
    row = ModelCall.objects.get()
    assert (row.status, row.http_status) == ("failed", status)
    assert PLANTED not in row.error_detail
    assert ApiKey.objects.get().last_error.startswith(row.error_code)


def test_a_host_that_is_not_there_is_unreachable(admin_client, provider, groq):
    groq.mock(side_effect=httpx.ConnectError("refused"))
    [text] = try_connection(admin_client, provider)
    assert "unreachable: https://api.groq.com/openai/v1 does not answer." in text


def test_each_key_is_tried_by_itself(admin_client, provider, groq):
    provider.keys.create(label="empty", secret="")
    provider.keys.create(label="off", secret="gsk-b", state="disabled")
    groq.side_effect = lambda request: (
        httpx.Response(200, content=SPOKEN)
        if "gsk-b" in request.headers["authorization"]
        else httpx.Response(401, json={"error": {"message": "no"}})
    )
    texts = sorted(try_connection(admin_client, provider))
    assert texts[0].startswith("Groq, key default sk-…wxyz: bad key")
    assert texts[1].startswith("Groq, key empty: The key 'empty'")
    assert texts[2].startswith("Groq, key off set: ok: llama-3")


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        (httpx.Response(401), "disabled", "It is disabled until you enable it."),
        (httpx.Response(402), "resting", "It rests "),
        (httpx.Response(429, headers={"retry-after": "60"}), "resting", "It rests "),
        (httpx.Response(503), "active", "answers with HTTP 503."),
    ],
)
def test_a_refusal_in_a_test_counts_for_the_key_as_in_traffic(
    admin_client, provider, groq, answer: httpx.Response, state: str, words: str
):
    groq.mock(return_value=answer)
    [text] = try_connection(admin_client, provider)
    assert words in text
    assert ".." not in text
    key = ApiKey.objects.get()
    assert key.state == state
    assert key.state_reason.startswith("E_LLM_") is (state != "active")


def test_selected_keys_are_tried_and_no_others(admin_client, provider, groq):
    other = provider.keys.create(label="other", secret="gsk-b")
    empty = provider.keys.create(label="empty", secret="")
    groq.respond(200, content=SPOKEN, headers={"content-type": "text/event-stream"})
    posted = {"action": "test", "_selected_action": [other.pk, empty.pk]}
    texts = shown_messages(
        admin_client.post(page("apikey_changelist"), posted, follow=True)
    )
    assert sorted(text.partition(":")[0] for text in texts) == [
        "Groq, empty",
        "Groq, other set",
    ]
    assert [call.request.headers["authorization"] for call in groq.calls] == [
        "Bearer gsk-b"
    ]
    assert ModelCall.objects.get().key_id == other.pk
    many = [provider.keys.create(label=f"k{n}", secret=f"s-{n}").pk for n in range(11)]
    posted = {"action": "test", "_selected_action": many}
    (text,) = shown_messages(
        admin_client.post(page("apikey_changelist"), posted, follow=True)
    )
    assert "at most 10 keys" in text
    assert len(groq.calls) == 1


def test_a_provider_that_cannot_be_called_is_explained_without_a_request(
    admin_client, provider, groq, settings
):
    ApiKey.objects.all().delete()
    [text] = try_connection(admin_client, provider)
    assert text == "Groq: There is no key; add one first."
    local = Provider.objects.create(name="Local", kind="ollama")
    [text] = try_connection(admin_client, local)
    assert text == "Local: There is no model to test; add one first."
    settings.DISABLED_PROVIDERS = frozenset({"groq"})
    [text] = try_connection(admin_client, provider)
    assert text == "Groq: Not tested: ENABLE_GROQ=false switches its provider off."
    Provider.objects.update(kind="gone")
    provider.models.create(name="m")
    provider.keys.create(secret="x")
    [text] = try_connection(admin_client, provider)
    assert "kind 'gone' is unknown" in text
    assert not groq.called


def test_a_form_is_saved_before_it_is_tried(admin_client: Client, groq):
    groq.respond(200, content=SPOKEN)
    form = provider_form(
        _test="1", **{"models-TOTAL_FORMS": 1, "models-0-name": "llama-3"}
    )
    form["models-0-enabled"] = "on"
    response = admin_client.post(page("provider_add"), form, follow=True)
    change = page("provider_change", Provider.objects.get().pk)
    assert response.redirect_chain == [(change, 302)]
    [text] = shown_messages(response)
    assert "ok: llama-3 answered" in text
    assert 'name="_test"' in response.text


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("button", ["_test", "_sync"])
def test_a_host_is_waited_for_after_the_transaction_of_saving(
    admin_client: Client, groq, listed, button: str
):
    in_transaction, ours = [], connections["default"]  # a loop would get another one

    def answer(request: httpx.Request) -> httpx.Response:
        in_transaction.append(ours.in_atomic_block)
        return httpx.Response(503)

    groq.mock(side_effect=answer)
    listed.mock(side_effect=answer)
    form = openai_form() if button == "_sync" else provider_form()
    admin_client.post(page("provider_add"), form | {button: "1"})
    assert in_transaction
    assert not any(in_transaction)
    assert Provider.objects.get().keys.exists()


def openai_form(**fields: object) -> dict:
    ours = {"name": "Ours", "kind": "openai_compatible", "base_url": HOST}
    return provider_form(**ours, **fields)


def test_a_test_of_a_new_provider_ends_with_a_model_in_the_chat(
    admin_client: Client, groq
):
    groq.respond(200, content=SPOKEN)
    response = admin_client.post(
        page("provider_add"), provider_form(_test="1"), follow=True
    )
    [worked, added, default] = shown_messages(response)
    assert "ok: " in worked
    model = LanguageModel.objects.get(provider__kind="groq")
    assert f"The model {model.name} was added and switched on" in added
    assert "is the default model of new chats now" in default
    assert (model.enabled, model.is_default) == (True, True)
    assert model.name in admin_client.get("/").text


def test_a_test_of_a_host_without_a_usual_model_shows_its_list_and_adds_from_it(
    admin_client: Client, listed
):
    listed.respond(200, json={"data": [{"id": "our-model"}, {"id": "another"}]})
    response = admin_client.post(page("provider_add"), openai_form(_test="1"))
    assert listed.called
    assert "Choose the models that people may use" in shown_messages(response)[0]
    assert 'name="new" value="our-model"' in response.text
    provider = Provider.objects.get(name="Ours")
    admin_client.post(
        page("provider_changelist"),
        {
            "action": "sync_models",
            "_selected_action": [provider.pk],
            "new": "our-model",
            "seen": response.context["seen"],
            "_apply_on": "1",
        },
    )
    model = provider.models.get()
    assert (model.name, model.enabled, model.is_default) == ("our-model", True, True)
    assert "our-model" in admin_client.get("/").text


def test_a_list_of_which_nothing_is_ticked_is_shown_again(admin_client, listed):
    listed.respond(200, json={"data": [{"id": "our-model"}, {"id": "another"}]})
    provider = Provider.objects.create(
        name="Ours", kind="openai_compatible", base_url=HOST
    )
    chosen = {"action": "sync_models", "_selected_action": [provider.pk]}
    for button in ("_apply", "_apply_on", "_chat"):
        url = page("provider_changelist")
        shown = admin_client.post(url, {**chosen, button: "1"}, follow=True).text
        assert "Nothing was changed: tick the models" in shown
        assert 'value="our-model"' in shown
        assert not provider.models.exists()


def test_a_default_model_of_staff_is_not_replaced(admin_client: Client, groq):
    ours = LanguageModel.objects.create(
        provider=Provider.objects.create(name="First", kind="openai"),
        name="ours",
        is_default=True,
    )
    groq.respond(200, content=SPOKEN)
    admin_client.post(page("provider_add"), provider_form(_test="1"))
    assert LanguageModel.objects.get(is_default=True) == ours


def test_a_test_without_a_model_list_names_what_remains_to_do(
    admin_client: Client, listed
):
    listed.respond(404)
    response = admin_client.post(
        page("provider_add"), openai_form(_test="1"), follow=True
    )
    [text] = shown_messages(response)
    assert "There is no list of models at" in text


def test_a_test_with_all_models_disabled_explains_how_to_enable_one(
    admin_client: Client, provider, groq
):
    groq.respond(200, content=SPOKEN)
    provider.models.update(enabled=False)
    [worked, left] = try_connection(admin_client, provider)
    assert "ok: " in worked
    assert "No model of Groq is switched on" in left
    assert not provider.models.filter(enabled=True).exists()


def test_models_are_added_by_staff_who_may_add_models(provider: Provider, groq):
    groq.respond(200, content=SPOKEN)
    provider.models.all().delete()
    user = User.objects.create(username="keys", is_staff=True)
    rights = ["view_provider", "change_provider"]
    user.user_permissions.set(Permission.objects.filter(codename__in=rights))
    client = Client()
    client.force_login(user)
    [worked, left] = try_connection(client, provider)
    assert "ok: " in worked
    assert "No model of Groq is switched on" in left
    assert not provider.models.exists()


def test_trying_takes_the_permission_to_change(provider: Provider, groq):
    user = User.objects.create(username="viewer", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_provider"))
    client = Client()
    client.force_login(user)
    change = page("provider_change", provider.pk)
    assert 'name="_test"' not in client.get(change).text
    assert client.post(change, provider_form(_test="1")).status_code == 403
    try_connection(client, provider)
    assert client.get(change, {"_test": "1"}).status_code == 200
    assert not groq.called


# Models


def test_a_model_is_made_the_default(admin_client: Client, provider: Provider):
    first = provider.models.get()
    second = provider.models.create(name="second", is_default=True)

    def choose(*rows: LanguageModel) -> list[str]:
        return shown_messages(
            admin_client.post(
                page("languagemodel_changelist"),
                {
                    "action": "make_default",
                    "_selected_action": [row.pk for row in rows],
                },
                follow=True,
            )
        )

    assert choose(first) == ["llama-3 is the default model of new chats now."]
    assert LanguageModel.objects.get(is_default=True) == first
    history = admin_client.get(page("languagemodel_history", first.pk)).text
    assert "Changed is_default." in history
    assert choose(first, second) == [
        "Select exactly one model; only one can be the default."
    ]
    LanguageModel.objects.filter(pk=second.pk).update(enabled=False)
    assert choose(second) == [
        "second cannot be the default: the model is switched off."
    ]
    assert LanguageModel.objects.get(is_default=True) == first


def model_form(provider: Provider, **fields: object) -> dict:
    return {
        "provider": provider.pk,
        "name": "m",
        "enabled": "on",
        "dated_prices-TOTAL_FORMS": 0,
        "dated_prices-INITIAL_FORMS": 0,
    } | fields


def test_another_default_in_a_form_takes_over(admin_client, provider: Provider):
    first = provider.models.get()
    first.make_default()
    admin_client.post(page("languagemodel_add"), model_form(provider, is_default="on"))
    assert LanguageModel.objects.get(is_default=True).name == "m"


@pytest.mark.parametrize(
    ("fields", "shown_messages"),
    [
        ({"prices": '{"input": 1}'}, "'output' is missing."),
        ({"prices": "{"}, "Enter a valid JSON."),
        ({"capabilities": "[1]"}, "Write a JSON object"),
        ({"options": '{"temprature": 1}'}, "Unknown: temprature."),
        ({"alias": "a/b"}, "An alias cannot contain spaces or slashes."),
    ],
)
def test_wrong_fields_of_a_model_are_explained(
    admin_client, provider, fields, shown_messages
):
    response = admin_client.post(
        page("languagemodel_add"), model_form(provider, **fields)
    )
    assert response.status_code == 200
    assert shown_messages in html.unescape(response.text)


def test_json_is_shown_indented_and_stored(admin_client, provider: Provider):
    model = provider.models.get()
    text = html.unescape(admin_client.get(page("languagemodel_change", model.pk)).text)
    assert '{\n  "tools": true,\n  "x": false\n}' in text


def test_fallbacks_are_distinguished_by_their_providers(admin_client, provider):
    for name in ("A", "B"):
        other = Provider.objects.create(name=name, kind="groq")
        other.models.create(name="same")
    text = admin_client.get(page("languagemodel_add")).text
    assert ">A/same<" in text
    assert ">B/same<" in text


def test_models_are_found_by_name_and_provider(admin_client, provider: Provider):
    for sought, count in (("llama", 1), ("Groq", 1), ("nothing", 0)):
        response = admin_client.get(page("languagemodel_changelist"), {"q": sought})
        assert response.context["cl"].result_count == count


# Calls


def record(number: int = 1, **fields: object) -> None:
    ModelCall.objects.bulk_create(
        ModelCall(
            **{
                "provider_name": "Groq",
                "model_name": "llama",
                "status": "completed",
                "turn_id": f"resp_{n}",
                "request_id": f"req_{n}",
                "model": LanguageModel.objects.first(),
                "key": ApiKey.objects.first(),
                "cost": "0.000123",
                "ttft": 0.25,
                **fields,
            }
        )
        for n in range(number)
    )


def test_calls_are_read_only(admin_client: Client, provider: Provider):
    record(status="failed", error_code="E_LLM_TIMEOUT", error_detail="Silence.")
    call = ModelCall.objects.get()
    text = admin_client.get(page("modelcall_change", call.pk)).text
    assert "Silence." in text
    assert "$0.000123" in text
    assert "0.25 s" in text
    assert "<textarea" not in text
    assert admin_client.get(page("modelcall_add")).status_code == 403
    change = page("modelcall_change", call.pk)
    assert admin_client.post(change, {"status": "completed"}).status_code == 403
    assert admin_client.post(page("modelcall_delete", call.pk)).status_code == 403


@pytest.mark.parametrize("sought", ["resp_1", "req_1"])
def test_a_call_is_found_by_its_turn_and_by_its_request(
    admin_client, provider, sought: str
):
    record(12)
    response = admin_client.get(page("modelcall_changelist"), {"q": sought})
    assert response.context["cl"].result_count == 1


@pytest.mark.parametrize(
    "query",
    [
        {"status__exact": "completed"},
        {"model__provider__id__exact": "1"},
        {"created_at__gte": "2020-01-01 00:00:00+00:00"},
    ],
)
def test_calls_are_filtered(admin_client, provider: Provider, query):
    record(2)
    if "model__provider__id__exact" in query:
        query["model__provider__id__exact"] = provider.pk
    response = admin_client.get(page("modelcall_changelist"), query)
    assert response.context["cl"].result_count == 2


def test_no_list_counts_millions_of_calls(
    admin_client, provider, django_assert_max_num_queries, monkeypatch
):
    monkeypatch.setattr("llm.admin.bases.MAX_COUNTED", 5)
    record(8)
    paginator = BoundedPaginator(ModelCall.objects.order_by("-id"), 100)
    assert paginator.count == 5
    with django_assert_max_num_queries(20) as queries:
        admin_client.get(page("modelcall_changelist"))
    counts = [q["sql"] for q in queries if "COUNT(" in q["sql"]]
    assert counts
    assert all("LIMIT 5" in sql for sql in counts)


# Price


@pytest.mark.parametrize("name", ["provider", "apikey", "languagemodel", "modelcall"])
def test_a_list_takes_as_many_queries_for_two_rows_as_for_twenty(
    admin_client, name: str
):
    def grow(count: int) -> None:
        for number in range(count):
            provider = Provider.objects.create(name=f"{count}-{number}", kind="groq")
            provider.keys.create(secret=PLANTED, last_error="x")
            provider.models.create(name="m", alias=f"{count}-{number}")
        record(count)

    admin_client.get(page(f"{name}_changelist"))  # which notes the session
    counted = []
    for count in (2, 20):
        grow(count)
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get(page(f"{name}_changelist")).status_code == 200
        counted.append(len(captured))
    assert counted[0] == counted[1]


def test_the_site_is_ours(admin_client: Client):
    assert "Parley" in admin_client.get(reverse("admin:index")).text
