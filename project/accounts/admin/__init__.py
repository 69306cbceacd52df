"""The admin of accounts."""

from __future__ import annotations

from project.accounts.admin import identity_providers, people, second_factors

__all__ = ["identity_providers", "people", "second_factors"]
