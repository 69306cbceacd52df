"""Azure OpenAI: addresses as people copy them, both surfaces, both ways to sign in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
import respx
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from llm import router
from llm.errors import BadRequest
from llm.http import client
from llm.http.request import url_of
from llm.keys.token_credentials import AZURE_SCOPE, EntraCredentials
from llm.models import Provider
from llm.provider import Endpoint
from llm.providers.azure_openai import PROVIDER
from llm.wire.items import user_message
from llm.wire.request import Request

RESOURCE = "https://me.openai.azure.com"
VERSION = "2024-10-21"
REQUEST = Request(model="gpt-5", items=[user_message("Hello")])


def endpoint(base_url: str = RESOURCE, codec: str = "", **options: str) -> Endpoint:
    return PROVIDER.connect(
        Endpoint(
            provider=PROVIDER,
            codec=PROVIDER.codec(codec, options),
            api_key="the-key",
            base_url=base_url,
            options=options,
        )
    )


# Addresses


@pytest.mark.parametrize(
    "text",
    [
        "https://me.openai.azure.com",
        "https://me.openai.azure.com/",
        "me.openai.azure.com",
        "https://me.openai.azure.com/openai",
        "https://me.openai.azure.com/openai/",
        "https://me.openai.azure.com/openai/v1",
        "https://me.openai.azure.com/openai/v1/",
        "https://me.openai.azure.com/openai/v1/responses",
        "https://me.openai.azure.com/openai/v1/chat/completions",
        "https://me.openai.azure.com/api/projects/mine",
        "https://me.openai.azure.com/api/projects/mine/openai/v1/",
    ],
)
def test_every_usual_form_of_an_address_is_the_same_address(text: str):
    assert PROVIDER.tidy(text, {}) == (f"{RESOURCE}/openai/v1", {})
    assert url_of(endpoint(text), REQUEST) == f"{RESOURCE}/openai/v1/responses"


@pytest.mark.parametrize(
    ("text", "address", "options"),
    [
        (
            f"{RESOURCE}/openai/deployments/my-gpt",
            f"{RESOURCE}/openai/v1",
            {"deployment": "my-gpt"},
        ),
        (
            f"{RESOURCE}/openai/deployments/openai/chat/completions"
            f"?api-version={VERSION}",
            f"{RESOURCE}/openai",
            {"deployment": "openai", "api_version": VERSION},
        ),
        (
            f"{RESOURCE}/openai/responses?api-version=2025-04-01-preview",
            f"{RESOURCE}/openai",
            {"api_version": "2025-04-01-preview"},
        ),
        (
            "https://gate.azure-api.net/team/openai/deployments/x",
            "https://gate.azure-api.net/team/openai/v1",
            {"deployment": "x"},
        ),
        (
            "https://proxy.example/azure/v1",
            "https://proxy.example/azure/v1",
            {},
        ),
        (
            "https://me.services.ai.azure.com:8443",
            "https://me.services.ai.azure.com:8443/openai/v1",
            {},
        ),
    ],
)
def test_other_parts_of_an_address_become_options(
    text: str, address: str, options: dict[str, str]
):
    assert PROVIDER.tidy(text, {}) == (address, options)
    assert PROVIDER.tidy(address, options) == (address, options)


def test_an_option_that_is_written_out_wins_over_the_address():
    text = f"{RESOURCE}/openai/deployments/a?api-version={VERSION}"
    _, options = PROVIDER.tidy(text, {"deployment": "b", "api_version": "v1"})
    assert options == {"deployment": "b", "api_version": "v1"}


# Surfaces


def test_the_usual_surface_is_v1_with_the_deployment_as_its_model():
    usual = endpoint()
    assert url_of(usual, REQUEST) == f"{RESOURCE}/openai/v1/responses"
    assert usual.codec.encode(REQUEST)["model"] == "gpt-5"
    chat = endpoint(codec="openai_chat")
    assert url_of(chat, REQUEST) == f"{RESOURCE}/openai/v1/chat/completions"
    assert chat.codec.encode(REQUEST)["model"] == "gpt-5"


def test_a_dated_version_leads_to_the_deployments_own_path():
    classic = endpoint(api_version=VERSION)
    assert url_of(classic, REQUEST) == (
        f"{RESOURCE}/openai/deployments/gpt-5/chat/completions?api-version={VERSION}"
    )
    assert "model" not in classic.codec.encode(REQUEST)


def test_a_dated_version_receives_no_developer_message():
    request = replace(REQUEST, instructions="Be brief.")
    messages = endpoint(api_version=VERSION).codec.encode(request)["messages"]
    assert messages[0]["role"] == "system"


def test_a_dated_version_has_responses_where_staff_say_so():
    classic = endpoint(codec="openai_responses", api_version="2025-04-01-preview")
    assert url_of(classic, REQUEST) == (
        f"{RESOURCE}/openai/responses?api-version=2025-04-01-preview"
    )
    assert classic.codec.encode(REQUEST)["model"] == "gpt-5"


def test_previews_of_v1_are_requested_in_the_query():
    assert url_of(endpoint(api_version="v1"), REQUEST).endswith("/v1/responses")
    preview = url_of(endpoint(api_version="preview"), REQUEST)
    assert preview == f"{RESOURCE}/openai/v1/responses?api-version=preview"


@pytest.mark.parametrize("codec", ["openai_chat", "openai_responses"])
def test_a_deployment_may_have_another_name_than_its_model(codec: str):
    named = endpoint(codec=codec, deployment="team-a")
    assert named.codec.encode(REQUEST)["model"] == "team-a"
    assert named.issuer("gpt-5")["model"] == "gpt-5"


def test_the_deployment_name_is_escaped_in_the_path():
    request = Request(model="a/b c", items=REQUEST.items)
    assert "/deployments/a%2Fb%20c/" in url_of(endpoint(api_version=VERSION), request)
    named = endpoint(api_version=VERSION, deployment="team-a")
    assert "/deployments/team-a/" in url_of(named, request)


def test_a_model_is_known_to_reason_by_its_own_name():
    """Which is why a deployment's name does not replace it."""
    body = endpoint(deployment="team-a").codec.encode(REQUEST)
    assert body["include"] == ["reasoning.encrypted_content"]


