"""Settings of metrics and traces from environment variables."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib.util import find_spec
from ipaddress import IPv4Network, IPv6Network, ip_network

from project.environment.configuration_error import ConfigurationError
from project.environment.variables import Environment

Network = IPv4Network | IPv6Network
MIN_TOKEN = 16  # characters
#: What the extra `otel` installs.
LIBRARIES = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")
_TOKEN = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Monitoring:
    token: str = field(default="", repr=False)  # "": none is accepted
    networks: tuple[Network, ...] = ()
    host: str = "127.0.0.1"  # where a worker listens
    port: int = 0  # 0: a worker does not listen

    @property
    def serves_metrics(self) -> bool:
        return bool(self.token or self.networks)


def read_monitoring(env: Environment) -> Monitoring:
    found = Monitoring(
        token=_read_token(env, "METRICS_TOKEN"),
        networks=_read_networks(env, "METRICS_NETWORKS"),
        host=env.text("METRICS_HOST", "127.0.0.1"),
        port=_read_port(env, "METRICS_PORT"),
    )
    require_guard("METRICS_PORT", found.port, found)
    return found


def read_tracing(env: Environment) -> bool:
    """Whether the environment names a collector of traces. Its variables, and others
    that OpenTelemetry defines, are read by the SDK, which the extra `otel` installs."""
    exporter = env.choice("OTEL_TRACES_EXPORTER", "otlp", ["otlp", "none"])
    addresses = [
        env.url("OTEL_EXPORTER_OTLP_ENDPOINT"),
        env.url("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
    ]
    env.choice("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", ["http/protobuf"])
    is_off = env.flag("OTEL_SDK_DISABLED", False)
    if is_off or exporter == "none" or not any(addresses):
        return False
    if not all(map(_is_installed, LIBRARIES)):
        raise ConfigurationError(
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "traces need more libraries; install the extra 'otel' of Parley's wheel.",
        )
    return True


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that contains it
        return False


def require_guard(name: str, port: int, monitoring: Monitoring) -> None:
    """Raises ConfigurationError for a port at which nobody may read."""
    if port and not monitoring.serves_metrics:
        raise ConfigurationError(
            name, "it needs METRICS_TOKEN or METRICS_NETWORKS; set one of them."
        )


def _read_token(env: Environment, name: str) -> str:
    text = env.text(name, "")
    if text and (len(text) < MIN_TOKEN or not _TOKEN.fullmatch(text)):
        raise ConfigurationError(
            name,
            f"write at least {MIN_TOKEN} letters, digits and signs, without spaces.",
        )
    return text


def _read_networks(env: Environment, name: str) -> tuple[Network, ...]:
    found = []
    for word in env.words(name, []):
        try:
            found.append(ip_network(word))
        except ValueError as exc:
            raise ConfigurationError(
                name, f"{word!r} is not a network; write 10.0.0.0/8 or ::1/128."
            ) from exc
    return tuple(found)


def _read_port(env: Environment, name: str) -> int:
    number = env.limit(name, 0)
    if number > 65535:
        raise ConfigurationError(
            name, f"{number} is not a port; use 1 to 65535, or 0 for none."
        )
    return number
