"""A provider that breaks in every way, and the durability suite over it.

`provider` listens for real HTTP and speaks the four wire formats (`wires`). A message
of a person carries a wish, which names a scenario; the ledger records the provider's
requests and which answers it sent in full; the checker compares them with what the
server stored. `python -m tests.chaos` runs it with random interruptions.

As a Django app it brings the tools that the scenarios call.
"""

from __future__ import annotations
