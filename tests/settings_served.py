"""Settings of the servers that the suite forks: a password costs them nothing.

The project's own hasher takes a third of a second for each administrator, sign-in and
wrong password. Servers that start by their own command (`SpawnedProcess`) have it.
"""

from __future__ import annotations

from project.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
