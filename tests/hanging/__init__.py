"""An app whose tools wait for their end, and that can lose notifications."""

from __future__ import annotations
