"""The environment, read strictly: a wrong value stops the start with one line.

`ConfigurationError` names the variable and the mend; `manage.py` prints it and leaves.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import environ
from cryptography.fernet import Fernet


class ConfigurationError(SystemExit):
    """Stops the start; its text is all that is printed."""

    def __init__(self, variable: str, problem: str) -> None:
        super().__init__(f"{variable}: {problem}")


class Environment:
    def __init__(self, base: Path) -> None:
        if os.environ.get("PARLEY_READ_DOTENV", "1") != "0":
            environ.Env.read_env(str(base / ".env"))
        self._env = environ.Env()
        self.data = self._data(base)
        self.secret_key = self.str("SECRET_KEY", "") or self._kept(
            "secret_key", lambda: secrets.token_urlsafe(50)
        )
        self.encryption_keys = self._encryption_keys()

    def str(self, name: str, default: str) -> str:
        return str(self._env.str(name, default))

    def bool(self, name: str, default: bool) -> bool:
        text = self.str(name, str(default)).strip().lower()
        if text in ("1", "true", "yes", "on"):
            return True
        if text in ("0", "false", "no", "off", ""):
            return False
        raise ConfigurationError(name, f"{text!r} is neither true nor false.")

    def list(self, name: str, default: Sequence[str]) -> list[str]:
        text = self.str(name, ",".join(default))
        return [part.strip() for part in text.split(",") if part.strip()]

    def count(self, name: str, default: int) -> int:
        text = self.str(name, str(default))
        if not text.isdecimal() or int(text) < 1:
            raise ConfigurationError(name, f"{text!r} is not a whole number above 0.")
        return int(text)

    def port(self, name: str, default: int) -> int:
        number = self.count(name, default)
        if number > 65535:
            raise ConfigurationError(name, f"{number} is no port; use 1 to 65535.")
        return number

    def seconds(self, name: str, default: float) -> float:
        text = self.str(name, str(default))
        try:
            number = float(text)
        except ValueError:
            number = 0.0
        if not 0 < number < 1e9:
            raise ConfigurationError(
                name, f"{text!r} is not a number of seconds above 0."
            )
        return number

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        text = self.str(name, default).upper()
        if text not in choices:
            raise ConfigurationError(
                name, f"{text!r} is not one of {', '.join(choices)}."
            )
        return text

    def database(self, name: str) -> dict[str, Any]:
        url = self.str(name, "") or f"sqlite:///{self.data / 'parley.sqlite3'}"
        try:
            config = dict(environ.Env.db_url_config(url))
        except Exception as exc:
            raise ConfigurationError(
                name, "this is no database URL, e.g. sqlite:////path/to/file."
            ) from exc
        if config["ENGINE"] != "django.db.backends.sqlite3":
            raise ConfigurationError(
                name, "only SQLite is supported by this version; use sqlite:////path."
            )
        config["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,  # seconds
            "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;",
        }
        config["TEST"] = {"NAME": str(self.data / "test.sqlite3")}
        return config

    def disabled_providers(self) -> frozenset[str]:
        """Kinds switched off by `ENABLE_<KIND>=false`."""
        names = [n for n in os.environ if n.startswith("ENABLE_")]
        return frozenset(
            n.removeprefix("ENABLE_").lower() for n in names if not self.bool(n, True)
        )

    # What is kept in the data folder

    def _data(self, base: Path) -> Path:
        path = Path(self.str("PARLEY_DATA", str(base / "data"))).expanduser().resolve()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise ConfigurationError(
                "PARLEY_DATA",
                f"cannot make {path} ({exc.strerror}); name another folder.",
            ) from exc
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise ConfigurationError(
                "PARLEY_DATA",
                f"{path} is not readable and writable; name another folder.",
            )
        return path

    def _encryption_keys(self) -> list[str]:
        keys = self.list("ENCRYPTION_KEYS", [])
        if not keys:
            kept = self._kept("encryption_keys", lambda: Fernet.generate_key().decode())
            keys = kept.split()
        for key in keys:
            try:
                Fernet(key)
            except ValueError as exc:
                raise ConfigurationError(
                    "ENCRYPTION_KEYS", "a key is not 32 url-safe base64 bytes."
                ) from exc
        return keys

    def _kept(self, name: str, make: Any) -> str:
        """A secret made on the first start and kept in a file of mode 0600."""
        path = self.data / name
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            pass
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:  # another process was faster
            return path.read_text().strip()
        with os.fdopen(handle, "w") as file:
            file.write(value := make())
        return str(value)
