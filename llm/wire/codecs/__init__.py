"""A file a wire format."""

from __future__ import annotations