# Signing in


def test_a_key_is_shown_in_a_header_of_its_own():
    assert PROVIDER.auth("the-key") == {"api-key": "the-key"}
    assert endpoint().credentials is None


def test_a_client_of_entra_id_has_its_secret_in_the_keys_place():
    account = endpoint(tenant="contoso.com", client_id="app-1")
    assert account.credentials == EntraCredentials(
        tenant="contoso.com", client_id="app-1", secret="the-key", scope=AZURE_SCOPE
    )
    assert "the-key" not in repr(account)


def test_a_sovereign_cloud_is_an_option():
    account = endpoint(
        tenant="t",
        client_id="c",
        authority="https://login.microsoftonline.us",
        scope="https://cognitiveservices.azure.us/.default",
    )
    assert isinstance(account.credentials, EntraCredentials)
    assert account.credentials.authority == "https://login.microsoftonline.us"
    assert account.credentials.scope == "https://cognitiveservices.azure.us/.default"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tenant": "t"}, "tenant must come with client_id."),
        ({"client_id": "c"}, "client_id must come with tenant."),
    ],
)
def test_half_a_client_is_none(options: dict[str, str], message: str):
    with pytest.raises(BadRequest) as caught:
        endpoint(**options)
    assert str(caught.value) == message


# Rows and their form


def row(**fields: Any) -> Provider:
    return Provider(name="Azure", kind="azure_openai", **fields)


@pytest.mark.django_db
def test_a_row_stores_the_address_in_one_form():
    provider = row(
        base_url=f"{RESOURCE}/openai/deployments/x/chat/completions"
        f"?api-version={VERSION}"
    )
    provider.full_clean()
    assert provider.base_url == f"{RESOURCE}/openai"
    assert provider.options == {"deployment": "x", "api_version": VERSION}
    provider.full_clean()
    assert provider.base_url == f"{RESOURCE}/openai"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"api-version": VERSION},
            "Azure OpenAI has no option 'api-version'; use headers, api_version,"
            " deployment, tenant, client_id, authority, scope.",
        ),
        (
            {"api_version": "21.10.2024"},
            '\'api_version\' must be a version such as "2024-10-21", or "preview".',
        ),
        (
            {"api_version": 2024},
            '\'api_version\' must be a version such as "2024-10-21", or "preview".',
        ),
        (
            {"deployment": "a/b"},
            "'deployment' must be the name of a deployment, if deployments are not"
            " named like models.",
        ),
        ({"tenant": "contoso"}, "tenant must come with client_id."),
        (
            {"tenant": "t", "client_id": "c", "authority": "login.example"},
            "'authority' must be the address of Entra ID, such as"
            " https://login.microsoftonline.us.",
        ),
    ],
)
def test_a_row_whose_options_make_no_sense_is_refused(
    options: dict[str, Any], message: str
):
    with pytest.raises(ValidationError) as caught:
        row(base_url=RESOURCE, options=options).full_clean()
    assert caught.value.message_dict == {"options": [message]}


