"""Names and passwords of an LDAP directory. Needs the extra `ldap`.

The directory itself checks the password, by a bind as the person. Source: RFC 4511,
4513 and 4515; https://ldap3.readthedocs.io/
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from llm.db.bound_secrets import SecretUnavailable
from project.accounts.identities.guarded_session import AddressRefused, check_host

IS_INSTALLED = find_spec("ldap3") is not None
TIMEOUT = 5  # seconds, for each answer
_MISSING = _("LDAP needs more packages: install the extra 'ldap' of Parley's wheel.")
#: Attributes that name a person for ever, by kind of directory. Names can move.
_IDS = ("entryUUID", "objectGUID", "nsUniqueId", "ipaUniqueID")

logger = logging.getLogger(__name__)


class DirectoryUnavailable(Exception):
    """It does not answer, or refuses the name that searches."""


@dataclass(frozen=True, slots=True)
class Person:
    uid: str
    name: str
    attributes: Mapping[str, Any]  # lists of texts, or texts

    def first(self, attribute: str) -> str:
        value = self.attributes.get(attribute)
        value = value[0] if isinstance(value, list) and value else value
        return value if isinstance(value, str) else ""


class DirectoryRow(Protocol):
    """What is read of an `IdentityProvider`."""

    client_id: Any
    secret: Any
    search_base: Any
    user_filter: Any
    start_tls: Any
    allow_private_network: Any

    @property
    def issuer(self) -> str: ...

    @property
    def host(self) -> str: ...


def problems(provider: DirectoryRow) -> Iterator[tuple[str, str | Promise]]:
    if not IS_INSTALLED:
        yield "kind", _MISSING
        return
    url = urlsplit(provider.issuer)
    if url.scheme not in ("ldap", "ldaps") or not url.hostname:
        yield "server_url", _("Write ldaps://HOST or ldap://HOST:PORT.")
    if not provider.search_base:
        yield "search_base", _("A directory needs it.")
    if provider.user_filter.count("{name}") != 1:
        yield "user_filter", _("Write {name} once, where the person's name belongs.")


def find_person(provider: DirectoryRow, name: str, password: str) -> Person | None:
    """The person, if name and password are right. Raises DirectoryUnavailable."""
    from ldap3.core.exceptions import LDAPException

    if not password or "\0" in name + password:
        return None  # an empty password is a bind as nobody, which succeeds
    try:
        entry = _search(provider, name)
        if entry is None or not _may_bind(provider, entry["dn"], password):
            return None
        return _describe(entry, name)
    except (LDAPException, OSError, SecretUnavailable, AddressRefused) as exc:
        raise DirectoryUnavailable(type(exc).__name__) from exc


def _search(provider: DirectoryRow, name: str) -> Any:
    """The one entry of this name; None for none, and for several."""
    from ldap3 import ALL_ATTRIBUTES, ALL_OPERATIONAL_ATTRIBUTES
    from ldap3.utils.conv import escape_filter_chars

    secret = provider.secret.reveal() if provider.secret else ""
    with _connect(provider, provider.client_id, secret) as connection:
        if not connection.bind():
            raise DirectoryUnavailable("the name that searches is refused")
        connection.search(
            provider.search_base,
            provider.user_filter.replace("{name}", escape_filter_chars(name)),
            attributes=[ALL_ATTRIBUTES, ALL_OPERATIONAL_ATTRIBUTES],
            size_limit=2,
            time_limit=TIMEOUT,
        )
        response = connection.response or []
        entries = [each for each in response if each["type"] == "searchResEntry"]
    return entries[0] if len(entries) == 1 else None


def _may_bind(provider: DirectoryRow, dn: str, password: str) -> bool:
    with _connect(provider, dn, password) as connection:
        return bool(connection.bind())


@contextmanager
def _connect(provider: DirectoryRow, dn: str, password: str) -> Iterator[Any]:
    """An open connection to a checked address, encrypted if the row says so, that is
    not bound yet. Raises AddressRefused, DirectoryUnavailable."""
    from ldap3 import Connection
    from ldap3.core.exceptions import LDAPException

    url = urlsplit(provider.issuer)
    server = _server(url, allow_private=provider.allow_private_network)
    connection = Connection(
        server,
        user=dn or None,
        password=password or None,
        receive_timeout=TIMEOUT,
        auto_referrals=False,
        read_only=True,
    )
    try:
        connection.open()
        is_upgraded = url.scheme == "ldap" and provider.start_tls
        if is_upgraded and not connection.start_tls():
            raise DirectoryUnavailable("it does not encrypt")
        yield connection
    except LDAPException as exc:
        if why := server.tls.refusal:
            raise DirectoryUnavailable(f"its certificate is refused: {why}") from exc
        raise
    finally:
        # After a failure the socket may be closed, and the failure is what counts.
        with suppress(LDAPException, OSError):
            connection.unbind()


def _server(url: SplitResult, *, allow_private: bool) -> Any:
    """Has only the addresses that were checked: ldap3 would resolve the name once more,
    perhaps to another one. Certificates are compared with the name by Python itself,
    because ldap3 compares no addresses, and tells the server no name (SNI)."""
    from ldap3 import Server, Tls

    host = url.hostname or ""
    port = url.port or (636 if url.scheme == "ldaps" else 389)
    addresses = check_host(host, allow_private=allow_private)

    class CheckedServer(Server):
        @property
        def address_info(self) -> list[list[Any]]:
            found = [
                each
                for address in addresses
                for each in socket.getaddrinfo(
                    address,
                    port,
                    type=socket.SOCK_STREAM,
                    flags=socket.AI_NUMERICHOST,
                )
            ]
            # Whether one answers, and since when, is not known.
            return [[*each, None, None] for each in found]

    class CheckedTls(Tls):
        refusal = ""  # why the last certificate was refused

        def wrap_socket(self, connection: Any, do_handshake: bool = False) -> None:
            try:
                connection.socket = ssl.create_default_context().wrap_socket(
                    connection.socket,
                    do_handshake_on_connect=do_handshake,
                    server_hostname=host,
                )
            except ssl.SSLCertVerificationError as exc:
                self.refusal = exc.verify_message.rstrip(".")
                raise

    return CheckedServer(
        host,
        port=port,
        use_ssl=url.scheme == "ldaps",
        tls=CheckedTls(),
        connect_timeout=TIMEOUT,
        get_info=None,
    )


def _describe(entry: Any, name: str) -> Person:
    attributes = {
        key: [text for each in _as_list(value) if (text := _text(each))]
        for key, value in entry["attributes"].items()
    }
    found = (attributes[key][0] for key in _IDS if attributes.get(key))
    return Person(next(found, entry["dn"].lower())[:191], name, attributes)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(value).replace("\0", "")
