from __future__ import annotations

from typing import Any

import pytest

from project.server.origin import is_own_origin


def is_own(origin: str, host: str, scheme: str = "ws", proto: str = "") -> bool:
    headers = [(b"host", host.encode()), (b"origin", origin.encode())]
    if proto:
        headers.append((b"x-forwarded-proto", proto.encode()))
    return is_own_origin({"scheme": scheme, "headers": headers})


@pytest.fixture(autouse=True)
def hosts(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["chat.example", "[::1]"]


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://chat.example", "chat.example"),
        ("http://chat.example", "chat.example:80"),
        ("http://chat.example:8000", "chat.example:8000"),
        ("HTTP://Chat.Example:8000", "CHAT.example:8000"),
        ("http://[::1]:8000", "[::1]:8000"),
    ],
)
def test_scheme_host_and_port_match(origin: str, host: str):
    assert is_own(origin, host)
    assert not is_own(origin.lower().replace("http:", "https:"), host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://chat.example", "chat.example:8000"),
        ("http://chat.example:8000", "chat.example"),
        ("http://evil.example", "evil.example"),  # rebound to our address
        ("http://evil.example", "chat.example"),
        ("http://chat.example/path", "chat.example"),
        ("http://ada@chat.example", "chat.example"),
        ("http://chat.example:port", "chat.example"),
        ("file://chat.example", "chat.example"),
        ("http://", ""),
        ("null", "chat.example"),
    ],
)
def test_all_others_are_foreign(origin: str, host: str):
    assert not is_own(origin, host)


def test_a_trusted_proxy_determines_the_scheme(settings: Any):
    encrypted = "https://chat.example", "chat.example"
    assert not is_own(*encrypted, proto="https")
    assert is_own(*encrypted, scheme="wss")
    settings.BEHIND_HTTPS = True
    assert is_own(*encrypted, proto="https")
    assert is_own(*encrypted, proto="https, http")
    assert not is_own(*encrypted, proto="http")
    assert not is_own("http://chat.example", "chat.example", proto="https")


def test_further_origins_are_those_of_forms(settings: Any):
    settings.CSRF_TRUSTED_ORIGINS = ["https://a.example", "https://*.b.example:444"]
    assert is_own("https://a.example", "chat.example")
    assert is_own("https://x.y.b.example:444", "chat.example")
    for origin in (
        "http://a.example",
        "https://a.example:444",
        "https://x.a.example",
        "https://b.example:4444",
        "https://x.b.example",
        "https://evilb.example:444",
    ):
        assert not is_own(origin, "chat.example"), origin
