"""Residency arithmetic: known values, and properties that hold for any kernel on any target."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from occupancy_probe.gpu import (
    bytes_in_flight_needed,
    device,
    limits,
    occupancy,
    shared_padding,
    target,
    targets,
    waves,
)

any_target = st.sampled_from(list(targets().values()))
any_registers = st.integers(0, 600)
any_warps = st.integers(1, 40)
any_shared = st.integers(0, 300_000)


def test_attention_kernel_on_sm_90_is_limited_by_registers_and_shared_memory_alike():
    found = occupancy(target("sm_90"), registers=249, num_warps=4, shared_bytes=82_176)
    assert found.ctas_per_sm == 2
    assert found.warps_per_sm == 8
    assert found.occupancy == 8 / 64
    assert found.limiter == ("registers", "shared memory")
    assert found.by == {"registers": 2, "shared memory": 2, "warps": 16, "CTA slots": 32}


def test_padding_to_204800_bytes_leaves_one_cta_on_sm_90():
    found = occupancy(target("sm_90"), 249, 4, 204_800)
    assert (found.ctas_per_sm, found.limiter) == (1, ("shared memory",))


def test_the_same_kernel_has_one_cta_on_sm_120():
    found = occupancy(target("sm_120"), 249, 4, 82_176)
    assert (found.ctas_per_sm, found.limiter) == (1, ("shared memory",))


@pytest.mark.parametrize(
    ("name", "registers", "num_warps", "shared_bytes", "ctas", "limiter"),
    [
        ("sm_90", 32, 1, 0, 32, ("CTA slots",)),
        ("sm_90", 32, 8, 0, 8, ("registers", "warps")),
        ("sm_90", 40, 8, 0, 6, ("registers",)),
        ("sm_90", 32, 4, 13_568, 16, ("registers", "shared memory", "warps")),
        ("sm_90", 32, 4, 13_569, 15, ("shared memory",)),  # one byte starts another 128 B
        ("sm_86", 32, 1, 0, 16, ("CTA slots",)),
        ("sm_75", 32, 4, 8192, 8, ("shared memory", "warps")),  # nothing reserved
        ("sm_75", 32, 4, 9300, 6, ("shared memory",)),  # units of 256 B
        ("sm_120", 32, 8, 101_376, 1, ("shared memory",)),
        ("sm_120", 32, 8, 101_377, 0, ("shared memory",)),
        ("sm_90", 255, 32, 0, 0, ("registers",)),
        ("sm_90", 168, 9, 0, 1, ("registers",)),
        ("sm_90", 176, 9, 0, 0, ("registers",)),  # launch check counts 9 warps as 12
        ("sm_90", 256, 1, 0, 0, ("registers",)),
        ("sm_90", 32, 33, 0, 0, ("warps",)),  # 1,056 threads
        ("gfx942", 64, 4, 0, 8, ("registers", "warps")),
        ("gfx942", 65, 4, 0, 7, ("registers",)),
        ("gfx942", 256, 4, 0, 2, ("registers",)),
        ("gfx942", 513, 4, 0, 0, ("registers",)),
        ("gfx942", 64, 4, 32_768, 2, ("shared memory",)),
        ("gfx950", 64, 4, 32_768, 4, ("shared memory",)),  # 33,280 B in units of 1,280 B
    ],
)
def test_known_values(name, registers, num_warps, shared_bytes, ctas, limiter):
    found = occupancy(target(name), registers, num_warps, shared_bytes)
    assert (found.ctas_per_sm, found.limiter) == (ctas, limiter)


@given(any_target, any_registers, any_warps, any_shared)
def test_what_is_resident_fits_and_the_limiter_attains_the_minimum(t, registers, w, shared):
    found = occupancy(t, registers, w, shared)
    ctas = found.ctas_per_sm
    assert ctas * w * t.warp_size * registers <= t.registers_per_sm
    assert ctas * (shared + t.reserved_shared_bytes) <= t.shared_per_sm_bytes
    assert found.warps_per_sm == ctas * w <= t.max_warps_per_sm
    assert ctas <= t.max_ctas_per_sm
    assert 0 <= found.occupancy <= 1
    assert ctas == min(found.by.values())
    assert found.limiter
    assert set(found.limiter) == {term for term, most in found.by.items() if most == ctas}


@given(any_target, any_registers, any_warps, any_shared, st.data())
def test_more_of_anything_never_gives_more_ctas(t, registers, w, shared, data):
    more = (
        data.draw(st.integers(registers, 600)),
        data.draw(st.integers(w, 40)),
        data.draw(st.integers(shared, 300_000)),
    )
    assert occupancy(t, *more).ctas_per_sm <= occupancy(t, registers, w, shared).ctas_per_sm


@given(any_target, any_registers, any_warps, any_shared)
def test_no_limit_is_exceeded_exactly_if_a_cta_fits(t, registers, w, shared):
    fits = occupancy(t, registers, w, shared).ctas_per_sm > 0
    assert fits == (not limits(t, shared, w * t.warp_size, registers, 0))


@given(any_target, any_shared, st.integers(1, 32))
def test_padding_gives_exactly_that_many_ctas(t, shared, ctas):
    try:
        padded = shared_padding(t, shared, ctas)
    except ValueError:
        assume(False)
    assert shared <= padded <= t.shared_per_block_bytes
    assert occupancy(t, 1, 1, padded).by["shared memory"] == ctas
    assert not limits(t, padded, t.warp_size, 1, 0)


@pytest.mark.parametrize("name", [name for name in targets() if name.startswith("sm_")])
def test_every_dose_up_to_the_cta_slots_can_be_padded_on_nvidia(name):
    t = target(name)
    for ctas in range(1, t.max_ctas_per_sm + 1):
        padded = shared_padding(t, 0, ctas)
        assert occupancy(t, 1, 1, padded).ctas_per_sm == ctas


def test_padding_fills_the_sm_and_never_cuts_what_the_kernel_needs():
    sm_90 = target("sm_90")
    assert shared_padding(sm_90, 82_176, 1) == 232_448
    assert shared_padding(sm_90, 82_176, 2) == 115_712
    with pytest.raises(ValueError, match="do not fit sm_90 x 3"):
        shared_padding(sm_90, 82_176, 3)
    with pytest.raises(ValueError, match="1 to 32 CTAs"):
        shared_padding(sm_90, 0, 0)
    with pytest.raises(ValueError, match="no size"):
        shared_padding(target("gfx942"), 0, 31)  # 128 units: four each hold 32, five hold 25


def test_limits_name_the_figure_the_bound_and_the_target():
    (excess,) = limits(target("sm_120"), 147_456, 128, 255, 0)
    assert (excess.limit, excess.required, excess.allowed) == ("shared memory", 147_456, 101_376)
    assert excess.text == "shared memory 147,456 B > 101,376 B per block on sm_120"


def test_limits_report_all_that_are_exceeded():
    assert [excess.text for excess in limits(target("sm_90"), 0, 2048, 300, 128)] == [
        "threads 2,048 > 1,024 per CTA on sm_90",
        "registers per thread 300 > 255 on sm_90",
        "registers per CTA 622,592 > 65,536 on sm_90",
        "tensor memory 128 columns > 0 columns on sm_90",
    ]
    assert limits(target("sm_100"), 232_448, 1024, 64, 512) == ()
    assert limits(target("sm_90"), 0, 0, 0, 0) == ()


def test_F10_a_grid_of_8_ctas_leaves_one_per_sm_so_occupancy_arms_cannot_matter():
    sms = device("RTX PRO 6000 Blackwell").sm_count
    arms = [waves(8, sms, ctas_per_sm) for ctas_per_sm in (1, 2, 6)]
    assert [arm.resident_ctas_per_sm for arm in arms] == [1, 1, 1]
    assert [arm.resident_warps_per_sm(8) for arm in arms] == [8, 8, 8]
    assert [arm.grid_limited for arm in arms] == [False, True, True]
    assert arms[0].waves == 8 / 188


def test_C48_with_4_splits_needs_a_second_wave_for_4_ctas():
    found = waves(48 * 4, 188, 1)
    assert found.count == 2
    assert round(found.fill, 2) == 0.51
    assert not found.grid_limited


@given(st.integers(1, 10**7), st.integers(1, 400), st.integers(1, 32))
def test_waves_hold_the_grid(ctas, sms, ctas_per_sm):
    found = waves(ctas, sms, ctas_per_sm)
    assert (found.count - 1) * sms * ctas_per_sm < ctas <= found.count * sms * ctas_per_sm
    assert 0 < found.fill <= 1
    assert 1 <= found.resident_ctas_per_sm <= ctas_per_sm
    assert found.grid_limited == (found.resident_ctas_per_sm < ctas_per_sm)


def test_a_grid_that_just_fills_the_device_is_one_full_wave():
    assert waves(264, 132, 2).fill == 1
    assert waves(264, 132, 2).count == 1


@pytest.mark.parametrize("arguments", [(0, 132, 1), (8, 0, 1), (8, 132, 0)])
def test_waves_of_nothing_are_an_error(arguments):
    with pytest.raises(ValueError, match="at least one"):
        waves(*arguments)


@pytest.mark.parametrize("arguments", [(32, 0, 0), (-1, 4, 0), (32, 4, -1)])
def test_a_cta_without_warps_or_with_negative_resources_is_an_error(arguments):
    with pytest.raises(ValueError, match="at least one warp"):
        occupancy(target("sm_90"), *arguments)


def test_littles_law_in_nanoseconds_and_gigabytes_per_second():
    assert bytes_in_flight_needed(latency_ns=600, bandwidth_gb_s=4800) == 2_880_000
