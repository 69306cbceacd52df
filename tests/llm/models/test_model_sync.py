from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
import respx
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from conversations.audit.models import AuditEvent, AuditText
from llm.errors import BadRequest, BadResponse, InvalidKey, ProviderTimeout
from llm.models import LanguageModel, ModelPrice, Provider
from llm.sync import model_list

MODELS = "https://api.groq.com/openai/v1/models"
OSS = {
    "id": "openai/gpt-oss-120b",
    "context_window": 131072,
    "max_completion_tokens": 65536,
    "supported_features": ["tools", "json_mode", "structured_outputs", "reasoning"],
    "input_modalities": ["text"],
}
NEW = {
    "id": "qwen/qwen4",
    "name": "Qwen 4",
    "context_window": 262144,
    "supported_features": ["tools"],
    "input_modalities": ["text", "image"],
}
WHISPER = {"id": "whisper-large", "output_modalities": ["transcription"]}

pytestmark = pytest.mark.django_db


@pytest.fixture
def provider() -> Provider:
    provider = Provider.objects.create(name="Groq", kind="groq")
    provider.keys.create(secret="gsk-first")
    return provider


@pytest.fixture
def listed():
    """The provider's list; set by `listed(entry, …)`."""
    with respx.mock(using="parley", assert_all_called=False) as router:
        route = router.get(url__startswith=MODELS)

        def respond(*entries: dict[str, Any], **more: Any) -> respx.Route:
            return route.respond(200, json={"data": entries, **more})

        respond.route = route
        yield respond


# Comparing


def test_new_changed_and_missing_models_are_reported(provider: Provider, listed):
    oss = provider.models.create(name=OSS["id"])
    old = provider.models.create(name="llama-2")
    provider.models.create(name="llama-1", enabled=False)
    listed(OSS, NEW, WHISPER)
    found = model_list.compare(provider)
    assert [info.name for info in found.new] == ["qwen/qwen4"]
    assert list(found.gone) == [old]
    [change] = found.changed
    assert change.model == oss
    # Facts of the bundled data are no news.
    assert change.lines == [
        "json_mode: unknown → yes",
        "json_schema: unknown → yes",
        "max_output_tokens: unknown → 65,536",
    ]


def test_the_key_is_shown_and_nothing_is_written(provider: Provider, listed):
    listed(NEW)
    model_list.compare(provider)
    sent = listed.route.calls.last.request
    assert sent.headers["authorization"] == "Bearer gsk-first"
    assert sent.headers["accept"] == "application/json"
    assert not LanguageModel.objects.exists()


def test_values_set_by_staff_are_compared_with_the_list(provider: Provider, listed):
    staff_fields = {"json_mode": True, "json_schema": True, "vision": True}
    provider.models.create(
        name=OSS["id"],
        capabilities=staff_fields,
        max_output_tokens=65536,
        context_window=9,
    )
    listed(OSS)
    [change] = model_list.compare(provider).changed
    assert change.lines == ["vision: yes → no", "context_window: 9 → 131,072"]


def test_an_unchanged_list_makes_no_difference(provider: Provider, listed):
    listed({"id": "a"}, {"id": "b"})
    provider.models.create(name="a")
    provider.models.create(name="b")
    assert not model_list.compare(provider)


def test_models_whose_names_are_too_long_are_counted(
    admin_client: Client, provider: Provider, listed
):
    listed({"id": "a" * 200}, {"id": "b" * 201}, WHISPER)
    found = model_list.compare(provider)
    assert ([info.name for info in found.new], found.left_out) == (["a" * 200], 1)
    listed({"id": "b" * 201})
    form = {"action": "sync_models", "_selected_action": provider.pk}
    page = admin_client.post("/admin/llm/provider/", form, follow=True).text
    assert "1 listed model cannot be added: its name is longer than 200" in page


def test_a_second_key_is_tried_where_the_first_is_refused(provider: Provider, listed):
    provider.keys.create(secret="gsk-second", label="second")
    listed.route.side_effect = [
        httpx.Response(401, json={"error": {"message": "Invalid API Key"}}),
        httpx.Response(200, json={"data": [NEW]}),
    ]
    assert model_list.compare(provider).new
    assert listed.route.calls.last.request.headers["authorization"] == (
        "Bearer gsk-second"
    )


