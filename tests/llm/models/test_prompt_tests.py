"""The admin's test prompt: to one model, and to several side by side."""

from __future__ import annotations

import html
import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal

import httpx
import pytest
import respx
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from conversations.models import Conversation, Item, Turn
from llm.http import client as llm_client
from llm.models import LanguageModel, ModelCall, PromptTest, Provider
from llm.models.prompt_test import STALE
from llm.probing import prompt_comparison
from llm.wire.deltas import TextDelta
from tests.conversations.script import HANG, Script

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "/admin/llm/languagemodel/test/"
GROQ = "https://api.groq.com/openai/v1/chat/completions"
PROMPT = "Name a river; this is a secret prompt."


def spoken(text: str) -> bytes:
    delta = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    chunks = [
        {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {
            "id": "c",
            "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            "usage": usage,
        },
    ]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


@pytest.fixture
def provider() -> Provider:
    provider = Provider.objects.create(name="Groq", kind="groq")
    provider.keys.create(secret="gsk-secret-key-0123456789")
    prices = {"input": 1, "output": 10}
    provider.models.create(name="good", prices=prices)
    provider.models.create(name="broken", enabled=False)
    return provider


@pytest.fixture
def groq() -> Iterator[respx.Route]:
    """It answers with the name of the model, which one model never does."""

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if body["model"] == "broken":
            error = {"error": {"message": f"no: {PROMPT}", "code": "x"}}
            return httpx.Response(500, json=error)
        return httpx.Response(200, content=spoken(f"I am <b>{body['model']}</b>."))

    with respx.mock(using="parley", assert_all_called=False) as router:
        yield router.post(GROQ).mock(side_effect=answer)


def send(client: Client, *models: LanguageModel, **fields: object):
    chosen = [row.pk for row in models]
    values = {"models": chosen, "prompt": PROMPT, "max_output_tokens": 100} | fields
    answer = client.post(PAGE, values)
    join_threads()
    return client.get(PAGE) if answer.status_code == 302 else answer


def the_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("test-")]


def join_threads() -> None:
    for thread in the_threads():
        thread.join()


def staff(*codenames: str) -> Client:
    user = User.objects.create_user("few-rights", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def test_the_same_prompt_goes_to_each_model_with_its_cost(
    admin_client: Client, provider: Provider, groq: respx.Route
):
    good, broken = provider.models.order_by("-name")
    page = html.unescape(send(admin_client, good, broken).text)
    assert "I am <b>good</b>." in page
    assert "$0.000030" in page
    assert "10 → 2" in page
    assert page.count("(<a href=") == 2
    rows = {row.model: row for row in ModelCall.objects.all()}
    assert {row.purpose for row in rows.values()} == {"test"}
    assert rows[good].cost == Decimal("0.00003")
    assert rows[good].user == User.objects.get()
    assert (rows[broken].status, rows[broken].turn_id) == ("failed", "")
    assert page.count('class="errornote"') == 1
    assert f"no: {PROMPT}" not in page
    sent = [json.loads(call.request.content) for call in groq.calls]
    assert [body["messages"][-1]["content"] for body in sent] == [PROMPT] * 2


def test_an_error_is_in_the_language_of_who_asked(
    admin_client: Client, provider: Provider, groq: respx.Route
):
    broken = provider.models.get(name="broken")
    values = {"models": [broken.pk], "prompt": PROMPT, "max_output_tokens": 100}
    admin_client.post(PAGE, values, headers={"accept-language": "de"})
    join_threads()
    [answer] = PromptTest.objects.get().answers
    assert answer["error"].startswith("Der Anbieter")


def test_no_conversation_log_or_call_has_its_texts(admin_client, provider, groq):
    send(admin_client, provider.models.get(name="good"))
    for table in (Conversation, Turn, Item):
        assert not table.objects.exists()
    assert "secret prompt" not in str(PromptTest.objects.get())
    assert not any("secret prompt" in str(vars(row)) for row in LogEntry.objects.all())
    assert "secret prompt" not in str(vars(ModelCall.objects.get()))


def test_the_answer_is_text_on_the_page(admin_client, provider, groq):
    page = send(admin_client, provider.models.get(name="good")).text
    assert "&lt;b&gt;good&lt;/b&gt;" in page
    assert "<b>good</b>" not in page


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"prompt": ""}, "This field is required"),
        ({"prompt": "x" * 8_001}, "at most 8000 characters"),
        ({"prompt": "a\0b"}, "Null characters are not allowed"),
        ({"max_output_tokens": 100_000}, "less than or equal to 4000"),
        ({"max_output_tokens": "many"}, "Enter a whole number"),
        ({"models": []}, "This field is required"),
        ({"models": ["x"]}, "is not a valid value"),
        ({"models": ["9" * 40]}, "not one of the available choices"),
        ({"budget": "-1"}, "greater than or equal to 0"),
        ({"budget": "1e99"}, "no more than"),
    ],
)
def test_wrong_input_sends_nothing(admin_client, provider, groq, fields, shown: str):
    answer = send(admin_client, provider.models.get(name="good"), **fields)
    assert answer.status_code == 200
    assert shown in html.unescape(answer.text)
    assert not groq.called


