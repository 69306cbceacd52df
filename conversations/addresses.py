"""Where a request comes from, and whether that is within a list of networks. Pure but
for one setting."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from django.conf import settings


def client_address(peer: str, forwarded: str) -> str:
    """The caller's address: who is connected, or whom our proxy says it speaks for.

    `forwarded` is the header `X-Forwarded-For`. Anybody can send one, so it counts only
    where BEHIND_HTTPS says that a proxy of ours stands in front, and of it only the
    last entry, which is the one that our proxy has added.
    """
    if settings.BEHIND_HTTPS and (last := forwarded.rpartition(",")[2].strip()):
        return last
    return peer


def is_within(address: str, networks: Iterable[str]) -> bool:
    """False for what is no address, as that of a Unix socket."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    # A socket for both families tells 192.0.2.7 as ::ffff:192.0.2.7.
    mapped = getattr(found, "ipv4_mapped", None)
    found = mapped or found
    return any(found in ipaddress.ip_network(each) for each in networks)
