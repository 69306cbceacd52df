"""The client address of a request, and whether it is within a list of networks.

Pure, except that the setting BEHIND_HTTPS is read.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from django.conf import settings


def client_address(peer: str, forwarded: str) -> str:
    """The client's address: the peer's, or the one that our reverse proxy reports.

    `forwarded` is the header `X-Forwarded-For`. Any client can send it, so it is used
    only if BEHIND_HTTPS says that a reverse proxy is in front of the server, and then
    only its last entry, which is the one that the proxy has added.
    """
    if settings.BEHIND_HTTPS and (last := forwarded.rpartition(",")[2].strip()):
        return last
    return peer


def is_within(address: str, networks: Iterable[str]) -> bool:
    """False for a string that is not an IP address, such as a Unix socket's."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    # A dual-stack socket reports 192.0.2.7 as ::ffff:192.0.2.7.
    mapped = getattr(found, "ipv4_mapped", None)
    found = mapped or found
    return any(found in ipaddress.ip_network(each) for each in networks)
