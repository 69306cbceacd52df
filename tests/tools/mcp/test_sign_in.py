"""Staff sign in at a server through the admin: the SDK's own servers, over loopback."""

from __future__ import annotations

import html
from base64 import b64encode
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx
import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl

from tests.tools.mcp.oauth_server import SignInServer, sign_in_server
from tools.mcp.connection_check import check_connection, list_server
from tools.mcp.oauth.auth import build_revocations
from tools.models.mcp_pending_sign_in import McpSignIn
from tools.models.mcp_server import McpServer

#: Sessions write from threads of their own.
pytestmark = pytest.mark.django_db(transaction=True)
BACK = reverse("admin:tools_mcpserver_signed_in")


@pytest.fixture
def server() -> Iterator[SignInServer]:
    with sign_in_server() as server:
        yield server


@pytest.fixture
def row(server: SignInServer) -> McpServer:
    return row_for(server)


def row_for(server: SignInServer, **values: Any) -> McpServer:
    form_data = {"name": "signed", "url": server.url, "networks": "127.0.0.0/8"}
    row = McpServer(**{**form_data, "oauth_flow": "person", **values})
    row.full_clean()
    row.save()
    return row


def row_for_known(server: SignInServer) -> McpServer:
    """By a client that staff entered."""
    server.accounts.clients["ours"] = OAuthClientInformationFull(
        client_id="ours",
        client_secret="hush-hush-hush-hush",
        token_endpoint_auth_method="client_secret_basic",
        redirect_uris=[AnyUrl(f"http://testserver{BACK}")],
        scope="read",
    )
    known = {"oauth_client_id": "ours", "oauth_secret": "hush-hush-hush-hush"}
    return row_for(server, **known, oauth_issuer=server.origin)


def page(row: McpServer) -> str:
    return reverse("admin:tools_mcpserver_sign_in", args=[row.pk])


def text_of(response: Any) -> str:
    return html.unescape(response.content.decode())


def sent_to(client: Client, row: McpServer) -> str:
    """The page of the authorization server."""
    return str(client.post(page(row)).context["page"])


def come_back(url: str, kind: str = "Agree") -> str:
    """The query with which the browser returns after a consent or a refusal."""
    with httpx.Client(trust_env=False) as browser:
        agree = urljoin(url, browser.get(url).headers["location"])
        back: str = browser.get(f"{agree}&kind={kind}").headers["location"]
    assert urlsplit(back).path == BACK
    return back


def sign_in(client: Client, row: McpServer, kind: str = "Agree") -> str:
    back = come_back(sent_to(client, row), kind)
    page_text = text_of(client.get(back, follow=True))
    row.refresh_from_db()
    return page_text


def expire(row: McpServer) -> None:
    store = row.oauth().store
    async_to_sync(store.save)({**async_to_sync(store.load)(), "expires_at": 1.0})


# Signing in


@pytest.mark.smoke
def test_after_a_sign_in_the_tools_are_listed(
    admin_client: Client, row: McpServer, server: SignInServer
):
    assert "must sign in" in check_connection(row)
    page_text = sign_in(admin_client, row)
    assert "Signed in at signed." in page_text
    assert "Say who is signed in." in page_text
    assert row.signed_in_by == User.objects.get()
    assert (row.error, check_connection(row)) == ("", "")
    page_text = text_of(admin_client.get(page(row)))
    assert "Signed in by admin" in page_text
    assert "renewed automatically" in page_text


def test_the_request_is_bound_to_a_verifier_a_resource_and_a_state(
    admin_client: Client, row: McpServer, server: SignInServer
):
    query = parse_qs(urlsplit(sent_to(admin_client, row)).query)
    assert query["code_challenge_method"] == ["S256"]
    assert query["resource"] == [server.url]
    assert query["redirect_uri"] == [f"http://testserver{BACK}"]
    assert len(query["state"][0]) > 30


def test_the_address_to_come_back_to_is_the_public_one(
    admin_client: Client, row: McpServer, settings: Any
):
    settings.PUBLIC_URL = "https://chat.example/"
    query = parse_qs(urlsplit(sent_to(admin_client, row)).query)
    assert query["redirect_uri"] == [f"https://chat.example{BACK}"]


def test_a_client_that_is_known_already_is_not_registered(
    admin_client: Client, row: McpServer, server: SignInServer
):
    sign_in(admin_client, row)
    [client_id] = server.accounts.clients
    sign_in(admin_client, row)
    assert set(server.accounts.clients) == {client_id}


