"""Each test begins without leases of this process and without cached limits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conversations.access.limits import applicable
from conversations.access.limits.upkeep import return_leases


@pytest.fixture(autouse=True)
def _no_limits_of_before(transactional_db: None) -> Iterator[None]:
    applicable.clear_cache()
    yield
    return_leases()
    applicable.clear_cache()