def test_too_many_models_are_refused(admin_client, provider, groq):
    rows = [provider.models.create(name=f"m{number}") for number in range(7)]
    assert "Choose at most 6 models." in send(admin_client, *rows).text
    action = {"action": "test_prompt", "_selected_action": [row.pk for row in rows]}
    listing = "/admin/llm/languagemodel/"
    assert (
        "Choose at most 6 models."
        in admin_client.post(listing, action, follow=True).text
    )
    action["_selected_action"] = [row.pk for row in rows[:2]]
    address = admin_client.post(listing, action).url
    chosen = [f'value="{row.pk}" selected' for row in rows[:3]]
    page = admin_client.get(address).text
    assert [each in page for each in chosen] == [True, True, False]
    assert not groq.called


def test_a_model_without_a_key_says_so_beside_the_others(admin_client, provider, groq):
    other = Provider.objects.create(name="Other", kind="groq")
    keyless = other.models.create(name="keyless")
    page = send(admin_client, keyless, provider.models.get(name="good")).text
    assert "There is no key" in page
    assert "I am &lt;b&gt;good" in page
    assert ModelCall.objects.count() == 1


@pytest.mark.parametrize(
    "ended",
    [
        {"expires_at": timezone.now() - timedelta(seconds=1)},
        {"drains_at": timezone.now() - timedelta(seconds=1)},
        {"state": "disabled"},
    ],
    ids=["expired", "drained", "disabled"],
)
def test_a_key_that_serves_nobody_answers_no_test(admin_client, provider, groq, ended):
    provider.keys.update(**ended)
    page = html.unescape(send(admin_client, provider.models.get(name="good")).text)
    assert not groq.called
    assert "The provider 'Groq' has no active key; add one." in page


def test_an_ended_key_is_not_used_in_place_of_one_that_cannot_be_sent(
    admin_client, provider, groq
):
    provider.keys.update(expires_at=timezone.now() - timedelta(seconds=1))
    moved = provider.keys.create(label="moved")
    moved.enter("gsk-moved-0123456789", "https://elsewhere.example")
    moved.save()
    page = html.unescape(send(admin_client, provider.models.get(name="good")).text)
    assert not groq.called
    assert "was entered for a different address" in page


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        (
            {
                "state": "resting",
                "rest_until": timezone.now() + timedelta(hours=1),
                "state_reason": "E_LLM_RATE_LIMIT: x",
            },
            "All keys of the provider 'Groq' are at their rate limits",
        ),
        (
            {
                "state": "resting",
                "rest_until": timezone.now() + timedelta(hours=1),
                "state_reason": "E_LLM_QUOTA: x",
            },
            "The account at the provider has no credit left.",
        ),
        ({"weight": 0}, "The provider 'Groq' has no active key; add one."),
    ],
    ids=["rate limit", "quota", "weight"],
)
def test_why_no_key_may_be_used_is_said(
    admin_client, provider, groq, state: dict[str, object], shown: str
):
    provider.keys.update(**state)
    page = html.unescape(send(admin_client, provider.models.get(name="good")).text)
    assert not groq.called
    assert shown in page


@pytest.mark.parametrize(
    ("rights", "status"),
    [
        (["view_languagemodel", "test_languagemodel"], 200),
        (["view_languagemodel", "change_languagemodel", "change_provider"], 403),
        (["test_languagemodel"], 403),
    ],
)
def test_the_page_takes_its_own_permission(provider, groq, rights, status: int):
    client = staff(*rights)
    assert client.get(PAGE).status_code == status
    answer = send(client, provider.models.get(name="good"))
    assert answer.status_code == status
    assert groq.called is (status == 200)
    assert "model call</a>" not in answer.text  # it takes a permission of its own
    listing = client.get("/admin/llm/languagemodel/")
    if listing.status_code == 200:
        assert ("test_prompt" in listing.text) is (status == 200)


