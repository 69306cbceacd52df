"""Strict reader of environment variables: an invalid value stops the start.

`manage.py` prints the one line of `ConfigurationError`, which names the variable and
the correction, and exits. An empty value counts as unset.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import zoneinfo
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from cryptography.fernet import Fernet

from llm.keys.token_credentials import compact_key
from project.environment import scaled
from project.environment.configuration_error import ConfigurationError
from project.environment.data_folder_policy import policy
from project.environment.key_command import read_keys
from project.startup.data_folder import create_private, make_private

_KEY_PATTERN = re.compile(r"[\x21-\x7e]+")
_HOST_PATTERN = re.compile(r"\*|\.?[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]")


MAIL_PORTS = {"starttls": 587, "tls": 465, "none": 25}
#: Gateway processes, at most.
MAX_PORT = 65535
MAX_PROCESSES = 64


@dataclass(frozen=True, slots=True)
class MailServer:
    host: str
    port: int
    user: str  # "": none
    password: str = field(repr=False)
    security: str

    @property
    def uses_starttls(self) -> bool:
        return self.security == "starttls"

    @property
    def uses_tls(self) -> bool:
        return self.security == "tls"


class Environment:
    def __init__(self, base: Path) -> None:
        self.names: dict[
            str, str
        ] = {}  # all variables read so far, with their defaults
        if self.flag("PARLEY_READ_DOTENV", True):
            _read_dotenv(base / ".env")
        self.data = self._create_data_folder(base)
        given_key = self.text("SECRET_KEY", "")
        self.secret_key_is_stored = not given_key
        self.secret_key = given_key or self._load_secret(
            "secret_key", lambda: secrets.token_urlsafe(50)
        )
        self.encryption_keys = self._read_encryption_keys()

    def text(self, name: str, default: str) -> str:
        self.names[name] = default
        # Not environ.Env.str(), which reads a leading "$" as a reference to another
        # variable; a password may begin with "$".
        return os.environ.get(name) or default

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name, str(default)).strip().lower()
        if text in ("1", "true", "yes", "on"):
            return True
        if text in ("0", "false", "no", "off"):
            return False
        raise ConfigurationError(name, f"{text!r} is neither true nor false.")

    def words(self, name: str, default: Sequence[str]) -> list[str]:
        text = self.text(name, ",".join(default))
        return [part.strip() for part in text.split(",") if part.strip()]

    def count(self, name: str, default: int) -> int:
        text = self.text(name, str(default)).strip()
        if not text.isdecimal() or int(text) < 1:
            raise ConfigurationError(name, f"{text!r} is not a whole number above 0.")
        return int(text)

    def limit(self, name: str, default: int) -> int:
        """A whole number; 0 sets no limit."""
        text = self.text(name, str(default)).strip()
        if not (text.isascii() and text.isdecimal()) or int(text) > 10**12:
            raise ConfigurationError(
                name, f"{text!r} is not a whole number; 0 means no limit."
            )
        return int(text)

    def processes(self, name: str) -> int:
        """From 0, the default, to MAX_PROCESSES."""
        text = self.text(name, "0").strip()
        if not (text.isascii() and text.isdecimal()) or int(text) > MAX_PROCESSES:
            raise ConfigurationError(
                name, f"{text!r} is not a whole number from 0 to {MAX_PROCESSES}."
            )
        return int(text)

    def days(self, name: str, default: int) -> int:
        """From 0, which sets no limit, to a hundred years."""
        text = self.text(name, str(default)).strip()
        if not (text.isascii() and text.isdecimal()) or int(text) > 36500:
            raise ConfigurationError(
                name, f"{text!r} is not a whole number of days from 0 to 36500."
            )
        return int(text)

    def port(self, name: str, default: int) -> int:
        number = self.count(name, default)
        if number > MAX_PORT:
            raise ConfigurationError(
                name, f"{number} is not a port; use 1 to {MAX_PORT}."
            )
        return number

    def seconds(self, name: str, default: float) -> float:
        number = _float(text := self.text(name, str(default)))
        if not 0 < number < 1e9:
            raise ConfigurationError(
                name, f"{text!r} is not a number of seconds above 0."
            )
        return number

    def number(
        self, name: str, low: float, high: float, default: float | None = None
    ) -> float | None:
        """A number from low to high, or None if unset and without default."""
        if not (text := self.text(name, "" if default is None else f"{default:g}")):
            return None
        if not low <= (number := _float(text)) <= high:
            raise ConfigurationError(
                name, f"{text!r} is not a number from {low:g} to {high:g}."
            )
        return number

    def choice(self, name: str, default: str, choices: Iterable[str]) -> str:
        """One of `choices`, ignoring case, or the default."""
        text = self.text(name, default)
        known = {choice.lower(): choice for choice in choices}
        if text == default:
            return default
        if (found := known.get(text.strip().lower())) is None:
            names = ", ".join(known.values())
            raise ConfigurationError(name, f"{text!r} is not one of {names}.")
        return found

    def url(self, name: str) -> str:
        """An http or https address, or ""."""
        text = self.text(name, "").strip()
        if text and "@" in text:  # not shown: it may contain a password
            raise ConfigurationError(name, "leave out user and password.")
        if text and not _is_web_address(text):
            raise ConfigurationError(
                name, f"{text!r} is not a URL; write https://host/path."
            )
        return text

    def syslog(self, name: str) -> tuple[str, ...]:
        """A scheme and an address: ("udp", host, port) or ("unix", path); empty if
        unset."""
        if not (text := self.text(name, "").strip()):
            return ()
        if text.startswith("/"):
            return ("unix", text)
        parts = urlsplit(text)
        try:
            port = parts.port or 514
        except ValueError:
            port = 0
        if parts.scheme != "udp" or not parts.hostname or not port:
            raise ConfigurationError(
                name,
                f"{text!r} is no syslog server; write udp://host:514 or /dev/log.",
            )
        return (parts.scheme, parts.hostname, str(port))

    def api_key(self, name: str) -> str:
        """A provider's key, or "". Errors do not contain it."""
        text = compact_key(self.text(name, "").strip())
        if text and not _KEY_PATTERN.fullmatch(text):
            raise ConfigurationError(
                name,
                "a key cannot contain spaces or non-ASCII characters; copy it again.",
            )
        return text

    def origins(self, name: str) -> list[str]:
        origins = self.words(name, [])
        for origin in origins:
            if not _is_web_address(origin) or urlsplit(origin).path:
                raise ConfigurationError(
                    name,
                    f"{origin!r} is not an origin; write https://host without a path.",
                )
        return origins

    def hosts(self, name: str, default: Sequence[str]) -> list[str]:
        hosts = self.words(name, default)
        for host in hosts:
            if not _HOST_PATTERN.fullmatch(host):
                raise ConfigurationError(
                    name,
                    f"{host!r} is not a host name; leave out scheme, port and path.",
                )
        return hosts

    def outbound_hosts(self, name: str) -> list[str]:
        """Names, or `*.` before one for all names below it."""
        hosts = self.words(name, [])
        for host in hosts:
            if host == "*" or not _HOST_PATTERN.fullmatch(host.removeprefix("*.")):
                raise ConfigurationError(
                    name,
                    f"{host!r} is not a host name; write api.example.org, or"
                    " *.example.org for all names below it.",
                )
        return hosts

    def scanner(self, name: str) -> str:
        address = self.text(name, "")
        host, _, port = address.rpartition(":")
        if address and not address.startswith("/") and not (host and port.isdecimal()):
            raise ConfigurationError(
                name, f"{address!r} is neither host:port nor the path of a socket."
            )
        return address

    def time_zone(self, name: str, default: str) -> str:
        text = self.text(name, default)
        try:
            zoneinfo.ZoneInfo(text)
        except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError) as exc:
            raise ConfigurationError(
                name, f"{text!r} is not a time zone; write for example Europe/Paris."
            ) from exc
        return text

    def idle_minutes(self, name: str) -> int:
        """0, which sets no limit, or at least 5: the use of a session is stored at most
        once a minute."""
        number = self.limit(name, 0)
        if 0 < number < 5:
            raise ConfigurationError(name, "write 0 for no limit, or at least 5.")
        return number

    def mail(self) -> MailServer | None:
        """The mail server of the MAIL_ variables, or None without MAIL_HOST."""
        security = self.choice("MAIL_SECURITY", "starttls", ["starttls", "tls", "none"])
        host = self.text("MAIL_HOST", "").strip()
        port = self.port("MAIL_PORT", MAIL_PORTS[security])
        user, password = self.text("MAIL_USER", ""), self.text("MAIL_PASSWORD", "")
        if not host:
            if user or password:
                name = "MAIL_USER" if user else "MAIL_PASSWORD"
                raise ConfigurationError(name, "it needs MAIL_HOST as well.")
            return None
        if not _HOST_PATTERN.fullmatch(host):
            raise ConfigurationError(
                "MAIL_HOST", f"{host!r} is not a host name; put the port in MAIL_PORT."
            )
        if bool(user) != bool(password):
            raise ConfigurationError(
                "MAIL_USER, MAIL_PASSWORD", "set both of them, or neither."
            )
        return MailServer(host, port, user, password, security)

    def database(self, name: str) -> dict[str, Any]:
        if scaled.is_postgres(url := self.text(name, "")):
            try:
                return scaled.database(url)
            except ValueError as exc:  # its text does not contain the password
                raise ConfigurationError(
                    name, f"{exc}; write postgres://user:password@host/name."
                ) from exc
        path = self._sqlite_path(name)
        is_absent = not policy.may_create and self._could_be_made(path)
        try:
            # SQLite creates its -wal and -shm files with the mode of this file.
            if not is_absent:
                create_private(path)
                make_private(path)
        except OSError as exc:
            raise ConfigurationError(
                name, f"cannot open {path} ({exc.strerror}); name another file."
            ) from exc
        return {
            "ENGINE": "django.db.backends.sqlite3",
            # In memory there are no tables, as in a new file.
            "NAME": ":memory:" if is_absent else str(path),
            # The server's threads are permanent, and a new connection takes 2 ms.
            "CONN_MAX_AGE": None,
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 60,  # seconds that a write waits for the lock
                # Each thread's connection has its own page cache, 2 MB by default. A
                # smaller one suffices, as the operating system caches the file.
                "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;"
                "PRAGMA cache_size=-512;",  # KB
            },
            "TEST": {"NAME": str(self.data / "test.sqlite3")},
        }

    def _could_be_made(self, path: Path) -> bool:
        is_usual = path.parent == self.data
        return not path.exists() and (is_usual or path.parent.is_dir())

    def _sqlite_path(self, name: str) -> Path:
        if not (url := self.text(name, "")):
            return self.data / "parley.sqlite3"
        if not url.startswith("sqlite:////"):
            raise ConfigurationError(
                name,
                "is neither a SQLite file nor PostgreSQL; use sqlite:////path/to/file"
                " or postgres://user:password@host/name.",
            )
        return Path(environ.Env.db_url_config(url)["NAME"])

    def redis(self, name: str) -> str:
        """Redis' address, or "". Redis needs PostgreSQL."""
        url = self.text(name, "").strip()
        if url and not scaled.is_redis(url):
            raise ConfigurationError(
                name, "is not a Redis URL; write redis://host:6379/0."
            )
        if url and not scaled.is_postgres(self.text("DATABASE_URL", "")):
            raise ConfigurationError(
                name,
                "Redis needs PostgreSQL; set DATABASE_URL=postgres://… as well, or"
                " leave REDIS_URL unset.",
            )
        return url

    def mcp_servers(self, name: str) -> dict[str, Any]:
        """Programs of local MCP servers: "mcpServers" of the JSON file."""
        if not (path := self.text(name, "").strip()):
            return {}
        from tools.mcp.stdio_programs import parse_programs

        try:
            return parse_programs(Path(path).expanduser().read_text())
        except OSError as exc:
            raise ConfigurationError(
                name, f"cannot read {path} ({exc.strerror}); name a JSON file."
            ) from exc
        except ValueError as exc:
            raise ConfigurationError(name, f"{path}: {exc}") from exc

    # Contents of the data folder

    def _create_data_folder(self, base: Path) -> Path:
        path = Path(self.text("PARLEY_DATA", str(base / "data"))).expanduser().resolve()
        if not policy.may_create and not path.exists():
            return path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not any(path.iterdir()):  # it was created for Parley
                make_private(path)
        except OSError as exc:
            raise ConfigurationError(
                "PARLEY_DATA",
                f"cannot use {path} ({exc.strerror}); name another folder.",
            ) from exc
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise ConfigurationError(
                "PARLEY_DATA",
                f"{path} is not readable and writable; name another folder.",
            )
        return path

    def _read_encryption_keys(self) -> list[str]:
        keys = self.words("ENCRYPTION_KEYS", [])
        command = self.text("ENCRYPTION_KEYS_COMMAND", "")
        if keys and command:
            raise ConfigurationError(
                "ENCRYPTION_KEYS_COMMAND",
                "ENCRYPTION_KEYS is set as well; set one of the two.",
            )
        if command:
            keys = read_keys("ENCRYPTION_KEYS_COMMAND", command)
        self.keys_are_stored = not keys  # in the data folder
        if not keys:
            keys = self._load_secret(
                "encryption_keys", lambda: Fernet.generate_key().decode()
            ).split()
        for key in keys:
            try:
                Fernet(key)
            except ValueError as exc:
                raise ConfigurationError(
                    "ENCRYPTION_KEYS_COMMAND" if command else "ENCRYPTION_KEYS",
                    "a key is not 32 url-safe base64 bytes.",
                ) from exc
        return keys

    def _load_secret(self, name: str, make: Callable[[], str]) -> str:
        """Read a secret from its file of mode 0600, which the first start creates."""
        path = self.data / name
        if not policy.may_create and not path.exists():
            if policy.needs_secrets:
                raise ConfigurationError(
                    "PARLEY_DATA",
                    f"{path} is missing; name the data folder of the server.",
                )
            return make()
        try:
            create_private(path, make)
            make_private(path)  # a restored backup may be readable by all
            value = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigurationError(
                "PARLEY_DATA", f"cannot read {path}; correct its owner and mode."
            ) from exc
        if not value:
            raise ConfigurationError(
                "PARLEY_DATA", f"{path} is empty; restore it or remove it."
            )
        return value


def _read_dotenv(path: Path) -> None:
    if not path.exists():
        return
    try:
        path.read_text()  # Env.read_env() ignores a file that it cannot read
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigurationError(".env", "is not readable as UTF-8 text.") from exc
    environ.Env.read_env(path)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan  # outside every range


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        is_plain = not (parts.query or parts.fragment or re.search(r"\s", text))
        return parts.scheme in ("http", "https") and bool(parts.hostname) and is_plain
    except ValueError:
        return False
