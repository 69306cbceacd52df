"""An app whose tools leave a trace of each of their effects, and may crash at it."""

from __future__ import annotations