def test_all_pages_are_read(listed):
    provider = Provider.objects.create(name="Claude", kind="anthropic")
    provider.keys.create(secret="sk-ant")
    with respx.mock(using="parley") as router:
        route = router.get(url__startswith="https://api.anthropic.com/v1/models")
        route.side_effect = [
            httpx.Response(
                200, json={"data": [{"id": "a"}], "has_more": True, "last_id": "a"}
            ),
            httpx.Response(200, json={"data": [{"id": "b"}], "has_more": False}),
        ]
        found = model_list.compare(provider)
    assert [info.name for info in found.new] == ["a", "b"]
    urls = [str(call.request.url) for call in route.calls]
    first = "https://api.anthropic.com/v1/models?limit=1000"
    assert urls == [first, f"{first}&after_id=a"]
    assert route.calls.last.request.headers["anthropic-version"]


def test_a_list_without_an_end_is_given_up(provider: Provider, listed):
    listed(NEW, has_more=True, last_id="x")
    with pytest.raises(BadResponse, match="too many pages"):
        model_list.compare(provider)
    assert listed.route.call_count == model_list.MAX_PAGES


def test_geminis_names_are_ours_with_a_word_before_them():
    provider = Provider.objects.create(name="Gemini", kind="gemini")
    provider.keys.create(secret="AIza")
    provider.models.create(name="gemini-2.5-pro")
    provider.models.create(name="models/gemini-2.5-flash")
    names = ["models/gemini-2.5-pro", "models/gemini-2.5-flash", "models/gemini-9"]
    entries = [
        {"name": n, "supportedGenerationMethods": ["generateContent"]} for n in names
    ]
    with respx.mock(using="parley") as router:
        router.get(url__startswith="https://generativelanguage").respond(
            200, json={"models": entries}
        )
        found = model_list.compare(provider)
    assert [info.name for info in found.new] == ["gemini-9"]
    assert not found.gone


# Obstacles


@pytest.mark.parametrize(
    ("answer", "error", "shown_messages"),
    [
        (httpx.Response(401, json={"error": {"message": "no"}}), InvalidKey, "refused"),
        (
            httpx.Response(404, json={"error": {"message": "Not found"}}),
            BadRequest,
            f"There is no list of models at {MODELS}.",
        ),
        (httpx.Response(200, text="<html>"), BadResponse, "returned a web page"),
        (httpx.ReadTimeout("late"), ProviderTimeout, "did not answer"),
    ],
)
def test_each_failure_of_the_list_is_explained(
    provider, listed, answer, error, shown_messages: str
):
    listed.route.side_effect = [answer]
    with pytest.raises(error, match=shown_messages.replace(".", r"\.")):
        model_list.compare(provider)


def test_without_a_key_no_list_is_requested(provider: Provider, listed):
    provider.keys.all().delete()
    with pytest.raises(InvalidKey, match="There is no key"):
        model_list.compare(provider)
    assert not listed.route.called


def test_a_host_with_a_list_of_other_things_is_not_queried():
    provider = Provider.objects.create(
        name="Azure",
        kind="azure_openai",
        base_url="https://x.openai.azure.com/openai/v1",
    )
    with pytest.raises(
        BadRequest, match="Azure OpenAI has no list of available models"
    ):
        model_list.compare(provider)


def test_an_address_in_a_private_network_is_not_queried(provider: Provider):
    provider.base_url = "http://10.0.0.1/v1"
    provider.save()
    key = provider.keys.get()
    key.secret = "gsk-entered-again"
    key.save()
    with pytest.raises(BadRequest, match="is in a private network"):
        model_list.compare(provider)


def test_a_provider_disabled_by_the_environment_is_not_queried(
    provider, listed, settings
):
    settings.DISABLED_PROVIDERS = {"groq"}
    with pytest.raises(BadRequest, match="Not synced: ENABLE_GROQ=false"):
        model_list.compare(provider)
    assert not listed.route.called


# Applying


