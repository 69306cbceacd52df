"""Signing in by a real SAML identity provider, in a real browser."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from playwright.sync_api import Page, expect

from tests.conftest import StartServer
from tests.integration.browser.test_chat import browser
from tests.programs import need_program
from tests.serving import BASE, PATIENCE, ServerProcess, free_port

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

STORE = """
import sys
from django.contrib.auth.models import Group
from project.accounts.models import IdentityProvider
row = IdentityProvider(
    kind="saml", slug="acme", label="Acme", metadata=open({path!r}).read(),
    new_accounts="everybody", email_is_trusted=True,
    groups_claim="urn:oid:1.3.6.1.4.1.5923.1.5.1.1")
row.full_clean()
row.save()
row.group_mappings.create(claim="eng", group=Group.objects.create(name="Engineers"))
"""
SHOW = """
from django.contrib.auth.models import User
for user in User.objects.order_by("pk")[1:]:
    print(user.username, user.email, [group.name for group in user.groups.all()])
"""


def write_key(folder: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            pem,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[str]:
    """Its address."""
    need_program("xmlsec1")
    write_key(tmp_path)
    people = {"ada": {"mail": ["ada@acme.org"], "uid": ["ada"]}}
    people["ada"] |= {"givenName": ["Ada"], "isMemberOf": ["eng"]}
    (tmp_path / "people.json").write_text(json.dumps(people))
    port = free_port()
    module = "tests.integration.sign_in.saml_provider"
    command = [sys.executable, "-m", module, str(port), str(tmp_path)]
    process = subprocess.Popen(command, cwd=BASE, stderr=subprocess.DEVNULL)
    url, until = f"http://127.0.0.1:{port}", time.monotonic() + PATIENCE
    while True:
        try:
            httpx.get(f"{url}/metadata")
            break
        except httpx.TransportError:
            assert time.monotonic() < until, "the provider did not start"
            time.sleep(0.1)
    yield url
    process.kill()
    process.wait()


@pytest.fixture
def server(provider: str, start_server: StartServer, tmp_path: Path) -> ServerProcess:
    server = start_server()
    metadata = tmp_path / "idp.xml"
    metadata.write_text(httpx.get(f"{provider}/metadata").text)
    server.manage("shell", "-v0", "-c", STORE.format(path=str(metadata)))
    own = httpx.get(f"{server.url}/sso/saml/acme/metadata/")
    (tmp_path / "sp.xml").write_text(own.raise_for_status().text)
    return server


@pytest.fixture
def page(browser: Any, server: ServerProcess) -> Iterator[Page]:
    context = browser.new_context(base_url=server.url)
    yield context.new_page()
    context.close()


def go_in(page: Page, name: str) -> None:
    page.goto("/login/?next=/settings/")
    page.get_by_role("button", name="Continue with Acme").click()
    page.wait_for_selector("input[name=name]")
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Confirm").click()


def test_a_person_of_the_organisation_comes_in(page: Page, server: ServerProcess):
    go_in(page, "ada")
    page.wait_for_url("**/settings/")
    shown = server.manage("shell", "-v0", "-c", SHOW).split("\n")
    assert shown[0] == "ada ada@acme.org ['Engineers']"
    page.context.clear_cookies()
    go_in(page, "ada")
    page.wait_for_url("**/settings/")
    assert server.manage("shell", "-v0", "-c", SHOW).split("\n")[1:] == [""]
    # What somebody changed on its way, and what nobody here asked for:
    page.context.clear_cookies()
    go_in(page, "forged-ada")
    expect(page.get_by_role("heading", name="The sign-in failed")).to_be_visible()
    page.goto("/sso/saml/acme/acs/finish/")
    expect(page.get_by_role("heading", name="The sign-in failed")).to_be_visible()
    assert server.manage("shell", "-v0", "-c", SHOW).split("\n")[1:] == [""]
