from __future__ import annotations

from ipaddress import ip_network

import pytest

from project.environment.monitoring import Monitoring
from project.monitoring.metrics_access import Scrape, refuse_scrape

TOKEN = "0123456789abcdef"
BY_TOKEN = Monitoring(token=TOKEN)
NEAR = Monitoring(networks=(ip_network("127.0.0.0/8"), ip_network("::1/128")))
BOTH = Monitoring(token=TOKEN, networks=NEAR.networks)


def scrape(authorization: str = "", peer: str = "192.0.2.1", *headers: str) -> Scrape:
    return Scrape(authorization, peer, {"host", *headers})


@pytest.mark.parametrize(
    ("asked", "allowed", "status"),
    [
        (scrape(f"Bearer {TOKEN}"), BY_TOKEN, 0),
        (scrape(f"bearer  {TOKEN} "), BY_TOKEN, 0),
        (scrape(), BY_TOKEN, 401),
        (scrape("", "127.0.0.1"), BY_TOKEN, 401),
        (scrape("Bearer "), BY_TOKEN, 401),
        (scrape(f"Bearer {TOKEN}0"), BY_TOKEN, 401),
        (scrape(f"Bearer {TOKEN[:-1]}"), BY_TOKEN, 401),
        (scrape("Bearer \ud800é"), BY_TOKEN, 401),
        (scrape(f"Basic {TOKEN}"), BY_TOKEN, 401),
        (scrape(TOKEN), BY_TOKEN, 401),
        (scrape("", "127.0.0.1"), NEAR, 0),
        (scrape("", "::1"), NEAR, 0),
        (scrape("", "::ffff:127.0.0.1"), NEAR, 0),
        (scrape("", "10.0.0.1"), NEAR, 403),
        (scrape("", ""), NEAR, 403),
        (scrape("", "not an address"), NEAR, 403),
        (scrape("Bearer "), NEAR, 403),
        # A proxy on this machine, in the name of anybody:
        (scrape("", "127.0.0.1", "x-forwarded-for"), NEAR, 403),
        (scrape("", "127.0.0.1", "forwarded"), NEAR, 403),
        (scrape("", "127.0.0.1", "x-real-ip"), NEAR, 403),
        (scrape("", "127.0.0.1"), BOTH, 0),
        (scrape(f"Bearer {TOKEN}"), BOTH, 0),
        (scrape("Bearer wrong", "10.0.0.1"), BOTH, 401),
        (scrape(), Monitoring(), 403),
    ],
)
def test_only_the_token_or_a_near_connection_may_read(
    asked: Scrape, allowed: Monitoring, status: int
):
    assert refuse_scrape(asked, allowed) == status


def test_the_token_is_in_no_representation():
    assert TOKEN not in repr(BY_TOKEN)
