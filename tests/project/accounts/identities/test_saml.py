"""What strangers send to the SAML addresses costs little."""

from __future__ import annotations

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from project.accounts.identities.saml import InvalidMetadata, read_metadata
from project.accounts.models import IdentityProvider

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
