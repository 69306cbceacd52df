from __future__ import annotations

import errno
import socket
import sys
from typing import Any

import pytest

from project.environment.address import Address
from project.environment.configuration_error import ConfigurationError


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:8000"),
        ("::1", "http://[::1]:8000"),
        ("parley.lan", "http://parley.lan:8000"),
    ],
)
def test_the_url_leads_to_this_machine(host: str, url: str):
    assert Address(host, 8000).url == url


def test_a_server_for_this_machine_answers_to_its_local_names_only():
    assert Address("127.0.0.1", 8000).names() == ["localhost", "127.0.0.1", "[::1]"]


def test_a_server_answers_to_the_name_it_listens_by():
    assert "parley.lan" in Address("parley.lan", 8000).names()
    assert "[fd00::1]" in Address("fd00::1", 8000).names()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_server_for_all_answers_to_the_machines_name_and_not_to_any(host: str):
    names = Address(host, 8000).names()
    assert socket.gethostname().lower() in names
    assert "*" not in names
    assert host not in names


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_listening_accepts(host: str):
    with Address(host, 0).listen() as listening:
        socket.create_connection(listening.getsockname()[:2]).close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
@pytest.mark.parametrize("client", ["127.0.0.1", "::1"])
def test_every_interface_is_those_of_both_families(client: str):
    every = Address("::", 0)
    with every.listen() as listening:
        socket.create_connection((client, listening.getsockname()[1])).close()
    [beside] = every.listen_for_all(1, "GATEWAY_PORT")
    with beside:
        socket.create_connection((client, beside.getsockname()[1])).close()


def test_a_port_in_use_is_the_ports_fault():
    with Address("127.0.0.1", 0).listen() as listening:
        port = listening.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"^PORT: {port} is in use; set"):
            Address("127.0.0.1", port).listen()


def test_a_port_for_root_is_the_ports_fault(monkeypatch: pytest.MonkeyPatch):
    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(ConfigurationError, match=r"^PORT: 80 needs root rights; use"):
        Address("0.0.0.0", 80).listen()


def test_a_host_that_is_not_ours_is_the_hosts_fault():
    host = "192.0.2.1"  # reserved for documentation
    with pytest.raises(ConfigurationError, match=f"^HOST: cannot listen on '{host}'"):
        Address(host, 8000).listen()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere they share one socket")
def test_a_server_that_was_faster_is_named(monkeypatch: pytest.MonkeyPatch):
    create, calls = socket.create_server, list[object]()

    def lose(*args: Any, **options: Any) -> socket.socket:
        calls.append(args)
        if len(calls) == 3:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        return create(*args, **options)

    monkeypatch.setattr(socket, "create_server", lose)
    with pytest.raises(ConfigurationError, match=r"^GATEWAY_PORT: 0 is in use"):
        Address("127.0.0.1", 0).listen_for_all(2, "GATEWAY_PORT")
