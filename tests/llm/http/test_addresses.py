from __future__ import annotations

import pytest

from llm.http.addresses import METADATA, is_public, looks_like_address, parse_address


@pytest.mark.parametrize(
    "host", ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111"]
)
def test_these_are_out_in_the_public(host: str):
    assert is_public(host)


@pytest.mark.parametrize(
    "host",
    [
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "192.88.99.1",
        "::1",
        "::ffff:8.8.8.8",
        "::8.8.8.8",
        "64:ff9b::808:808",
        "64:ff9b:1::1",
        "2002:808:808::",
        "2001:0:808:808::",
        "2001:db8::1",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff0e::1",
    ],
)
def test_these_are_not(host: str):
    assert parse_address(host)
    assert not is_public(host)


def test_no_metadata_is():
    assert not any(map(is_public, METADATA))


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0177.0.0.1", "example.test"])
def test_an_unusual_spelling_of_an_address_is_not_public(host: str):
    assert parse_address(host) is None
    assert not is_public(host)


@pytest.mark.parametrize(
    ("host", "looks_so"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1.", True),
        ("0x7f.1", True),
        ("2130706433", True),
        ("0x", True),
        ("::1", True),
        ("example.test", False),
        ("1.example", False),
        ("localhost", False),
        ("0xa.test", False),
        ("10.0.0.1.nip.test", False),
    ],
)
def test_a_host_that_ends_in_a_number_looks_like_an_address(host: str, looks_so: bool):
    assert looks_like_address(host) == looks_so
