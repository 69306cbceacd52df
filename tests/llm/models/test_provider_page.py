"""The provider's page: its status, its connection, who uses it before it is deleted."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from conversations.models import Conversation
from llm.admin.provider_status import statuses_of
from llm.http.connection_problems import MAX_SENTENCE
from llm.models import ApiKey, ModelCall, Provider

pytestmark = pytest.mark.django_db

PLANTED = "sk-planted-0123456789-wxyz"
VALUE = "wk-secret-header-0123456789"


@pytest.fixture
def provider() -> Provider:
    provider = Provider.objects.create(name="Groq", kind="groq")
    provider.keys.create(secret=PLANTED)
    provider.models.create(name="llama-3")
    return provider


def called(provider: Provider, **fields: object) -> ModelCall:
    values = {"status": "completed", "model_name": "llama-3"} | fields
    return ModelCall.objects.create(
        model=provider.models.get(), provider_name=provider.name, **values
    )


def a_member(*permissions: str) -> User:
    user = User.objects.create(username="-".join(permissions), is_staff=True)
    found = Permission.objects.filter(codename__in=permissions)
    user.user_permissions.set(found)
    return user


def light(provider: Provider) -> tuple[str, str]:
    row = Provider.objects.get(pk=provider.pk)
    status = statuses_of([row])[row.pk]
    return status.light, status.text


def url(name: str, *args: object) -> str:
    return reverse(f"admin:llm_provider_{name}", args=args)


def form_of(provider: Provider, **fields: object) -> dict:
    return {
        "name": provider.name,
        "kind": provider.kind,
        "enabled": "on",
        "base_url": provider.base_url,
        "options": "",
        "keys-TOTAL_FORMS": 0,
        "keys-INITIAL_FORMS": 0,
        "models-TOTAL_FORMS": 0,
        "models-INITIAL_FORMS": 0,
    } | fields


def test_the_light_tells_the_last_call_in_words(provider: Provider):
    assert light(provider) == ("unknown", "")
    called(provider)
    assert light(provider)[0] == "works"
    called(
        provider,
        status="failed",
        error_code="E_LLM_RATE_LIMIT",
        http_status=429,
        error_detail="the prompt was: my diary",
    )
    shown, text = light(provider)
    assert shown == "fails"
    assert "rate limit is reached" in text
    assert "(HTTP 429)" in text
    assert "diary" not in text
    called(provider)
    assert light(provider)[0] == "works"


@pytest.mark.parametrize(
    "detail",
    [
        "Microsoft Entra ID: 503 server_error my diary",
        "The proxy cannot be reached. My diary",
        "The provider cannot be reached. (my diary)",
        "No secure connection: the server's certificate my diary.",
        "Silent for my diary s.",
    ],
)
def test_the_light_repeats_no_foreign_words(provider: Provider, detail: str):
    called(
        provider,
        status="failed",
        error_code="E_LLM_PROVIDER_DOWN",
        error_detail=detail,
    )
    shown, text = light(provider)
    assert shown == "fails"
    assert text.endswith(": The provider is down or overloaded.")


def test_long_messages_of_hosts_are_not_read_for_the_light(provider: Provider):
    for _ in range(3):
        called(provider, status="failed", error_detail="x" * 4_000)
    with CaptureQueriesContext(connection) as queries:
        light(provider)
    [calls] = [
        query["sql"]
        for query in queries
        if 'FROM "llm_modelcall"' in query["sql"] and "error_detail" in query["sql"]
    ]
    with connection.cursor() as cursor:
        cursor.execute(calls)
        texts = [value for row in cursor for value in row if isinstance(value, str)]
    assert len(texts) >= 3
    assert max(map(len, texts)) == MAX_SENTENCE


def test_the_light_tells_a_test_before_there_are_models(provider: Provider):
    provider.models.all().delete()
    other = Provider.objects.create(name="Other", kind="groq")
    other.keys.create(secret=PLANTED + "2")
    for status, shown in (("failed", "fails"), ("completed", "works")):
        ModelCall.objects.create(
            key=provider.keys.get(),
            provider_name=provider.name,
            model_name="default",
            status=status,
            error_code="E_LLM_PROVIDER_DOWN" if status == "failed" else "",
        )
        assert light(provider)[0] == shown
    assert light(other)[0] == "incomplete"


def gaps(provider: Provider) -> list[tuple[str, str]]:
    row = Provider.objects.get(pk=provider.pk)
    return [(gap.text, gap.url) for gap in statuses_of([row])[row.pk].gaps]


def test_the_light_says_what_a_new_provider_lacks_and_leads_there(
    admin_client: Client,
):
    needs, may = (
        Provider.objects.create(name=kind, kind=kind, base_url="https://a.test/v1")
        for kind in ("groq", "openai_compatible")
    )
    keys, models = f"{url('change', needs.pk)}#keys-group", "#models-group"
    assert light(needs)[0] == "fails"
    assert [text for text, _url in gaps(needs)] == [
        "There is no key.",
        "There is no model.",
    ]
    assert light(may) == ("incomplete", "")
    assert gaps(may)[0][0] == "There is no key; some hosts of this kind need one."
    page = admin_client.get(url("changelist")).text
    assert "not called lately" not in page
    assert f'<a href="{keys}">There is no key.</a>' in page
    shown = admin_client.get(url("change", needs.pk)).text
    for address in (keys, models):
        assert f'id="{address.partition("#")[2]}"' in shown
    needs.keys.create(secret=PLANTED)
    model = needs.models.create(name="m", enabled=False)
    [(text, where)] = gaps(needs)
    assert text == "No model is switched on."
    # Not the list of models, which not everybody may see who sees this link.
    assert where == f"{url('change', needs.pk)}{models}"
    assert light(needs) == ("incomplete", "")
    model.enabled = True
    model.save()
    assert (light(needs), gaps(needs)) == (("unknown", ""), [])


def test_who_lets_people_use_their_own_keys_lacks_none(provider: Provider):
    provider.keys.all().delete()
    assert light(provider)[0] == "fails"
    Provider.objects.update(accepts_own_keys=True)
    assert (light(provider), gaps(provider)) == (("unknown", ""), [])


def test_a_host_that_has_answered_without_a_key_lacks_none(provider: Provider):
    provider.keys.all().delete()
    Provider.objects.update(kind="vllm", base_url="http://10.1.1.1/v1")
    assert light(provider) == ("unknown", "")
    assert "no key" in gaps(provider)[0][0]
    called(provider)
    assert light(provider)[0] == "works"
    assert gaps(provider) == []


def test_a_failed_probe_and_a_cancelled_call_leave_the_light(provider: Provider):
    called(provider)
    called(provider, status="failed", purpose="probe", error_code="E_LLM_BAD_REQUEST")
    called(provider, status="cancelled")
    assert light(provider)[0] == "works"


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_request_that_its_client_wrote_wrongly_leaves_the_light(
    provider: Provider, status: int
):
    called(provider)
    refused = {"error_code": "E_LLM_BAD_REQUEST", "http_status": status}
    called(provider, status="failed", **refused)
    assert light(provider)[0] == "works"
    ModelCall.objects.filter(status="completed").delete()
    assert light(provider)[0] == "fails"  # the host has refused all that it was sent


def test_stored_answers_leave_the_light_of_an_outage(provider: Provider):
    called(provider, status="failed", error_code="E_LLM_PROVIDER_DOWN", http_status=503)
    called(provider, is_cached=True)
    assert light(provider)[0] == "fails"


@pytest.mark.parametrize("source", ["own", "call"])
def test_a_bad_key_of_one_person_leaves_the_light(provider: Provider, source: str):
    called(provider)
    bad = {"status": "failed", "error_code": "E_LLM_INVALID_KEY", "http_status": 401}
    called(provider, **bad, key_source=source)
    assert light(provider)[0] == "works"
    called(provider, **bad, key_source="shared")
    assert light(provider)[0] == "fails"


def test_a_wrong_name_of_one_model_leaves_the_light(provider: Provider):
    called(provider)
    unknown = {"error_code": "E_MODEL_NOT_AVAILABLE", "http_status": 404}
    called(provider, status="failed", **unknown)
    assert light(provider)[0] == "works"


def test_the_light_tells_that_a_provider_is_down(provider: Provider):
    called(provider, status="failed", error_code="E_LLM_PROVIDER_DOWN", http_status=500)
    assert "is down or overloaded" in light(provider)[1]


@pytest.mark.parametrize("hour", [9, 12, 21])
def test_a_sentence_that_ends_with_a_time_ends_with_one_full_stop(
    provider: Provider, hour: int
):
    call = called(provider)
    at = timezone.now().replace(hour=hour, minute=10)
    ModelCall.objects.filter(pk=call.pk).update(created_at=at)
    found, text = light(provider)
    assert found == "works"
    assert text.endswith(".")
    assert not text.endswith("..")


def test_an_answer_to_a_probe_shows_that_the_provider_works(provider: Provider):
    called(provider, status="failed", error_code="E_LLM_RATE_LIMIT")
    called(provider, purpose="probe")
    assert light(provider)[0] == "works"


def test_the_light_tells_what_is_wrong_with_keys(provider: Provider):
    called(provider)
    second = provider.keys.create(label="second", secret=PLANTED)
    ApiKey.objects.filter(pk=second.pk).update(
        state="disabled", state_reason="E_LLM_INVALID_KEY: refused"
    )
    assert light(provider)[0] == "warning"
    assert "second" in light(provider)[1]
    provider.keys.update(expires_at=timezone.now() - timedelta(hours=1))
    shown, text = light(provider)
    assert shown == "fails"
    assert "expired" in text
    provider.enabled = False
    provider.save()
    assert light(provider)[0] == "off"


def test_the_list_shows_lights_with_as_many_queries_for_any_number(
    admin_client: Client, provider: Provider
):
    called(provider)

    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            html = admin_client.get(url("changelist")).text
        assert "light-works" in html
        return len(queries)

    count()  # the first page of a session has queries of its own
    before = count()
    for number in range(10):
        other = Provider.objects.create(name=f"p{number}", kind="groq")
        other.keys.create(secret=PLANTED)
    assert count() == before


def test_the_form_sets_connection_headers_and_quirks(
    admin_client: Client, provider: Provider
):
    row = Provider.objects.create(
        name="Fake", kind="openai_compatible", base_url="https://a.test/v1"
    )
    fields = form_of(
        row,
        proxy_url="http://proxy.test:3128",
        first_byte_timeout="30",
        secret=f"X-Gateway-Token: {VALUE}",
        quirk_files="off",
        quirk_developer_role="on",
        options='{"headers": {"X-Team": "a"}}',
    )
    answer = admin_client.post(url("change", row.pk), fields, follow=True)
    assert VALUE not in answer.text
    row.refresh_from_db()
    assert (row.proxy_url, row.first_byte_timeout) == ("http://proxy.test:3128", 30)
    quirks = {"files": False, "developer_role": True}
    assert row.options == {"headers": {"X-Team": "a"}, "quirks": quirks}
    assert row.get_secret_headers() == {"X-Gateway-Token": VALUE}
    html = admin_client.get(url("change", row.pk)).text
    assert "Currently set: X-Gateway-Token" in html
    assert VALUE not in html
    assert "&quot;quirks&quot;" not in html
    cleared = fields | {"quirk_files": "", "quirk_developer_role": "", "secret": ""}
    admin_client.post(url("change", row.pk), cleared)
    row.refresh_from_db()
    assert row.options == {"headers": {"X-Team": "a"}}
    assert row.get_secret_headers() == {"X-Gateway-Token": VALUE}


def test_a_new_address_does_not_get_the_secret_headers(
    admin_client: Client, provider: Provider
):
    provider.set_secret_headers({"X-Gateway-Token": VALUE})
    provider.save()
    form = form_of(provider, base_url="https://elsewhere.example/v1")
    answer = admin_client.post(url("change", provider.pk), form, follow=True)
    assert "X-Gateway-Token: Not sent" in answer.text
    with_another = form | {"secret": "X-Other: value-0123456789"}
    admin_client.post(url("change", provider.pk), with_another)
    provider.refresh_from_db()
    assert provider.get_secret_headers() == {"X-Other": "value-0123456789"}


def test_plain_headers_that_look_secret_are_sent_to_the_other_field(
    admin_client: Client, provider: Provider
):
    options = '{"headers": {"X-Api-Key": "abc"}}'
    form = form_of(provider, options=options)
    answer = admin_client.post(url("change", provider.pk), form)
    assert "enter it as a secret header" in answer.text


def test_who_may_only_look_sees_the_page_without_the_forms_fields(
    client: Client, provider: Provider
):
    provider.set_secret_headers({"X-Gateway-Token": VALUE})
    provider.save()
    reader = User.objects.create_user("reader", is_staff=True)
    reader.user_permissions.add(Permission.objects.get(codename="view_provider"))
    client.force_login(reader)
    answer = client.get(url("change", provider.pk))
    assert answer.status_code == 200
    assert VALUE not in answer.text
    assert PLANTED not in answer.text


def test_what_uses_a_provider_is_counted_before_it_is_deleted(
    admin_client: Client, admin_user: User, provider: Provider
):
    model = provider.models.get()
    for _ in range(3):
        Conversation.objects.create(owner=admin_user, language_model=model)
    html = admin_client.get(url("delete", provider.pk)).text
    for text in ("Language models: 1", "API keys: 1", "Conversations: 3"):
        assert text in html
    bare = Provider.objects.create(name="Bare", kind="groq")
    assert "Nothing uses this provider" in admin_client.get(url("delete", bare.pk)).text


@pytest.mark.slow
@pytest.mark.smoke
def test_no_page_answer_or_log_holds_a_secret(
    admin_client: Client, provider: Provider, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("DEBUG")
    provider.set_secret_headers({"X-Gateway-Token": VALUE})
    provider.save()
    key, model = provider.keys.get(), provider.models.get()
    row = model.probes.create(finished_at=timezone.now())
    pages = [
        reverse("admin:index"),
        *(url(name, provider.pk) for name in ("change", "delete", "history", "probe")),
        url("changelist"),
        *(
            reverse(f"admin:llm_apikey_{name}", args=[key.pk])
            for name in ("change", "delete", "history", "rotate")
        ),
        reverse("admin:llm_apikey_changelist"),
        reverse("admin:llm_languagemodel_change", args=[model.pk]),
        f"{url('probe', provider.pk)}?probe={row.pk}",
        "/api/models/",
        "/v1/models",
    ]
    wrong = form_of(provider, secret=f"X-Gateway-Token: {VALUE}", base_url="no URL")
    answers = [admin_client.get(page) for page in pages]
    answers.append(admin_client.post(url("change", provider.pk), wrong))
    assert answers[-1].status_code == 200  # the form with its errors
    for answer in answers:
        text = answer.content.decode()
        for secret in (PLANTED, VALUE, PLANTED[3:20]):
            assert secret not in text
    assert PLANTED not in caplog.text
    assert VALUE not in caplog.text


def test_the_page_draws_recent_calls_for_who_may_see_usage(provider: Provider, client):
    for status in ("completed", "completed", "failed"):
        called(provider, status=status, cost=Decimal("0.5"))
    Provider.objects.create(name="Other", kind="openai")
    ModelCall.objects.create(provider_name="Other", status="completed")
    client.force_login(a_member("change_provider", "view_usage"))
    page = client.get(url("change", provider.pk)).text
    assert "30 days: 3 calls, 1 failed, $1.50" in page
    assert page.count('class="use-calls"') == page.count('class="use-failed"') == 1
    assert 'height="12"><title>' in page  # a third of the column
    link = re.search(r'href="(/admin/usage/\?first[^"]*)"', page)
    assert link
    assert "Groq" in client.get(link[1].replace("&amp;", "&")).text
    client.force_login(a_member("change_provider"))
    assert "30 days" not in client.get(url("change", provider.pk)).text


def test_a_cost_that_is_not_known_is_marked(provider: Provider, admin_client):
    called(provider, cost=None)
    called(provider, cost=Decimal("0.5"))
    page = admin_client.get(url("change", provider.pk)).text
    assert "30 days: 2 calls, 0 failed, ≥$0.50" in page


def test_calls_before_a_provider_was_renamed_are_drawn(
    provider: Provider, admin_client
):
    called(provider, cost=Decimal("0.5"))
    Provider.objects.update(name="New")
    page = admin_client.get(url("change", provider.pk)).text
    assert "30 days: 1 calls, 0 failed, $0.50" in page


def test_a_provider_without_calls_has_no_chart(provider: Provider, admin_client):
    page = admin_client.get(url("change", provider.pk)).text
    assert "No calls in the last 30 days." in page
    assert '<svg class="recent-use' not in page
