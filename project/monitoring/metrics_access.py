"""Who may read `/metrics`: who sends the token, or asks from one of the networks."""

from __future__ import annotations

import hmac
from collections.abc import Container
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from project.environment.monitoring import Monitoring

#: Headers that a proxy adds. Behind a proxy, the address of the connection is the
#: proxy's and says nothing about the client.
FORWARDED = ("x-forwarded-for", "forwarded", "x-real-ip")


@dataclass(frozen=True, slots=True)
class Scrape:
    """A request for the metrics."""

    authorization: str
    peer: str  # IP address of the other end; "" if that is a Unix socket
    headers: Container[str]  # names


def refuse_scrape(scrape: Scrape, allowed: Monitoring) -> int:
    """The status of the refusal: 401 or 403; 0 if it is allowed."""
    if allowed.token and _has_token(scrape.authorization, allowed.token):
        return 0
    if _is_near(scrape, allowed):
        return 0
    return 401 if allowed.token else 403


def _has_token(authorization: str, token: str) -> bool:
    scheme, _, sent = authorization.partition(" ")
    if scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(sent.strip().encode(errors="replace"), token.encode())


def _is_near(scrape: Scrape, allowed: Monitoring) -> bool:
    if any(name in scrape.headers for name in FORWARDED):
        return False
    try:
        address = ip_address(scrape.peer)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return any(address in network for network in allowed.networks)
