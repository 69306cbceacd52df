"""The page on which people store their own keys, and the sign-in that fetches one."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import respx
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from llm.keys.own_keys import store_own_key
from llm.models import ApiKey, LanguageModel, Provider
from tests.conversations.scene import a_user, signed_in
from tests.serving import free_port

pytestmark = pytest.mark.django_db

PAGE = reverse("own-keys")
KEY = "sk-or-v1-0123456789abcdef"


@pytest.fixture
def router_host() -> Provider:
    provider = Provider.objects.create(
        name="Router", kind="openrouter", accepts_own_keys=True
    )
    LanguageModel.objects.create(provider=provider, name="auto")
    closed = Provider.objects.create(name="Closed", kind="openai")
    LanguageModel.objects.create(provider=closed, name="other")
    return provider


@pytest.fixture
def exchange() -> Iterator[respx.Route]:
    with respx.mock(using="parley", assert_all_called=False) as mock:
        yield mock.post("https://openrouter.ai/api/v1/auth/keys").mock(
            return_value=httpx.Response(200, json={"key": KEY})
        )


def key_of(user: User) -> str | None:
    row = ApiKey.every.filter(owner=user).first()
    return row.secret.reveal() if row else None


def begin_sign_in(web: Client, provider: Provider) -> dict[str, str]:
    """The parameters of the address to which the person is sent."""
    answer = web.post(reverse("begin-key-sign-in", args=[provider.pk]))
    url = urlsplit(answer.headers["Location"])
    assert f"{url.scheme}://{url.netloc}{url.path}" == "https://openrouter.ai/auth"
    return {name: values[0] for name, values in parse_qs(url.query).items()}


def test_a_key_is_stored_replaced_and_deleted_and_never_shown(router_host: Provider):
    ada = a_user("ada")
    web = signed_in(ada)
    assert "Closed" not in web.get(PAGE).content.decode()
    address = reverse("store-own-key", args=[router_host.pk])
    for secret in (KEY, KEY[::-1]):
        assert web.post(address, {"secret": secret}).status_code == 302
        assert key_of(ada) == secret
        assert secret not in web.get(PAGE).content.decode()
    assert ApiKey.every.filter(owner=ada).count() == 1

    for wrong in ("", "two words", "x" * 10_001):
        answer = web.post(address, {"secret": wrong})
        assert answer.status_code == 400
        assert "field-error" in answer.content.decode()
    assert key_of(ada) == KEY[::-1]

    other = signed_in(a_user("ben"))
    delete = reverse("delete-own-key", args=[router_host.pk])
    assert other.post(delete).status_code == 404
    assert web.post(delete).status_code == 302
    assert key_of(ada) is None


@pytest.mark.parametrize("state", ["disabled", "resting"])
def test_the_page_tells_a_key_without_credit_from_a_refused_one(
    router_host: Provider, state: str
):
    ada = a_user("ada")
    web = signed_in(ada)
    store_own_key(ada, router_host, KEY)
    later = timezone.now() + timedelta(hours=1)
    rows = ApiKey.every.filter(owner=ada)
    reason = "E_LLM_QUOTA: the host's words"
    rows.update(state=state, rest_until=later, state_reason=reason)
    page = web.get(PAGE).content.decode()
    assert "no credit left" in page
    assert "refused the key" not in page
    assert "the host" not in page
    rows.update(state="disabled", state_reason="E_LLM_INVALID_KEY: no")
    page = web.get(PAGE).content.decode()
    assert "refused the key" in page
    assert "no credit" not in page
    web.post(reverse("store-own-key", args=[router_host.pk]), {"secret": KEY})
    assert "refused the key" not in web.get(PAGE).content.decode()


@pytest.mark.django_db(transaction=True)
def test_keys_that_are_stored_at_once_replace_each_other(router_host: Provider):
    ada = a_user("ada")
    start = threading.Barrier(4)

    def store(number: int) -> None:
        start.wait()
        try:
            store_own_key(ada, router_host, f"sk-{number}")
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(store, range(4)))
    assert ApiKey.every.filter(owner=ada).count() == 1
    second = ApiKey(provider=router_host, owner=ada, label="second", secret=KEY)
    with pytest.raises(IntegrityError):
        second.save()


def test_staff_cannot_take_the_label_of_a_person_s_key(router_host: Provider):
    ada = a_user("ada")
    label = store_own_key(ada, router_host, KEY).label
    with pytest.raises(ValidationError, match="people's own keys"):
        ApiKey(provider=router_host, label=label, secret=KEY).full_clean()
    store_own_key(ada, router_host, KEY[::-1])
    assert key_of(ada) == KEY[::-1]


def test_staff_lists_tests_and_files_never_contain_a_person_s_key(
    router_host: Provider,
):
    web = signed_in(a_user("ada"))
    web.post(reverse("store-own-key", args=[router_host.pk]), {"secret": KEY})
    assert not router_host.keys.exists()
    assert not ApiKey.objects.exists()


def test_a_closed_provider_takes_no_key_but_lets_one_be_deleted(router_host: Provider):
    ada = a_user("ada")
    web = signed_in(ada)
    web.post(reverse("store-own-key", args=[router_host.pk]), {"secret": KEY})
    Provider.objects.filter(pk=router_host.pk).update(accepts_own_keys=False)
    answer = web.post(reverse("store-own-key", args=[router_host.pk]), {"secret": "a"})
    assert answer.status_code == 404
    assert web.post(reverse("delete-own-key", args=[router_host.pk])).status_code == 302
    assert key_of(ada) is None


def test_signing_in_at_the_provider_stores_the_key(
    router_host: Provider, exchange: respx.Route
):
    ada = a_user("ada")
    web = signed_in(ada)
    query = begin_sign_in(web, router_host)
    assert query["code_challenge_method"] == "S256"
    assert web.get(query["callback_url"], {"code": "c-1"}).status_code == 302
    assert key_of(ada) == KEY
    sent = json.loads(exchange.calls.last.request.content)
    assert sent["code"] == "c-1"
    assert sent["code_verifier"] not in query.values()


def test_a_sign_in_counts_once_and_in_its_own_session(
    router_host: Provider, exchange: respx.Route
):
    ada, ben = a_user("ada"), a_user("ben")
    web, other = signed_in(ada), signed_in(ben)
    query = begin_sign_in(web, router_host)
    # Another person follows the link, the state is wrong, or there is no code.
    assert other.get(query["callback_url"], {"code": "c"}).status_code == 400
    wrong = query["callback_url"].rstrip("/") + "x/"
    assert web.get(wrong, {"code": "c"}).status_code == 400
    query = begin_sign_in(web, router_host)
    assert web.get(query["callback_url"]).status_code == 400
    assert web.get(query["callback_url"], {"code": "c"}).status_code == 400
    assert not exchange.called
    assert key_of(ada) is None
    assert key_of(ben) is None


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(403, json={"error": "expired"}),
        httpx.Response(200, text="<html>"),
        httpx.Response(200, json={"key": 5}),
        httpx.Response(200, json=["key"]),
        httpx.Response(200, json={"key": "two words"}),
        httpx.ConnectError("down"),
    ],
)
def test_a_sign_in_that_fails_is_explained(
    router_host: Provider,
    exchange: respx.Route,
    answer: httpx.Response | Exception,
):
    exchange.mock(side_effect=[answer])
    ada = a_user("ada")
    web = signed_in(ada)
    query = begin_sign_in(web, router_host)
    page = web.get(query["callback_url"], {"code": "c"})
    assert page.status_code == 502
    assert 'role="alert"' in page.content.decode()
    assert key_of(ada) is None


def test_a_sign_in_at_a_host_that_cannot_be_reached_is_explained(
    router_host: Provider,
):
    """Without a mock, whose errors are those of httpx."""
    port = free_port()
    router_host.base_url, router_host.allow_private_network = (
        f"http://127.0.0.1:{port}/v1",
        True,
    )
    router_host.save()
    web = signed_in(a_user("ada"))
    query = begin_sign_in(web, router_host)
    page = web.get(query["callback_url"], {"code": "c"})
    assert page.status_code == 502
    assert 'role="alert"' in page.content.decode()


def test_a_sign_in_at_a_silent_host_ends(
    router_host: Provider, exchange: respx.Route, monkeypatch: pytest.MonkeyPatch
):
    async def be_silent(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr("llm.keys.key_sign_in.MAX_SECONDS", 0.05)
    exchange.mock(side_effect=be_silent)
    web = signed_in(a_user("ada"))
    query = begin_sign_in(web, router_host)
    assert web.get(query["callback_url"], {"code": "c"}).status_code == 502


def test_an_endless_answer_to_a_sign_in_is_not_read_to_its_end(
    router_host: Provider, exchange: respx.Route
):
    read = []

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(1000):
            read.append(number)
            yield b" " * 16_384

    exchange.mock(side_effect=[httpx.Response(200, content=pieces())])
    web = signed_in(a_user("ada"))
    query = begin_sign_in(web, router_host)
    assert web.get(query["callback_url"], {"code": "c"}).status_code == 502
    assert len(read) < 10
