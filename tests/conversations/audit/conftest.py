"""Fixtures that the tests of the audit log share with those of conversations."""

from __future__ import annotations

from tests.conversations.conftest import scripted_host

__all__ = ["scripted_host"]