def test_new_models_are_added_switched_off(provider: Provider, listed):
    listed(NEW, OSS)
    found = model_list.compare(provider)
    done = model_list.apply(provider, found, new=["qwen/qwen4"])
    assert done == model_list.SyncResult(added=1)
    row = LanguageModel.objects.get()
    assert (row.name, row.label, row.enabled) == ("qwen/qwen4", "Qwen 4", False)
    assert row.context_window == 262144
    assert row.capabilities["vision"] is True


def test_facts_known_from_the_bundled_data_are_not_stored(provider: Provider, listed):
    listed(OSS)
    found = model_list.compare(provider)
    model_list.apply(provider, found, **found.names())
    row = LanguageModel.objects.get()
    assert row.capabilities == {"json_mode": True, "json_schema": True}
    assert (row.context_window, row.max_output_tokens) == (None, 65536)
    row.enabled = True
    row.save()
    assert not model_list.compare(provider)


def test_only_what_was_chosen_is_done(provider: Provider, listed):
    oss = provider.models.create(name=OSS["id"], capabilities={"mine": 1})
    old = provider.models.create(name="llama-2")
    older = provider.models.create(name="llama-1")
    listed(OSS, NEW)
    found = model_list.compare(provider)
    done = model_list.apply(provider, found, changed=[oss.name], gone=[older.name])
    assert done == model_list.SyncResult(changed=1, switched_off=1)
    for row in (oss, old, older):
        row.refresh_from_db()
    assert oss.capabilities == {"mine": 1, "json_mode": True, "json_schema": True}
    assert (old.enabled, older.enabled) == (True, False)
    assert LanguageModel.objects.count() == 3


# In the admin


def sync(client: Client, provider: Provider, **chosen: Any):
    """Show the list; to apply it, show it before."""
    is_applied = any(name.startswith("_apply") for name in chosen)
    if is_applied and "seen" not in chosen:
        chosen["seen"] = sync(client, provider).context.get("seen", "")
    return client.post(
        reverse("admin:llm_provider_changelist"),
        {"action": "sync_models", "_selected_action": [provider.pk], **chosen},
        follow=True,
    )


def shown_messages(response) -> list[str]:
    """Without their links."""
    texts = [str(message) for message in response.context["messages"]]
    return [text.partition(" <a ")[0] for text in texts]


def test_the_staff_see_what_there_is_and_choose(admin_client, provider, listed):
    provider.models.create(name=OSS["id"])
    provider.models.create(name="llama-2")
    listed(OSS, NEW)
    page = sync(admin_client, provider)
    text = page.content.decode()
    assert page.context["title"] == "Models of Groq"
    for shown in ("qwen/qwen4", "Qwen 4", "json_mode: unknown → yes", "llama-2"):
        assert shown in text
    assert LanguageModel.objects.count() == 2
    response = sync(admin_client, provider, new="qwen/qwen4", _apply="1")
    assert shown_messages(response) == ["1 added, 0 changed, 0 switched off."]
    link = f"/admin/llm/languagemodel/?provider__id__exact={provider.pk}"
    assert f'<a href="{link}">Show the models</a>' in response.text
    assert not LanguageModel.objects.get(name="qwen/qwen4").enabled
    assert "1 added" in LogEntry.objects.get().get_change_message()
    response = sync(admin_client, provider, _apply_all="1")
    assert shown_messages(response) == ["0 added, 1 changed, 1 switched off."]


def test_what_has_changed_since_it_was_shown_is_shown_again(
    admin_client, provider: Provider, listed
):
    for name in ("kept", "changing"):
        provider.models.create(name=name, context_window=1)
    shown = [{"id": "kept", "context_window": 2}, {"id": "new"}]
    listed({"id": "changing", "context_window": 2}, *shown)
    seen = sync(admin_client, provider).context["seen"]
    listed({"id": "changing", "context_window": 3}, *shown, {"id": "unseen"})
    for chosen in (
        {"changed": ["changing", "kept"], "_apply": "1"},
        {"new": ["unseen"], "_apply": "1"},
        {"new": ["gone by now"], "_apply": "1"},
        {"_apply_all": "1"},
    ):
        page = sync(admin_client, provider, seen=seen, **chosen)
        assert "review it again" in page.text
        assert {row.context_window for row in provider.models.all()} == {1}
    sync(admin_client, provider, seen=seen, changed=["kept"], new=["new"], _apply="1")
    assert provider.models.get(name="kept").context_window == 2
    assert provider.models.filter(name="new").exists()


