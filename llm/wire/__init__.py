"""The wire: providers' bytes to deltas to canonical events, and back. Pure.

Nothing in this package does IO, awaits, or imports Django.
"""

from __future__ import annotations
