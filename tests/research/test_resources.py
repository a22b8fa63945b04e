"""ptxas' words become figures, and machine code gets an identity that ignores names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_probe.exc import RecordError
from occupancy_probe.gpu import target
from occupancy_probe.launch.compile import compile_specialization
from occupancy_probe.records import Specialization
from occupancy_probe.research.resources import Resources, code_digest, parse_ptxas_log

LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'kernel' for 'sm_90a'
ptxas info    : Function properties for kernel
    {frame} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used {barriers} barriers, {constant} bytes cmem[0]
ptxas info    : Compile time = 9.1 ms
"""

sizes = st.integers(0, 10**7)


@given(sizes, sizes, sizes, st.integers(1, 255), st.integers(0, 16), sizes)
def test_figures_come_back(frame, stores, loads, registers, barriers, constant):
    log = LOG.format(
        frame=frame,
        stores=stores,
        loads=loads,
        registers=registers,
        barriers=barriers,
        constant=constant,
    )
    assert parse_ptxas_log(log) == Resources(registers, frame, stores, loads)


@given(st.lists(st.tuples(sizes, sizes, sizes, st.integers(1, 255)), min_size=1, max_size=4))
def test_frames_of_device_functions_are_added_and_registers_are_the_most(functions):
    log = "".join(
        LOG.format(frame=f, stores=s, loads=d, registers=r, barriers=0, constant=0)
        for f, s, d, r in functions
    )
    frames, stores, loads, registers = zip(*functions, strict=True)
    assert parse_ptxas_log(log) == Resources(max(registers), sum(frames), sum(stores), sum(loads))


@given(st.text(max_size=200).filter(lambda t: "Used " not in t))
def test_a_log_without_figures_says_what_ptxas_said(text):
    with pytest.raises(RecordError, match="ptxas reported no registers; it said: "):
        parse_ptxas_log(text)


SOURCE = """
import triton
import triton.language as tl

@triton.jit
def {name}(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) {operation})
"""


@pytest.fixture(scope="module")
def binary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("names")
    made = {}

    def compiled(name, operation="* 2.0", blank=0, block=128):
        key = (name, operation, blank, block)
        if key not in made:
            file = f"kernel_{len(made)}.py"
            (folder / file).write_text("\n" * blank + SOURCE.format(name=name, operation=operation))
            spec = Specialization(
                file=file,
                kernel=name,
                signature={"x": "*fp32", "y": "*fp32", "BLOCK": "constexpr"},
                constants=[([2], block)],
                attributes=[([i], [["tt.divisibility", 16]]) for i in (0, 1)],
                options={"num_warps": 4},
            )
            made[key] = compile_specialization(folder, spec, target("sm_90")).cubin
        return made[key]

    return compiled


def test_names_and_lines_do_not_count(binary):
    one, other = binary("twice"), binary("doubled_under_a_longer_name", blank=40)
    assert one != other
    assert code_digest(one, 128, 1, 0, 0) == code_digest(other, 128, 1, 0, 0)


def test_code_counts(binary):
    assert code_digest(binary("twice"), 128) != code_digest(binary("twice", "* 3.0"), 128)
    assert code_digest(binary("twice"), 128) != code_digest(binary("twice", block=256), 128)


def test_the_launch_counts(binary):
    cubin = binary("twice")
    assert code_digest(cubin, 128, 1, 0, 0) != code_digest(cubin, 256, 1, 0, 0)
    assert code_digest(cubin, 128, 1, 0, 0) != code_digest(cubin, 128, 1, 1024, 0)
