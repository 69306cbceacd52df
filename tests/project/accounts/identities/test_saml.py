"""Metadata of SAML providers that cost much to read, or read files, are refused."""

from __future__ import annotations

import pytest

from project.accounts.identities.saml import InvalidMetadata, read_metadata

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