def test_boxes_that_tick_all_are_described_by_their_headings(
    admin_client, provider, listed
):
    provider.models.create(name=OSS["id"], context_window=1)
    provider.models.create(name="llama-2")
    listed(OSS, NEW)
    page = sync(admin_client, provider).content.decode()
    described = re.findall(r'aria-describedby="([\w-]+-models)"', page)
    assert len(described) == 6
    assert [*dict.fromkeys(described)] == re.findall(r'<h2 id="([\w-]+)"', page)


def test_a_name_from_a_list_is_text_on_the_page(admin_client, provider, listed):
    listed({"id": "<script>alert(1)</script>"})
    assert b"<script>alert(1)" not in sync(admin_client, provider).content


def test_no_news_and_every_failure_are_printed(admin_client, provider, listed):
    listed()
    nothing = ["The models of Groq are up to date."]
    assert shown_messages(sync(admin_client, provider)) == nothing
    listed.route.respond(503)
    assert shown_messages(sync(admin_client, provider))[0].startswith(
        "Groq: The provider is down"
    )


def test_one_provider_at_a_time(admin_client, provider, listed):
    other = Provider.objects.create(name="Other", kind="groq")
    response = sync(admin_client, provider, _selected_action=[provider.pk, other.pk])
    assert shown_messages(response) == [
        "Select exactly one provider; models are synced for one provider at a time."
    ]
    assert not listed.route.called


def test_staff_who_may_not_add_models_get_no_such_action(client, provider, listed):
    user = User.objects.create_user("sam", is_staff=True)
    names = ["view_provider", "change_provider", "change_languagemodel"]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    client.force_login(user)
    sync(client, provider, _apply_all="1")
    assert not listed.route.called


def test_capabilities_that_make_no_sense_are_pointed_out(admin_client, provider):
    row = provider.models.create(name="m")
    response = admin_client.post(
        reverse("admin:llm_languagemodel_change", args=[row.pk]),
        {
            "provider": provider.pk,
            "name": "m",
            "enabled": "on",
            "capabilities": '{"visoin": true}',
            "options": "",
            "prices": "",
            "dated_prices-TOTAL_FORMS": 0,
            "dated_prices-INITIAL_FORMS": 0,
        },
        follow=True,
    )
    assert "'visoin' is unknown; use tools, " in shown_messages(response)[0]


# Prices, windows and retirement

PRICED = {
    "id": "moonshot/kimi-9",
    "context_window": 262144,
    "pricing": {"prompt": "0.0000015", "completion": "0.000006"},
}


def test_another_price_is_shown_and_counts_from_now_on(
    admin_client, provider: Provider, listed
):
    row = provider.models.create(
        name=PRICED["id"],
        context_window=262144,
        prices={"input": 2, "cached_input": 0.5, "output": 6},
    )
    listed(PRICED)
    page = sync(admin_client, provider).content.decode()
    assert "price of input: 2 → 1.5 USD per million tokens" in page
    assert "price of output" not in page
    sync(admin_client, provider, changed=[PRICED["id"]], _apply="1")
    [price] = row.dated_prices.all()
    # What the host does not name stays.
    assert (price.input, price.cached_input, price.output) == (1.5, 0.5, 6)
    assert price.added_by is not None
    assert price.is_in_effect
    row.refresh_from_db()
    assert row.price_schedule[0]["prices"]["input"] == 1.5
    assert row.prices["input"] == 2  # of the time before
    assert not model_list.compare(provider)


def test_a_price_of_one_hour_cache_writes_ends_where_the_page_says(
    admin_client, provider: Provider, listed
):
    prices = {"input": 2, "output": 6, "cache_write_1h": 7}
    row = provider.models.create(name=PRICED["id"], prices=prices)
    listed(PRICED)
    page = sync(admin_client, provider).content.decode()
    assert "price of one-hour cache write: 7 → 3 USD per million tokens" in page
    sync(admin_client, provider, changed=[PRICED["id"]], _apply="1")
    assert row.dated_prices.get().values == {"input": 1.5, "output": 6}


