"""Prefetch depth and work of the main loop, from TTGIR as Triton prints it (shortened)."""

from __future__ import annotations

import pytest

from occupancy_probe.research.pipeline import Pipeline, read_pipeline

HEAD = """module {
  tt.func public @k() attributes {noinline = false} {
    %i = ttg.local_alloc : () -> !ttg.memdesc<NxN2xi32, #s1, #smem, mutable> loc(#loc1)
    %kv = ttg.local_alloc : () -> !ttg.memdesc<Nx32x128xbf16, #s, #smem, mutable> loc(#loc1)
    %kv_1 = ttg.memdesc_index %kv[%c0] : !ttg.memdesc<Nx32x128xbf16, #s> -> !ttg.memdesc<32x128xbf16, #s> loc(#loc1)
"""
ASYNC = (
    HEAD
    + """
    %r:2 = scf.for %x = %c0 to %n step %c32 iter_args(%acc = %z, %k = %t) -> (tensor<16x128xf32>, i32)  : i32 {
      %s = tt.dot %q, %kt, %z : tensor<16x128xbf16, #d<{a = 0}>> * tensor<128x32xbf16, #d> -> tensor<16x32xf32, #m> loc(#loc2)
      %o = tt.dot %p, %v, %acc : tensor<16x32xbf16, #d> * tensor<32x128xbf16, #d> -> tensor<16x128xf32, #m> loc(#loc2)
      %a = scf.if %c -> (i32) {
        scf.yield %one : i32
      } else {
        scf.yield %two : i32
      }
      %l = ttg.async_copy_global_to_local %g, %kv_1 mask %m {contiguity = 8 : i32} : tensor<32x128x!tt.ptr<bf16>, #b> -> <32x128xbf16, #s, #smem, mutable> loc(#loc2)
      scf.yield %o, %k2 : tensor<16x128xf32>, i32
    }
    tt.return
  }
}
"""
)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_an_asynchronous_copy_is_as_deep_as_its_pool(depth):
    text = ASYNC.replace("<Nx", f"<{depth}x")
    tile = 32 * 128 * 2
    assert read_pipeline(text) == Pipeline(
        flop=2 * 16 * 128 * 32 * 2, loaded_bytes=tile, depth=depth, in_flight_bytes=depth * tile
    )


def loop(body, yields="%o", arguments="%acc = %z"):
    return f"""
    %r = scf.for %x = %c0 to %n step %c1 iter_args({arguments}) -> (tensor<16x16xf32>)  : i32 {{
      %o = tt.dot %p, %v, %acc : tensor<16x32xf8E4M3FN> * tensor<32x16xf8E4M3FN> -> tensor<16x16xf32> loc(#l)
{body}
      scf.yield {yields} : tensor<16x16xf32> loc(#l)
    }}
"""


LOAD = "      %v2 = tt.load %ptr, %mask : tensor<32x16x!tt.ptr<f8E4M3FN>, #b> loc(#l)"


def test_a_load_that_its_own_pass_waits_for_has_depth_0_and_one_tile_in_flight():
    assert read_pipeline(loop(LOAD)) == Pipeline(2 * 16 * 32 * 16, 512, 0, 512)


def test_a_load_carried_in_registers_is_as_deep_as_it_is_carried():
    once = loop(LOAD, "%o, %v2", "%acc = %z, %v = %v0")
    twice = loop(LOAD, "%o, %later, %v2", "%acc = %z, %v = %v0, %later = %v1")
    assert [read_pipeline(t).depth for t in (once, twice)] == [1, 2]
    assert read_pipeline(twice).in_flight_bytes == 2 * 512


def test_a_load_stored_to_a_pool_through_registers_counts_the_pool():
    body = (
        LOAD
        + """
      %t = ttg.convert_layout %v2 : tensor<32x16xf8E4M3FN> -> tensor<32x16xf8E4M3FN>
      %w = ttg.memdesc_index %pool[%i] : !ttg.memdesc<2x32x16xf8E4M3FN> -> !ttg.memdesc<32x16xf8E4M3FN>
      ttg.local_store %t, %w : tensor<32x16xf8E4M3FN> -> !ttg.memdesc<32x16xf8E4M3FN>"""
    )
    pool = (
        "    %pool = ttg.local_alloc : () -> !ttg.memdesc<2x32x16xf8E4M3FN, #s, #smem, mutable>\n"
    )
    assert read_pipeline(pool + loop(body)).depth == 2


def test_scalars_are_no_tiles_and_kernels_without_a_loading_loop_have_no_pipeline():
    assert read_pipeline(loop("      %s = tt.load %p : !tt.ptr<i32> loc(#l)")) is None
    assert read_pipeline(LOAD) is None
