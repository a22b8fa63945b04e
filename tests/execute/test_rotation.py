"""cold: at least 4 × L2 between two uses of one input, however small a launch is; warm: never."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from occupancy_probe.execute.rotation import MOST_LAUNCHES, plan_rotation

sizes = st.integers(1, 10**9)


@given(sizes, st.integers(10**6, 2 * 10**8), st.sampled_from(["cold", "eager"]))
def test_four_times_the_cache_pass_between_two_uses(size, l2, regime):
    found = plan_rotation(size, l2, regime)
    assert found.sets * size + found.swept_bytes >= 4 * l2
    assert 2 <= found.sets <= MOST_LAUNCHES
    assert found.launches == found.sets
    if size * MOST_LAUNCHES >= 4 * l2:
        assert found.swept_bytes == 0


@given(sizes, sizes)
def test_warm_uses_one_input_again_and_again(size, l2):
    found = plan_rotation(size, l2, "warm")
    assert (found.sets, found.launches, found.swept_bytes) == (1, MOST_LAUNCHES, 0)


def test_the_flagship_on_an_h200():
    c1, c96 = (plan_rotation(b, 60_000_000, "cold") for b in (409_156, 39_278_976))
    assert (c1.sets, c1.swept_bytes) == (16, 240_000_000 - 16 * 409_156)
    assert (c96.sets, c96.swept_bytes) == (7, 0)