def test_prices_of_searches_and_tiers_stay_when_the_list_has_another_of_tokens(
    admin_client, provider: Provider, listed
):
    more = {"web_search": 7, "tiers": {"flex": 0.5}}
    row = provider.models.create(
        name=PRICED["id"], prices={"input": 2, "output": 6, **more}
    )
    listed(PRICED)
    page = sync(admin_client, provider).content.decode()
    assert "price of input: 2 → 1.5 USD per million tokens" in page
    assert "search" not in page.partition("price of input")[2][:200]
    sync(admin_client, provider, changed=[PRICED["id"]], _apply="1")
    assert row.dated_prices.get().values == {"input": 1.5, "output": 6, **more}
    assert not model_list.compare(provider)


def test_a_new_model_is_added_with_its_price_and_window(
    admin_client, provider: Provider, listed
):
    listed(PRICED)
    page = sync(admin_client, provider).content.decode()
    assert "USD 1.5 / 6 per million tokens" in page
    assert "window 262144 tokens" in page
    sync(admin_client, provider, new=[PRICED["id"]], _apply="1")
    row = provider.models.get()
    assert row.context_window == 262144
    assert row.dated_prices.get().output == 6
    assert not model_list.compare(provider)


def test_who_may_not_enter_prices_syncs_none(client, provider: Provider, listed):
    user = User.objects.create_user("sam", is_staff=True)
    names = ["view_provider", "add_languagemodel", "change_languagemodel"]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    client.force_login(user)
    dearer = {**PRICED, "id": "dearer", "context_window": 4096}
    row = provider.models.create(
        name="dearer", context_window=1024, prices={"input": 1, "output": 1}
    )
    provider.models.create(
        name="known", context_window=4096, prices={"input": 1, "output": 1}
    )
    listed(PRICED, dearer, {**dearer, "id": "known"})
    page = sync(client, provider)
    assert "per million tokens" not in page.text
    assert page.context["comparison"].names()["changed"] == ["dearer"]
    sync(client, provider, _apply_all="1")
    row.refresh_from_db()
    assert row.context_window == 4096
    assert provider.models.filter(name=PRICED["id"]).exists()
    assert not ModelPrice.objects.exists()


def test_the_window_that_vllm_serves_now_is_a_change():
    provider = Provider.objects.create(
        name="Rack 3", kind="openai_compatible", base_url="https://rack.test/v1"
    )
    provider.keys.create(secret="k")
    provider.models.create(name="qwen-9", context_window=32768)
    with respx.mock(using="parley") as router:
        router.get("https://rack.test/v1/models").respond(
            200, json={"data": [{"id": "qwen-9", "max_model_len": 131072}]}
        )
        [change] = model_list.compare(provider).changed
    assert change.lines == ["context_window: 32,768 → 131,072"]


def test_an_announced_retirement_is_taken_over_unless_staff_set_one(
    provider: Provider, listed
):
    free, own = (provider.models.create(name=name) for name in ("a", "b"))
    own.retires_at = "2030-01-01T00:00:00Z"
    own.save()
    entries = [{"id": n, "deprecation": "2031-05-06T00:00:00Z"} for n in ("a", "b")]
    listed(*entries)
    found = model_list.compare(provider)
    [change] = found.changed
    assert change.lines == ["retired from: unknown → 2031-05-06"]
    model_list.apply(provider, found, changed=["a", "b"])
    free.refresh_from_db()
    assert free.retires_at is not None
    assert free.retires_at.year == 2031


def test_the_audit_names_what_was_added_and_switched_off(
    admin_client, provider, listed
):
    old = provider.models.create(name="llama-2")
    listed(NEW)
    sync(admin_client, provider, new=NEW["id"], gone=old.name, _apply_on="1")
    event = AuditEvent.objects.filter(action="config.change").earliest("id")
    rows = json.loads(AuditText.objects.get(pk=event.pk).details)["rows"]
    added = provider.models.get(name=NEW["id"])
    assert rows[f"llm.languagemodel {old.pk}"]["after"] == {"enabled": False}
    after = rows[f"llm.languagemodel {added.pk}"]["after"]
    assert (after["name"], after["enabled"]) == (NEW["id"], True)
