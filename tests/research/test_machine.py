"""Machine code read from listings: loops by control flow, instructions by kind."""

from __future__ import annotations

from occupancy_probe.research.machine import Instruction, count, read_amdgcn, read_sass
from occupancy_probe.research.resources import only_traps, parse_amdgcn

SASS = """
        /*0000*/                   LDC R1, c[0x0][0x37c] ;
        /*0010*/              @!P0 BRA 0x90 ;
        /*0020*/                   LDGSTS.E.BYPASS.128 [R4], desc[UR4][R2.64] ;
        /*0030*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0 ;
        /*0040*/              @!P0 BRA 0x30 ;
        /*0050*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0060*/                   HMMA.16816.F32.BF16 R4, R8, R10, R4 ;
        /*0070*/                   HMMA.16816.F32.BF16 R4, R8, R10, R4 ;
        /*0080*/               @P0 BRA 0x20 ;
        /*0090*/                   EXIT ;
        /*00a0*/                   BRA 0xa0 ;
        /*00b0*/                   NOP ;
        /*00c0*/                   BPT.TRAP 0x1 ;
        /*00d0*/                   BRA 0xd0 ;
"""
AMD = """
kernel:
\ts_load_dwordx2 s[0:1], s[4:5], 0x0
\ts_branch .LBB0_2
.LBB0_1:                                ; =>This Inner Loop Header: Depth=1
\tglobal_load_lds_dwordx4 v[0:1], off
\tbuffer_load_dword v1, s[0:3], 0 offen lds
\ts_barrier
\tv_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]
\ts_cbranch_scc1 .LBB0_1
.LBB0_2:
\t.p2align 8
\ts_endpgm
\tv_nop
    .agpr_count:     6
    .private_segment_fixed_size: 16
    .sgpr_count:     22
    .vgpr_count:     262
    .vgpr_spill_count: 3
"""


def test_a_kernel_and_its_main_loop():
    code, trap = read_sass(SASS, [0xC0, 0x20])
    found = count(code)
    assert (found.async_copies, found.barriers) == ({"LDGSTS": 1}, {"BAR": 1, "SYNCS": 1})
    assert found.mma == {"HMMA.16816.F32.BF16": 2}
    assert found.loop is not None
    assert (found.loop.instructions, found.loop.mma) == (7, 2)
    assert found.instructions == 11
    assert [i.opcode for i in trap] == ["BPT.TRAP", "BRA"]
    assert count(trap).loop is None


def test_the_innermost_loop_with_the_most_mma_is_the_main_one():
    def run(first, opcodes, back):
        body = [Instruction(first + i, o) for i, o in enumerate(opcodes)]
        return [*body, Instruction(first + len(opcodes), "BRA", back)]

    small = run(1, ["QMMA.16832"], 1)
    large = run(10, ["QMMA.16832", "QMMA.16832", "MOV"], 10)
    copy = run(20, ["LDG"] * 9, 20)
    outer = [Instruction(40, "BRA", 0)]
    loop = count([Instruction(0, "MOV"), *small, *large, *copy, *outer]).loop
    assert loop is not None
    assert (loop.instructions, loop.mma) == (4, 2)


def test_without_mma_the_longest_innermost_loop_counts():
    code = [Instruction(i, "LDG") for i in range(9)]
    code += [Instruction(9, "BRA", 4), Instruction(10, "BRA", 0)]
    loop = count(code).loop
    assert loop is not None
    assert loop.instructions == 6


def test_amd_assembly():
    found = count(read_amdgcn(AMD))
    assert found.async_copies == {"buffer_load_lds": 1, "global_load_lds_dwordx4": 1}
    assert found.barriers == {"s_barrier": 1}
    assert found.mma == {"v_mfma_f32_16x16x16_bf16": 1}
    assert found.loop is not None
    assert (found.loop.instructions, found.instructions) == (5, 7)


def test_amd_resources_count_accumulation_registers_once():
    used = parse_amdgcn(AMD)
    assert (used.registers, used.vgprs, used.agprs, used.sgprs) == (262, 256, 6, 22)
    assert (used.stack_bytes, used.spill_store_bytes) == (16, 12)


def test_a_body_that_only_traps_is_told_from_one_that_may():
    assert only_traps(".visible .entry k()\n{\n\ttrap;\n}\n")
    assert not only_traps(".visible .entry k()\n{\n\t@%p1 bra $L;\n\ttrap;\n$L:\n\tret;\n}\n")
    assert not only_traps(".visible .entry k()\n{\n\tret;\n}\n")