def test_a_client_that_staff_entered_is_used(
    admin_client: Client, server: SignInServer
):
    row = row_for_known(server)
    assert "Signed in at signed." in sign_in(admin_client, row)
    expire(row)
    assert check_connection(row) == ""
    assert set(server.accounts.clients) == {"ours"}


def test_a_secret_is_sent_to_no_other_issuer(
    admin_client: Client, server: SignInServer
):
    known = {"oauth_client_id": "ours", "oauth_secret": "hush-hush-hush-hush"}
    row = row_for(server, **known, oauth_issuer="https://login.host")
    page_text = text_of(admin_client.post(page(row)))
    assert "is not the issuer that is set here" in page_text
    assert not server.accounts.clients


def test_the_scopes_set_by_staff_are_requested(
    admin_client: Client, server: SignInServer
):
    row = row_for(server, oauth_scope="read write")
    assert "scope=read+write" in sent_to(admin_client, row)


def test_nothing_of_it_can_be_read(admin_client: Client, row: McpServer, caplog: Any):
    sign_in(admin_client, row)
    stored = McpServer.objects.filter(pk=row.pk).values().get()
    tokens = async_to_sync(row.oauth().store.load)()["tokens"].values()
    shown = text_of(admin_client.get(page(row))) + caplog.text
    secrets = [each for each in tokens if len(str(each)) > 20]
    assert len(secrets) == 2
    assert not any(each in f"{stored}{shown}{row.spec!r}" for each in secrets)


# Tokens


def test_a_token_that_ran_out_is_renewed_once_for_all(
    admin_client: Client, row: McpServer, server: SignInServer
):
    sign_in(admin_client, row)
    expire(row)
    assert check_connection(row) == ""
    assert server.accounts.renewals == 1
    row.refresh_from_db()
    assert row.signed_in_until > timezone.now()
    assert check_connection(row) == ""
    assert server.accounts.renewals == 1


def test_a_token_that_the_server_takes_no_more_is_renewed(
    admin_client: Client, row: McpServer, server: SignInServer
):
    sign_in(admin_client, row)
    server.accounts.access.clear()
    assert check_connection(row) == ""
    assert server.accounts.renewals == 1


def test_an_outage_of_the_authorization_server_does_not_end_the_sign_in(
    admin_client: Client,
    row: McpServer,
    server: SignInServer,
    monkeypatch: pytest.MonkeyPatch,
):
    async def fail(*_: Any) -> None:
        raise RuntimeError("no database")

    sign_in(admin_client, row)
    expire(row)
    with monkeypatch.context() as outage:
        outage.setattr(server.accounts, "exchange_refresh_token", fail)
        assert "could not be renewed: its authorization" in check_connection(row)
    assert check_connection(row) == ""
    assert server.accounts.renewals == 1


def test_while_one_process_renews_a_token_others_wait_for_it(
    admin_client: Client, row: McpServer
):
    sign_in(admin_client, row)
    claim = async_to_sync(row.oauth().store.claim)
    assert claim()
    assert not claim()
    McpServer.objects.update(renewing_until=timezone.now() - timedelta(seconds=1))
    assert claim()  # its holder is considered dead


def test_without_refresh_tokens_the_page_shows_when_to_sign_in_again(
    admin_client: Client, row: McpServer, server: SignInServer
):
    server.accounts.gives_refresh_tokens = False
    sign_in(admin_client, row)
    assert "The sign-in is valid until" in text_of(admin_client.get(page(row)))
    McpServer.objects.update(signed_in_until=timezone.now() - timedelta(hours=1))
    assert "The sign-in expired" in text_of(admin_client.get(page(row)))
    server.accounts.access.clear()
    assert "must sign in" in check_connection(row)


def test_signing_out_forgets_the_tokens_everywhere(
    admin_client: Client, row: McpServer
):
    sign_in(admin_client, row)
    before = row.spec
    page_text = text_of(admin_client.post(page(row), {"_sign_out": "1"}, follow=True))
    assert "Nobody is signed in." in page_text
    row.refresh_from_db()
    assert row.spec != before  # so that sessions with the tokens are used no more
    assert "must sign in" in check_connection(row)
    assert async_to_sync(before.oauth.store.load)() == {}


