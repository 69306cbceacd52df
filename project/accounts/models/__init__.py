"""Rows of accounts and sign-in."""

from __future__ import annotations

from project.accounts.models.identity_provider import GroupMapping, IdentityProvider
from project.accounts.models.invitation import Invitation
from project.accounts.models.password_change import RequiredPasswordChange
from project.accounts.models.scim_resource import ScimResource

__all__ = [
    "GroupMapping",
    "IdentityProvider",
    "Invitation",
    "RequiredPasswordChange",
    "ScimResource",
]
