from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llm.telemetry.percentiles import nearest_rank


@given(st.lists(st.floats(0, 1000), min_size=1), st.integers(1, 100))
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(values, percent):
    found = nearest_rank(values, percent)
    assert found in values
    assert sum(v <= found for v in values) >= len(values) * percent / 100


def test_there_is_no_percentile_without_values():
    assert nearest_rank([], 50) is None