def test_signing_out_revokes_the_tokens_where_they_come_from(admin_client: Client):
    with sign_in_server(revokes=True) as server:
        row = row_for(server)
        sign_in(admin_client, row)
        assert server.accounts.access
        assert server.accounts.refresh
        page_text = text_of(
            admin_client.post(page(row), {"_sign_out": "1"}, follow=True)
        )
    assert "deleted here and revoked at the server." in page_text
    assert not server.accounts.access
    assert not server.accounts.refresh


def test_a_client_that_staff_entered_shows_its_secret_to_revoke(admin_client: Client):
    """What it would send: the SDK's server takes no secret from a header here."""
    with sign_in_server(revokes=True) as server:
        row = row_for_known(server)
        sign_in(admin_client, row)
    requests = async_to_sync(build_revocations)(row.spec)
    assert {str(request.url) for request in requests} == {f"{server.origin}/revoke"}
    secret = b64encode(b"ours:hush-hush-hush-hush").decode()
    assert {request.headers["authorization"] for request in requests} == {
        f"Basic {secret}"
    }
    forms = [parse_qs(request.content.decode()) for request in requests]
    assert [form["token"] for form in forms] == [
        [*server.accounts.refresh],
        [*server.accounts.access],
    ]
    assert [form["client_id"] for form in forms] == [["ours"], ["ours"]]


def test_another_issuer_is_shown_neither_secret_nor_tokens(admin_client: Client):
    with sign_in_server(revokes=True) as server:
        row = row_for(server)
        sign_in(admin_client, row)
        McpServer.objects.update(oauth_issuer="https://login.elsewhere.example")
        page_text = text_of(
            admin_client.post(page(row), {"_sign_out": "1"}, follow=True)
        )
    assert (
        "The server did not revoke them: the address of this MCP server changed"
        in page_text
    )
    assert server.accounts.access


@pytest.mark.slow
@pytest.mark.smoke
def test_signing_out_works_even_if_revoking_fails(
    admin_client: Client,
):
    with sign_in_server(revokes=True) as server:
        row = row_for(server)
        sign_in(admin_client, row)
    page_text = text_of(admin_client.post(page(row), {"_sign_out": "1"}, follow=True))
    assert (
        "Signed out: the tokens are deleted here. The server did not revoke them:"
        in page_text
    )
    row.refresh_from_db()
    assert not row.is_signed_in


# Errors


def test_a_refusal_is_shown(admin_client: Client, row: McpServer):
    page_text = sign_in(admin_client, row, "Refuse")
    assert "You are not signed in: access was denied" in page_text
    assert not row.is_signed_in


def test_a_sign_in_completes_once_in_time_for_the_same_user(
    admin_client: Client, row: McpServer
):
    back = come_back(sent_to(admin_client, row))
    other = Client()
    other.force_login(User.objects.create_superuser("eve"))
    unknown = "there is no such sign-in in this browser"
    assert unknown in text_of(other.get(back, follow=True))
    assert unknown in text_of(admin_client.get(f"{BACK}?state=x&code=y", follow=True))
    assert "Signed in at" in text_of(admin_client.get(back, follow=True))
    assert unknown in text_of(admin_client.get(back, follow=True))
    back = come_back(sent_to(admin_client, row))
    McpSignIn.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert "took too long" in text_of(admin_client.get(back, follow=True))


def test_tokens_of_a_users_own_sign_in_do_not_become_everybodys(
    admin_client: Client, server: SignInServer
):
    row = row_for(server, oauth_flow="user")
    back = come_back(sent_to(admin_client, row))
    McpServer.objects.update(oauth_flow="person")  # as another member of staff does
    page_text = text_of(admin_client.get(back, follow=True))
    assert "changed meanwhile who signs in" in page_text
    row.refresh_from_db()
    assert row.signed_in_by is None
    assert not server.accounts.access


def test_a_code_that_is_no_good_brings_no_token(admin_client: Client, row: McpServer):
    back = come_back(sent_to(admin_client, row))
    page_text = text_of(admin_client.get(f"{back}x", follow=True))
    assert "You are not signed in" in page_text
    row.refresh_from_db()
    assert not row.is_signed_in


def test_signing_in_requires_the_permission_to_change_servers(row: McpServer):
    client = Client()
    client.force_login(User.objects.create_user("bob", is_staff=True))
    assert client.post(page(row)).status_code == 403
    assert client.get(BACK).status_code == 403
    assert "/login/" in Client().get(BACK).headers["location"]


