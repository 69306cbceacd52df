"""What strangers send to the SAML addresses costs little."""

from __future__ import annotations

import base64
import zlib

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from project.accounts.identities.saml import InvalidMetadata, read_metadata
from project.accounts.models import IdentityProvider
from tests.conversations.scene import a_user, signed_in

pytest.importorskip("onelogin")

_NAMES = 'xmlns="urn:oasis:names:tc:SAML:2.0:metadata"'
_ENTITIES = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<",
        f"<!DOCTYPE x [<!ENTITY e0 'aaaaaaaaaa'>{_ENTITIES}]>"
        f"<EntityDescriptor {_NAMES} entityID='&e9;'/>",
        "<!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]>"
        f"<EntityDescriptor {_NAMES}><IDPSSODescriptor>&e;</IDPSSODescriptor>"
        "</EntityDescriptor>",
        f"<EntityDescriptor {_NAMES}/>",
        "<a>" * 100_000,
    ],
)
def test_hostile_metadata_are_refused(text: str):
    with pytest.raises(InvalidMetadata):
        read_metadata(text)


METADATA = f"""
<EntityDescriptor {_NAMES} entityID="https://idp.test">
  <IDPSSODescriptor protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol">
    <KeyDescriptor use="signing">
      <KeyInfo xmlns="http://www.w3.org/2000/09/xmldsig#">
        <X509Data><X509Certificate>MIIB</X509Certificate></X509Data>
      </KeyInfo>
    </KeyDescriptor>
    <SingleSignOnService Location="https://idp.test/sso"
        Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect"/>
  </IDPSSODescriptor>
</EntityDescriptor>"""


@pytest.fixture
def acme() -> IdentityProvider:
    return IdentityProvider.objects.create(
        slug="acme", label="Acme", kind="saml", metadata=METADATA
    )


@pytest.mark.django_db
@pytest.mark.parametrize("request_text", ["AAAA", None])
def test_a_link_neither_signs_out_nor_leads_elsewhere(
    acme: IdentityProvider, request_text: str | None
):
    logout = (
        '<samlp:LogoutRequest xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol"'
        ' xmlns="urn:oasis:names:tc:SAML:2.0:assertion" ID="x" Version="2.0"'
        ' IssueInstant="2026-01-01T00:00:00Z"><Issuer>https://idp.test</Issuer>'
        "<NameID>ada</NameID></samlp:LogoutRequest>"
    )
    deflated = base64.b64encode(zlib.compress(logout.encode())[2:-4]).decode()
    query = {
        "SAMLRequest": request_text or deflated,
        "RelayState": "https://evil.example",
    }
    client = signed_in(a_user("ada"))
    assert client.get("/sso/saml/acme/sls/", query).status_code == 404
    assert client.post("/sso/saml/acme/sls/", query).status_code == 404
    assert client.get("/account/").status_code == 200  # still signed in


@pytest.mark.django_db
@pytest.mark.parametrize("response", ["AAAA", "PHg+", "PHgvPg==", "%", "aGFsbG8="])
def test_a_response_that_is_none_is_an_error_not_a_fault(
    acme: IdentityProvider, response: str
):
    client = Client()
    client.post("/sso/saml/acme/acs/", {"SAMLResponse": response})
    answer = client.get("/sso/saml/acme/acs/finish/")
    assert answer.status_code == 400
    assert "_auth_user_id" not in client.session


@pytest.mark.django_db
def test_the_metadata_of_this_server(acme: IdentityProvider):
    answer = Client(SERVER_NAME="localhost").get("/sso/saml/acme/metadata/")
    assert answer.status_code == 200
    assert b"/sso/saml/acme/acs/" in answer.content
    assert Client().get("/sso/saml/other/metadata/").status_code == 404


@pytest.mark.django_db
def test_a_response_waits_only_for_a_provider_that_exists_and_if_it_is_small():
    IdentityProvider.objects.create(
        slug="acme", label="Acme", kind="saml", metadata=METADATA
    )
    client = Client(enforce_csrf_checks=True)
    small, large = {"SAMLResponse": "PHg+"}, {"SAMLResponse": "x" * 300_001}
    assert client.post("/sso/saml/other/acs/", small).status_code == 404
    assert client.post("/sso/saml/acme/acs/", large).status_code == 413
    assert client.get("/sso/saml/acme/acs/").status_code == 405
    assert not Session.objects.exists()
    received = client.post("/sso/saml/acme/acs/", small)
    assert received["Location"] == "/sso/saml/acme/acs/finish/"
    assert received.cookies["saml-acs-session"]["httponly"]
    assert Session.objects.count() == 1
