"""An app whose tools wait for their end and note it, and which hears hints badly where
`DROP_HINTS` says so."""

from __future__ import annotations
