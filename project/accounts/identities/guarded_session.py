"""HTTP requests to identity providers, whose addresses staff enter."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from llm.http.addresses import is_metadata, is_public, parse_address
from llm.http.outbound_hosts import is_listed

TIMEOUT = 10  # seconds


class AddressRefused(requests.exceptions.ConnectionError):
    """The host is unknown, or in a private network that the provider's row does not
    allow."""


class GuardedSession(requests.Session):
    """Refuses private addresses, in redirects too, except of the hosts that may have
    them, and connects to the address that it has checked. Proxies and netrc of the
    environment are not used."""

    def __init__(self, private_hosts: frozenset[str]) -> None:
        super().__init__()
        self.trust_env = False
        for scheme in ("https://", "http://"):
            self.mount(scheme, _GuardedAdapter(private_hosts))

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        kwargs.setdefault("timeout", TIMEOUT)
        return super().request(*args, **kwargs)


class _GuardedAdapter(HTTPAdapter):
    """Sends a request to one of the addresses that its host had when it was checked."""

    def __init__(self, private_hosts: frozenset[str]) -> None:
        super().__init__()
        self._private_hosts = private_hosts
        self._address = ""  # that is tried now

    def send(self, request: Any, *args: Any, **kwargs: Any) -> requests.Response:
        url = urlsplit(request.url)
        host = url.hostname or ""
        if url.scheme != "https" and host not in self._private_hosts:
            raise AddressRefused("plain http")
        addresses = check_host(host, allow_private=host in self._private_hosts)
        # The session reads its own request for the cookies and headers of a redirect.
        request = request.copy()
        request.headers["Host"] = url.netloc.rpartition("@")[2]
        for address in addresses[:-1]:
            self._address = address
            try:
                return super().send(request, *args, **kwargs)
            except requests.exceptions.ConnectionError as exc:
                if not _is_before_connection(exc):
                    raise
        self._address = addresses[-1]
        return super().send(request, *args, **kwargs)

    def build_connection_pool_key_attributes(
        self, request: Any, verify: Any, cert: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Of the checked address: the host's name would be resolved once more, perhaps
        to another one. TLS is with the name.

        https://requests.readthedocs.io/en/latest/api/#requests.adapters.HTTPAdapter.build_connection_pool_key_attributes
        https://urllib3.readthedocs.io/en/stable/advanced-usage.html#custom-sni-hostname
        """
        host_parameters, pool_options = super().build_connection_pool_key_attributes(
            request, verify, cert
        )
        host_parameters["host"] = self._address
        if host_parameters["scheme"] == "https":
            pool_options["server_hostname"] = urlsplit(request.url).hostname
        return host_parameters, pool_options


def _is_before_connection(error: requests.exceptions.ConnectionError) -> bool:
    """Whether nothing was sent, because no connection stood."""
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    return isinstance(reason, NewConnectionError | ConnectTimeoutError)


def check_host(host: str, *, allow_private: bool) -> list[str]:
    """The host's addresses, all of which are allowed. Raises AddressRefused."""
    if not is_listed(host):
        raise AddressRefused("host that OUTBOUND_HOSTS does not name")
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as exc:
        raise AddressRefused("unknown host") from exc
    for *_, address in found:
        parsed = parse_address(str(address[0]))
        if parsed is None or is_metadata(parsed):
            raise AddressRefused("private address")
        if not (allow_private or is_public(parsed)):
            raise AddressRefused("private address")
    return [str(address[0]) for *_, address in found]