@pytest.mark.django_db
def test_a_row_needs_an_address_and_one_that_is_none_is_refused():
    for base_url in ("", "http://[", "ftp://me"):
        with pytest.raises(ValidationError) as caught:
            row(base_url=base_url).full_clean()
        assert "base_url" in caught.value.message_dict


def test_other_kinds_know_no_options_but_headers():
    with pytest.raises(ValidationError) as caught:
        Provider(name="G", kind="groq", options={"api_version": "x"}).clean()
    assert caught.value.messages == ["Groq has no option 'api_version'; use headers."]


@pytest.mark.django_db
def test_the_admin_lists_valid_options_and_explains_invalid_ones(
    admin_client: Client,
):
    url = reverse("admin:llm_provider_add")
    assert "client_id (the application" in admin_client.get(url).content.decode()
    form = {
        "name": "Azure",
        "kind": "azure_openai",
        "base_url": RESOURCE,
        "options": json.dumps({"tenant": "contoso"}),
        "keys-TOTAL_FORMS": 0,
        "keys-INITIAL_FORMS": 0,
        "models-TOTAL_FORMS": 0,
        "models-INITIAL_FORMS": 0,
    }
    page = admin_client.post(url, form).content.decode()
    assert "tenant must come with client_id." in page
    form["options"] = json.dumps({"tenant": "contoso", "client_id": "app-1"})
    assert admin_client.post(url, form).status_code == 302
    assert Provider.objects.get().base_url == f"{RESOURCE}/openai/v1"


@pytest.mark.django_db
def test_a_service_accounts_json_is_stored_as_one_word():
    provider = Provider.objects.create(name="Vertex", kind="openai_compatible")
    key = provider.keys.model(
        provider=provider, secret='{"type": "service_account",\n "n": "a b"}'
    )
    key.full_clean()
    assert key.secret.reveal() == '{"type":"service_account","n":"a\\u0020b"}'


# The whole way


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()


@pytest.fixture
def web() -> Iterator[respx.MockRouter]:
    with respx.mock(using="parley") as mocked:
        yield mocked


CHAT = (
    b'data: {"choices":[],"id":"","model":"","object":"","created":0,'
    b'"prompt_filter_results":[]}\n\n'
    b'data: {"id":"c1","model":"gpt-5","choices":[{"index":0,"delta":'
    b'{"content":"OK"},"finish_reason":null}]}\n\n'
    b'data: {"id":"c1","model":"gpt-5","choices":[{"index":0,"delta":{},'
    b'"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


@pytest.mark.django_db
def test_a_route_leads_to_the_row_with_its_client():
    provider = Provider.objects.create(
        name="Azure",
        kind="azure_openai",
        base_url=RESOURCE,
        options={"api_version": VERSION, "tenant": "t", "client_id": "c"},
    )
    provider.keys.create(secret="client-secret")
    found = router.route_of(provider.models.create(name="gpt-5")).endpoint
    assert url_of(found, REQUEST) == (
        f"{RESOURCE}/openai/deployments/gpt-5/chat/completions?api-version={VERSION}"
    )
    assert found.credentials == EntraCredentials(
        tenant="t", client_id="c", secret="client-secret"
    )


async def test_a_dated_deployment_is_called_with_its_key(web: respx.MockRouter):
    route = web.post(
        f"{RESOURCE}/openai/deployments/gpt-5/chat/completions",
        params={"api-version": VERSION},
    ).respond(200, content=CHAT)
    stream = client.stream(endpoint(api_version=VERSION), REQUEST)
    async with aclosing(stream) as batches:
        _ = [batch async for batch in batches]
    sent = route.calls.last.request
    assert sent.headers["api-key"] == "the-key"
    assert "Authorization" not in sent.headers
    assert json.loads(sent.content)["messages"][-1]["content"] == "Hello"
