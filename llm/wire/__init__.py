"""The wire: providers' bytes to deltas to canonical events, and back. Pure.

Nothing here does IO, awaits, or knows Django.
"""

from __future__ import annotations
