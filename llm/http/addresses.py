"""Classification of network addresses as public or not. Resolves no names.

`ipaddress.is_global` is not used: its result differs between Python releases, and it
takes some private IPv6 networks and embedded IPv4 addresses for public ones.

Source: https://www.iana.org/assignments/iana-ipv4-special-registry
Source: https://www.iana.org/assignments/iana-ipv6-special-registry
"""

from __future__ import annotations

import re
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: Metadata services of clouds, which give a machine its identity and credentials.
METADATA = frozenset(
    map(
        ip_address,
        (
            "169.254.169.254",  # most clouds
            "169.254.170.2",  # Amazon, containers
            "169.254.170.23",
            "100.100.100.200",  # Alibaba
            "168.63.129.16",  # Azure; looks public
            "192.0.0.192",  # Oracle
            "fd00:ec2::254",  # Amazon
            "fd20:ce::254",  # Google
        ),
    )
)

_SPECIAL_V4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",  # carrier-grade NAT
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",
        ),
    )
)
#: The range of all public IPv6 addresses assigned so far. Addresses that embed an IPv4
#: address (mapped, compatible, NAT64), local and multicast ones lie outside of it.
_GLOBAL_V6 = IPv6Network("2000::/3")
_SPECIAL_V6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # Teredo, ORCHID, benchmarks
            "2001:db8::/32",
            "2002::/16",  # 6to4
            "3fff::/20",
        ),
    )
)
#: Networks whose addresses end with an IPv4 address.
_EMBEDDING = tuple(
    map(
        IPv6Network,
        (
            "::/96",  # compatible
            "::ffff:0:0/96",  # mapped
            "::ffff:0:0:0/96",  # translated
            "64:ff9b::/96",  # NAT64
            "64:ff9b:1::/48",  # NAT64 of a network of its own
        ),
    )
)
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*", re.ASCII | re.IGNORECASE)


def parse_address(host: str) -> Address | None:
    """Parse an address in its standard spelling; None for anything else."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None


def parse_network(text: str) -> Network:
    """Raises ValueError."""
    return ip_network(text)


def looks_like_address(host: str) -> bool:
    """True for what some resolver reads as a number: also 127.1, 2130706433, 0x7f.1.

    Source: https://url.spec.whatwg.org/#ends-in-a-number-checker
    """
    last = host.removesuffix(".").rpartition(".")[2]
    return ":" in host or bool(_NUMBER.fullmatch(last))


def is_metadata(address: Address) -> bool:
    """True also for an IPv6 address by which a system or a gateway reaches one."""
    if isinstance(address, IPv6Address) and (inner := _embedded(address)) is not None:
        return inner in METADATA
    return address in METADATA


def _embedded(address: IPv6Address) -> IPv4Address | None:
    if address.sixtofour is not None:
        return address.sixtofour
    is_embedding = any(address in network for network in _EMBEDDING)
    return IPv4Address(int(address) & 0xFFFF_FFFF) if is_embedding else None


def is_public(address: Address | str) -> bool:
    """False also for a host name and for an address in a non-standard spelling."""
    if isinstance(address, str):
        parsed = parse_address(address)
        return parsed is not None and is_public(parsed)
    if address in METADATA:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    special = any(address in network for network in _SPECIAL_V6)
    return address in _GLOBAL_V6 and not special
