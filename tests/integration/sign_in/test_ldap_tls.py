"""Connections to a directory are encrypted, and its certificate is checked."""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import expect

from project.accounts.models import IdentityProvider
from tests.conftest import StartServer
from tests.integration.browser.test_chat import browser
from tests.integration.sign_in.authority import Authority, ServerFiles
from tests.integration.sign_in.slapd import (
    PEOPLE,
    READER,
    READER_PASSWORD,
    Directory,
)

__all__ = ["browser"]

pytestmark = [
    pytest.mark.slow,
    # ldap3 leaves a socket whose certificate it refused to the garbage collection.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

STORE = """
import json
from project.accounts.models import IdentityProvider
row = IdentityProvider(**json.loads({fields!r}))
row.full_clean()
row.save()
"""
Begin = Callable[[ServerFiles], Directory]


@pytest.fixture(autouse=True)
def _sockets_of_ldap3() -> Iterator[None]:
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """Which this process trusts, and no other."""
    authority = Authority(tmp_path, "company")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    return authority


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    with ExitStack() as running:

        def start(files: ServerFiles) -> Directory:
            folder = tmp_path / "slapd"
            folder.mkdir()
            directory = Directory(folder, files)
            running.enter_context(directory.run())
            directory.add_person("ada", "ada-there", mail="ada@acme.org")
            return directory

        yield start


def address_of(directory: Directory, scheme: str, host: str = "localhost") -> str:
    port = directory.tls_port if scheme == "ldaps" else directory.port
    return f"{scheme}://{host}:{port}"


def fields_of(url: str) -> dict[str, Any]:
    """Of a row that leaves StartTLS at its default."""
    return {
        "kind": "ldap",
        "slug": "acme",
        "label": "Acme",
        "server_url": url,
        "client_id": READER,
        "secret": READER_PASSWORD,
        "search_base": PEOPLE,
        "allow_private_network": True,
        "new_accounts": "everybody",
        "email_is_trusted": True,
    }


def sign_in(url: str) -> Any:
    row = IdentityProvider(**fields_of(url))
    row.full_clean()
    row.save()
    form = {"username": "ada", "password": "ada-there"}
    return Client().post("/login/", form)


SCHEMES = ["ldap", "ldaps"]  # StartTLS, and TLS from the start


@pytest.mark.django_db
@pytest.mark.server
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_person_comes_in_over_tls(
    authority: Authority, begin: Begin, host: str, scheme: str
):
    directory = begin(authority.sign(host))
    assert sign_in(address_of(directory, scheme, host))["Location"] == "/"
    assert User.objects.get().email == "ada@acme.org"


@pytest.mark.django_db
@pytest.mark.server
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("host", "days", "is_known", "why"),
    [
        ("elsewhere.test", 1, True, "certificate is not valid for 'localhost'"),
        ("localhost", 1, False, "unable to get local issuer certificate"),
        ("localhost", -1, True, "certificate has expired"),
    ],
)
def test_a_wrong_certificate_is_refused_and_the_log_has_the_reason(
    authority: Authority,
    begin: Begin,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    scheme: str,
    host: str,
    days: int,
    is_known: bool,
    why: str,
):
    signer = authority if is_known else Authority(tmp_path, "stranger")
    directory = begin(signer.sign(host, days))
    answer = sign_in(address_of(directory, scheme))
    assert answer.status_code == 200
    assert "Please enter a correct username and password" in answer.text
    assert not User.objects.exists()
    [line] = [each for each in caplog.messages if "directory acme" in each]
    assert "its certificate is refused: " in line
    assert why in line
    assert "ada-there" not in caplog.text
    assert READER_PASSWORD not in caplog.text


@pytest.mark.browser
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_person_signs_in_at_a_server(
    browser: Any,
    start_server: StartServer,
    authority: Authority,
    begin: Begin,
    scheme: str,
):
    directory = begin(authority.sign("localhost"))
    server = start_server(SSL_CERT_FILE=str(authority.certificate))
    fields = json.dumps(fields_of(address_of(directory, scheme)))
    server.manage("shell", "-v0", "-c", STORE.format(fields=fields))
    page = browser.new_context(base_url=server.url).new_page()
    page.goto("/login/?next=/settings/")
    for password in ("wrong", "ada-there"):
        page.get_by_label("Username").fill("ada")
        page.get_by_label("Password", exact=True).fill(password)
        page.get_by_role("button", name="Sign in", exact=True).click()
        if password == "wrong":
            refusal = page.get_by_text("Please enter a correct username and password")
            expect(refusal).to_be_visible()
    page.wait_for_url("**/settings/")
    page.goto("/account/")
    expect(page.get_by_text("You are signed in as ada")).to_be_visible()
    page.context.close()
