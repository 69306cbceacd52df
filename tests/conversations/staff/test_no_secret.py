"""Secrets that are planted in every row that holds one are on no page of the admin, in
no answer of the API and in no log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.test import Client
from django.urls import NoReverseMatch, URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone

from conversations.models import AccessToken, Conversation, WebhookEndpoint
from conversations.models.preset import ContextSource
from llm.models import ApiKey, ModelCall, OwnKey, Provider
from tests.conversations.scene import a_finished_turn, a_model, a_user, bearer
from tools.models import HttpTool, McpServer, Tool

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

MARK = "pl4nted"  # in each secret, and nowhere else
WIDGETS = "/jsi18n/"


def secret(name: str) -> str:
    return f"sk-{name}-{MARK}-0123456789-{MARK}-wxyz"


@pytest.fixture
def planted() -> Conversation:
    """Rows with a secret in each column that holds one."""
    owner = a_user("ada")
    model = a_model()
    provider = model.provider
    provider.set_secret_headers({"X-Gateway-Token": secret("header")})
    provider.save()
    key = provider.keys.create(label="shared", secret=secret("key"))
    OwnKey.objects.create(
        provider=provider, owner=owner, label="own: ada", secret=secret("own")
    )
    ApiKey.objects.filter(pk=key.pk).update(last_error="refused")
    tool = Tool.objects.create(name="ask_host", kind=Tool.Kind.HTTP, description="Ask.")
    http = HttpTool(tool=tool, url="https://host/")
    http.set_secret_headers({"Authorization": f"Bearer {secret('tool')}"})
    http.save()
    server = McpServer(
        name="mail",
        url="https://host/mcp",
        oauth_flow="person",
        oauth_issuer="https://login.host",
        oauth_secret=secret("client"),
    )
    server.set_secret_headers({"X-Token": secret("mcp")})
    server.save()
    server.save_sign_in({"tokens": {"access_token": secret("access")}}, owner)
    server.record_error("The tool's server denied access (HTTP 401).")
    source = ContextSource(name="wiki", title="Wiki", kind="http", url="https://wiki/")
    source.set_secret_headers({"X-Token": secret("source")})
    source.save()
    AccessToken.issue(owner, "script", scopes=["chat"])
    WebhookEndpoint.objects.create(
        owner=owner, name="hook", url="https://host/", secret=secret("webhook")
    )
    conversation = Conversation.objects.create(owner=owner, language_model=model)
    turn = a_finished_turn(conversation)
    ModelCall.objects.create(
        model=model,
        key=key,
        provider_name=provider.name,
        status="failed",
        turn_id=turn.pk,
        error_code="E_LLM_INVALID_KEY",
    )
    model.probes.create(finished_at=timezone.now())
    return conversation


def pages_of_admin() -> Iterator[str]:
    """The list of each model, its form for a new row, and every page of every row."""
    for model in filter(admin.site.is_registered, apps.get_models()):
        urls = admin.site.get_model_admin(model).get_urls()
        names = [each.name for each in urls if each.name]
        rows = list(model._default_manager.all()[:3])
        for name in names:
            yield from _addresses(f"admin:{name}", rows)
    yield reverse("admin:index")


def _addresses(name: str, rows: list[Any]) -> Iterator[str]:
    for arguments in ([], *([row.pk] for row in rows)):
        try:
            yield reverse(name, args=arguments)
        except NoReverseMatch:
            continue


def lists_of_api() -> Iterator[str]:
    """Every address under /api/ and /v1/ that needs no id."""
    for each in _patterns(get_resolver().url_patterns, ""):
        if each.startswith(("api/", "v1/")) and "<" not in each:
            yield f"/{each}"


def _patterns(patterns: list[Any], prefix: str) -> Iterator[str]:
    for each in patterns:
        address = prefix + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from _patterns(each.url_patterns, address)
        elif isinstance(each, URLPattern) and "^" not in address:
            yield address


@pytest.mark.slow
@pytest.mark.smoke
def test_no_page_of_the_admin_shows_a_planted_secret(
    admin_client: Client, planted: Conversation, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("DEBUG")
    pages = sorted(set(pages_of_admin()))
    assert len(pages) > 100
    shown = 0
    for page in pages:
        answer = admin_client.get(page)
        assert answer.status_code < 500, page
        shown += answer.status_code == 200
        content = b"".join(answer) if answer.streaming else answer.content
        assert MARK.encode() not in content, page
        assert MARK not in str(dict(answer.headers)), page
    assert shown > 80
    assert MARK not in caplog.text


@pytest.mark.slow
@pytest.mark.smoke
def test_no_list_of_the_api_shows_a_planted_secret(
    admin_client: Client, planted: Conversation, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("DEBUG")
    headers = bearer(planted.owner)
    addresses = sorted(set(lists_of_api()))
    assert len(addresses) > 10
    for address in addresses:
        for client, options in ((admin_client, {}), (Client(), {"headers": headers})):
            answer = client.get(address, **options)
            assert answer.status_code < 500, address
            content = b"".join(answer) if answer.streaming else answer.content
            assert MARK.encode() not in content, address
    assert MARK not in caplog.text


def test_the_exported_configuration_has_no_planted_secret(
    admin_client: Client, planted: Conversation
):
    answers = [
        admin_client.get(reverse("admin:config")),
        admin_client.get(reverse("admin:config"), {"download": "1"}),
        admin_client.post(reverse("admin:config"), {"_export": "1"}),
    ]
    assert answers[0].status_code == 200
    for answer in answers:
        assert MARK not in answer.text


def test_the_planted_secrets_are_there(planted: Conversation):
    """Otherwise the tests above would look for nothing."""
    provider = Provider.objects.get()
    assert MARK in ApiKey.objects.get().secret.reveal()
    assert MARK in str(provider.get_secret_headers())
    assert MARK in str(HttpTool.objects.get().get_secret_headers())
    server = McpServer.objects.get()
    assert MARK in server.sign_in.reveal()
    assert MARK in server.oauth_secret.reveal()
    assert MARK in str(ContextSource.objects.get().get_secret_headers())
