"""SAML 2.0: what a provider's metadata say. Needs the extra `saml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Protocol

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

IS_INSTALLED = find_spec("onelogin") is not None
_MISSING = _("SAML needs more packages: install the extra 'saml' of Parley's wheel.")
_UNREADABLE = _("This is no metadata of an identity provider.")
_PERSISTENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"
#: Names of attributes, as Entra ID, Okta, Keycloak and Shibboleth send them.
_WS = "http://schemas.xmlsoap.org/ws/2005/05/identity/claims"
ATTRIBUTES = {
    "uid": ["urn:oasis:names:tc:SAML:attribute:subject-id"],
    "email": [
        "email",
        "mail",
        "urn:oid:0.9.2342.19200300.100.1.3",
        f"{_WS}/emailaddress",
    ],
    "first_name": ["firstName", "givenName", "urn:oid:2.5.4.42", f"{_WS}/givenname"],
    "last_name": ["lastName", "sn", "urn:oid:2.5.4.4", f"{_WS}/surname"],
    "username": ["username", "uid", "urn:oid:0.9.2342.19200300.100.1.1"],
}


class InvalidMetadata(ValueError):
    pass


class SamlRow(Protocol):
    """What is read of an `IdentityProvider`."""

    metadata: Any
    email_is_trusted: Any


def problems(provider: SamlRow) -> Iterator[tuple[str, str | Promise]]:
    if not IS_INSTALLED:
        yield "kind", _MISSING
        return
    try:
        read_metadata(provider.metadata)
    except InvalidMetadata:
        yield "metadata", _UNREADABLE


def read_metadata(text: str) -> Mapping[str, str]:
    """What django-allauth needs of it. Raises InvalidMetadata."""
    from onelogin.saml2.idp_metadata_parser import OneLogin_Saml2_IdPMetadataParser

    try:
        found: Any = OneLogin_Saml2_IdPMetadataParser.parse(text.encode())["idp"]
        certificates = found.get("x509certMulti", {}).get("signing", [])
        return {
            "entity_id": found["entityId"],
            "sso_url": found["singleSignOnService"]["url"],
            "x509cert": found.get("x509cert") or certificates[0],
        }
    except Exception as exc:  # the parser raises whatever its XML library raises
        raise InvalidMetadata from exc


def single_sign_on_url(provider: SamlRow) -> str:
    """Where people are sent; "" if the metadata cannot be read."""
    if not IS_INSTALLED:
        return ""
    try:
        return read_metadata(provider.metadata)["sso_url"]
    except InvalidMetadata:
        return ""


def build_settings(provider: SamlRow) -> dict[str, Any]:
    """Of django-allauth's app. Raises InvalidMetadata."""
    return {
        "idp": dict(read_metadata(provider.metadata)),
        "attribute_mapping": ATTRIBUTES,
        "verified_email": provider.email_is_trusted,
        # A transient name would be another person at each sign-in.
        "advanced": {
            "name_id_format": _PERSISTENT,
            "reject_idp_initiated_sso": True,
            "want_attribute_statement": False,
        },
    }
