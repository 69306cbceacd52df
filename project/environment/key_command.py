"""Encryption keys from a key management service, by a command that prints them.

The interface is a program: it exits with 0 and prints the keys, newest first, separated
by white space or commas. Every key service has a command line that does so; see
docs/security/key-management.md. The keys stay in the memory of the process and are
written nowhere.
"""

from __future__ import annotations

import shlex
import subprocess

from project.environment.configuration_error import ConfigurationError

TIMEOUT = 30  # seconds


def read_keys(variable: str, command: str) -> list[str]:
    """Run `command`, without a shell. Raises ConfigurationError, whose text has nothing
    of what the command printed: that may hold a key."""
    try:
        arguments = shlex.split(command)
        done = subprocess.run(
            arguments,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT,
            check=True,
        )
        keys = done.stdout.decode("ascii").replace(",", " ").split()
    except (ValueError, IndexError) as exc:  # UnicodeDecodeError is a ValueError
        problem = "is no command, or prints no text."
        raise ConfigurationError(variable, problem) from exc
    except OSError as exc:
        problem = f"cannot run {arguments[0]!r} ({exc.strerror})."
        raise ConfigurationError(variable, problem) from exc
    except subprocess.TimeoutExpired as exc:
        problem = f"{arguments[0]!r} did not end within {TIMEOUT} seconds."
        raise ConfigurationError(variable, problem) from exc
    except subprocess.CalledProcessError as exc:
        problem = f"{arguments[0]!r} failed with the exit code {exc.returncode}."
        raise ConfigurationError(variable, problem) from exc
    if not keys:
        raise ConfigurationError(variable, f"{arguments[0]!r} printed no key.")
    return keys
