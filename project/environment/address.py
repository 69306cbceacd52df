"""Address that the server listens on, and its host names."""

from __future__ import annotations

import errno
import socket
import sys
from contextlib import ExitStack
from dataclasses import dataclass

from project.environment.configuration_error import ConfigurationError

_ALL_INTERFACES = ("0.0.0.0", "::")
_DOCUMENTATION_ADDRESS = ("192.0.2.1", 9)  # RFC 5737; nothing is sent there


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @property
    def url(self) -> str:
        """URL of the server for programs on the same machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def names(self) -> list[str]:
        """Default of ALLOWED_HOSTS.

        A server that listens on all interfaces accepts the machine's name and main
        address. It does not accept every name, because of DNS rebinding attacks.
        """
        names = ["localhost", "127.0.0.1", "[::1]"]
        if self.host in _ALL_INTERFACES:
            machine = socket.gethostname().lower()
            names += [machine, f"{machine}.local", *_main_address()]
        else:
            names.append(f"[{self.host}]" if ":" in self.host else self.host)
        return list(dict.fromkeys(names))

    def listen(self, variable: str = "PORT") -> socket.socket:
        """`variable`: the name of the setting that the port comes from. Raises
        ConfigurationError."""
        try:
            family, *_, name = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM
            )[0]
            return _create_server((str(name[0]), int(name[1])), family)
        except OSError as exc:
            raise ConfigurationError(*self._problem(exc, variable)) from exc

    def listen_for_all(self, count: int, variable: str) -> list[socket.socket]:
        """Sockets for as many processes, among which Linux divides the connections.
        Elsewhere it is the same socket. Raises ConfigurationError."""
        listening = self.listen(variable)
        if sys.platform != "linux":
            return [listening] * count
        # Another server may use the port: then this one has failed, which the next ones
        # would not.
        name, family = listening.getsockname(), listening.family
        listening.close()
        with ExitStack() as opened:
            sockets = [
                opened.enter_context(self._listen_beside(family, name[:2], variable))
                for _ in range(count)
            ]
            opened.pop_all()
        return sockets

    def _listen_beside(
        self, family: int, name: tuple[str, int], variable: str
    ) -> socket.socket:
        """Like `listen`, where other sockets of this user may listen too."""
        try:
            return _create_server(name, family, reuse_port=True)
        except OSError as exc:  # another server was faster
            raise ConfigurationError(*self._problem(exc, variable)) from exc

    def _problem(self, exc: OSError, variable: str) -> tuple[str, str]:
        """Return the wrong variable, and what to do."""
        match exc.errno:
            case errno.EADDRINUSE:
                option = variable.lower().replace("_", "-")
                problem = f"{self.port} is in use; set another one or --{option}."
                return variable, problem
            case errno.EACCES:
                problem = f"{self.port} needs root rights; use a port above 1023."
                return variable, problem
            case _:
                return "HOST", (
                    f"cannot listen on {self.host!r} ({exc.strerror});"
                    " use 127.0.0.1, or 0.0.0.0 for every interface."
                )


def _create_server(
    name: tuple[str, int], family: int, *, reuse_port: bool = False
) -> socket.socket:
    # Every interface means both families: health checks and proxies of the machine use
    # 127.0.0.1 also where its other clients use IPv6.
    both = name[0] == "::" and socket.has_dualstack_ipv6()
    return socket.create_server(
        name,
        family=family,
        backlog=1024,
        reuse_port=reuse_port,
        dualstack_ipv6=both,
    )


def _main_address() -> list[str]:
    """Source address of outgoing connections. Connecting UDP sends no packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_DOCUMENTATION_ADDRESS)
        except OSError:
            return []  # no network
        return [str(probe.getsockname()[0])]