def test_a_sign_in_that_fails_leaves_the_one_before(
    admin_client: Client, row: McpServer
):
    sign_in(admin_client, row)
    sign_in(admin_client, row, "Refuse")
    assert check_connection(row) == ""


def test_a_server_without_client_registration_is_reported(admin_client: Client):
    with sign_in_server(registers=False) as server:
        page_text = text_of(admin_client.post(page(row_for(server))))
    assert "not register clients automatically; enter the id" in page_text


def test_an_unreachable_server_is_reported(admin_client: Client):
    row = row_for(SignInServer())
    assert "cannot be reached" in text_of(admin_client.post(page(row)))


def test_addresses_that_a_server_names_are_checked(
    admin_client: Client, row: McpServer
):
    McpServer.objects.update(networks="10.0.0.0/8")
    page_text = text_of(admin_client.post(page(row)))
    assert "private or reserved network" in page_text


def test_a_client_is_not_sent_elsewhere_by_a_server_that_changed_its_mind(
    admin_client: Client, row: McpServer
):
    back = come_back(sent_to(admin_client, row))
    with sign_in_server() as other:
        begun = McpSignIn.objects.get().secrets.reveal()
        McpServer.objects.update(url=other.url)
        sign_in = McpSignIn.objects.get()
        sign_in.secrets = begun  # as if it were the same server that names another
        sign_in.save()
        page_text = text_of(admin_client.get(back, follow=True))
    assert "uses a different authorization server" in page_text
    row.refresh_from_db()
    assert not row.is_signed_in


def test_a_sign_in_is_not_finished_at_another_address(
    admin_client: Client, row: McpServer
):
    back = come_back(sent_to(admin_client, row))
    with sign_in_server() as other:
        McpServer.objects.update(url=other.url)
        page_text = text_of(admin_client.get(back, follow=True))
        assert "there is no such sign-in in this browser" in page_text
        assert not other.accounts.access
    row.refresh_from_db()
    assert not row.is_signed_in


def test_all_that_is_seen_of_a_signed_in_server_is_its_own(
    admin_client: Client, row: McpServer
):
    sign_in(admin_client, row)
    found, about, _seconds = list_server(row.spec)
    assert [each.name for each in found] == ["whoami"]
    assert about["name"] == "signed"


# A registered client that the authorization server has forgotten


def test_a_users_sign_in_registers_a_client_once_after_the_shared_one_was_forgotten(
    admin_client: Client, server: SignInServer
):
    row, user = row_for(server, oauth_flow="user"), User.objects.get()
    sign_in(admin_client, row)
    [forgotten] = server.accounts.clients
    server.accounts.clients.clear()
    expire_own(row)
    assert "sign in at the tool's server first" in check_connection(row, user)
    row.refresh_from_db()
    assert row.load_shared_client() == {}
    sign_in(admin_client, row)
    [registered] = server.accounts.clients
    assert registered != forgotten
    assert row.load_shared_client()["client_id"] == registered
    # A late refusal of the old one does not forget the new one.
    row.forget_client(forgotten)
    sign_in(admin_client, row)
    assert [*server.accounts.clients] == [registered]


def test_a_renewal_by_a_forgotten_client_ends_the_sign_in_of_staff(
    admin_client: Client, row: McpServer, server: SignInServer
):
    sign_in(admin_client, row)
    server.accounts.clients.clear()
    expire(row)
    assert "must sign in" in check_connection(row)
    row.refresh_from_db()
    assert not row.is_signed_in
    assert not row.sign_in_renews
    assert "Signed in at signed." in sign_in(admin_client, row)
    assert len(server.accounts.clients) == 1


@pytest.mark.parametrize("flow", ["user", "person"])
def test_a_client_that_is_unknown_at_the_end_of_a_sign_in_is_forgotten(
    flow: str, admin_client: Client, server: SignInServer
):
    row = row_for(server, oauth_flow=flow)
    sign_in(admin_client, row)
    back = come_back(sent_to(admin_client, row))
    server.accounts.clients.clear()
    page_text = text_of(admin_client.get(back, follow=True))
    assert "issued no token" in page_text
    assert "Signed in at signed." in sign_in(admin_client, row)
    assert len(server.accounts.clients) == 1


def expire_own(row: McpServer) -> None:
    store = row.find_sign_in(User.objects.get()).token_store()
    async_to_sync(store.save)({**async_to_sync(store.load)(), "expires_at": 1.0})