# In the background


@pytest.fixture
def slow_host(monkeypatch) -> Script:
    """It says half a sentence and nothing more."""
    monkeypatch.setattr(prompt_comparison, "PROGRESS_INTERVAL", 0.01)
    script = Script([TextDelta(0, "Half a <sen"), HANG])
    monkeypatch.setattr(llm_client, "stream", script)
    return script


def wait_for(is_so: Callable[[], bool]) -> None:
    while not is_so():
        [thread] = the_threads()
        thread.join(0.01)


def begin(client: Client, *models: LanguageModel):
    chosen = [row.pk for row in models]
    values = {"models": chosen, "prompt": PROMPT, "max_output_tokens": 100}
    return client.post(PAGE, values)


def has_begun() -> bool:
    row = PromptTest.objects.first()
    return row is not None and all(each["text"] for each in row.answers)


def test_answers_are_shown_as_they_grow_and_can_be_stopped(
    admin_client, provider, slow_host
):
    rows = [*provider.models.all()]
    assert begin(admin_client, *rows).status_code == 302  # at once
    wait_for(has_begun)
    page = admin_client.get(PAGE).text
    fragment = admin_client.get(PAGE, {"fragment": "1"}).text
    for shown in (page, fragment):
        assert shown.count("Half a &lt;sen") == 2
        assert 'name="stop"' in shown
        assert "data-board-end" not in shown
    assert "<html" not in fragment
    again = begin(admin_client, *rows)
    assert "Your last test is still running" in again.text
    admin_client.post(PAGE, {"stop": "1"})
    join_threads()
    page = admin_client.get(PAGE).text
    assert page.count("Stopped.") == 2
    assert page.count("Half a &lt;sen") == 2
    assert "data-board-end" in page
    assert slow_host.closed == 2
    assert {row.status for row in ModelCall.objects.all()} == {"cancelled"}
    admin_client.post(PAGE, {"clear": "1"})
    assert not PromptTest.objects.exists()


def test_a_test_whose_row_is_deleted_ends(admin_client, provider, slow_host):
    begin(admin_client, provider.models.get(name="good"))
    wait_for(has_begun)
    PromptTest.objects.all().delete()
    join_threads()
    assert slow_host.closed == 1
    assert ModelCall.objects.get().status == "cancelled"


def test_nobody_sees_or_stops_the_test_of_another(admin_client, provider, slow_host):
    begin(admin_client, provider.models.get(name="good"))
    wait_for(has_begun)
    other = staff("view_languagemodel", "test_languagemodel")
    assert "Half a" not in other.get(PAGE).text
    other.post(PAGE, {"stop": "1"})
    assert not PromptTest.objects.get().stop_requested
    admin_client.post(PAGE, {"stop": "1"})
    join_threads()


def test_a_test_whose_process_has_ended_says_so_and_may_be_sent_again(
    admin_client, admin_user, provider, groq
):
    long_ago = timezone.now() - 2 * STALE
    PromptTest.objects.create(
        user=admin_user, prompt="Hi", job="gone", created_at=long_ago, seen_at=long_ago
    )
    assert "The test was interrupted" in admin_client.get(PAGE).text
    assert "I am" in send(admin_client, provider.models.get(name="good")).text


def test_so_many_tests_run_at_once_and_no_more(admin_client, provider, groq):
    now = timezone.now()
    for number in range(prompt_comparison.MAX_RUNNING):
        user = User.objects.create_user(f"u{number}")
        PromptTest.objects.create(user=user, job="x", created_at=now, seen_at=now)
    page = send(admin_client, provider.models.get(name="good")).text
    assert "Other tests are running" in page
    assert not groq.called


def test_a_budget_is_never_exceeded(admin_client, provider, groq):
    """Each answer may cost 100 output tokens and the prompt: about $0.0011."""
    good = provider.models.get(name="good")
    second = provider.models.create(name="second", prices={"input": 1, "output": 10})
    unpriced = provider.models.create(name="priceless")
    page = send(admin_client, good, second, unpriced, budget="0.0015").text
    assert page.count("I am") == 1
    assert "Not asked: it might cost $0.001" in page
    assert "Not asked: its price is unknown" in page
    assert groq.call_count == 1
    assert ModelCall.objects.get().cost < Decimal("0.0015")
    nothing = send(admin_client, good, budget="0").text
    assert "and $0.000000 are left" in nothing
    assert groq.call_count == 1
