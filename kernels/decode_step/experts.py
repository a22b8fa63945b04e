"""Routed experts as two grouped matrix products: gate and up with SiLU, then down.

Tokens are grouped by expert into tiles of 16 rows, the smallest that a tensor core takes: in decoding
an expert sees two or three tokens, so time is that of reading the experts' weights once. Weights are
e4m3 bytes with one scale; a slot is one (token, chosen expert) pair.

This file imports Triton only, as every kernel file here.
"""

import triton
import triton.language as tl

BLOCK_M = tl.constexpr(16)


@triton.jit
def _weights(pointer):
    """e4m3 bytes as bf16, exactly."""
    return tl.load(pointer).to(tl.float8e4nv, bitcast=True).to(tl.bfloat16)


@triton.jit
def _experts_up_kernel(
    x,  # bf16 [tokens, WIDTH_IN]
    weights,  # uint8 [experts, 2, WIDTH_OUT, WIDTH_IN]: gate, up
    tile_expert,  # int32 [tiles], -1 = no tile
    tile_slots,  # int32 [tiles, 16], -1 = no row
    out,  # bf16 [slots, WIDTH_OUT]
    scale,  # f32: value of one unit of the weights
    PER_TOKEN: tl.constexpr,
    WIDTH_IN: tl.constexpr,
    WIDTH_OUT: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """silu(x · gate) · (x · up) for one tile and BLOCK_N columns. Grid (tiles, WIDTH_OUT / BLOCK_N)."""
    tile = tl.program_id(0)
    expert = tl.load(tile_expert + tile).to(tl.int64)
    if expert < 0:
        return
    slot = tl.load(tile_slots + tile * BLOCK_M + tl.arange(0, BLOCK_M))
    used = slot >= 0
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    rows = x + (tl.maximum(slot, 0) // PER_TOKEN)[:, None] * WIDTH_IN + inner[None, :]
    gates = weights + expert * (2 * WIDTH_OUT * WIDTH_IN)
    gates += columns[None, :] * WIDTH_IN + inner[:, None]
    gate = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    up = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(0, WIDTH_IN, BLOCK_K):
        values = tl.load(rows + k, mask=used[:, None], other=0.0)
        gate = tl.dot(values, _weights(gates + k), gate)
        up = tl.dot(values, _weights(gates + WIDTH_OUT * WIDTH_IN + k), up)
    gate, up = gate * scale, up * scale
    hidden = gate / (1.0 + tl.exp(-gate)) * up
    places = out + slot[:, None].to(tl.int64) * WIDTH_OUT + columns[None, :]
    tl.store(places, hidden.to(tl.bfloat16), mask=used[:, None])


@triton.jit
def _experts_down_kernel(
    hidden,  # bf16 [slots, WIDTH_IN]
    weights,  # uint8 [experts, WIDTH_OUT, WIDTH_IN]
    tile_expert,  # int32 [tiles], -1 = no tile
    tile_slots,  # int32 [tiles, 16], -1 = no row
    slot_weight,  # f32 [slots]: the router's weight
    out,  # bf16 [slots, WIDTH_OUT]
    scale,  # f32
    WIDTH_IN: tl.constexpr,
    WIDTH_OUT: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """(hidden · down) × router's weight for one tile. Grid (tiles, WIDTH_OUT / BLOCK_N)."""
    tile = tl.program_id(0)
    expert = tl.load(tile_expert + tile).to(tl.int64)
    if expert < 0:
        return
    slot = tl.load(tile_slots + tile * BLOCK_M + tl.arange(0, BLOCK_M))
    used = slot >= 0
    row = tl.maximum(slot, 0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    rows = hidden + row[:, None] * WIDTH_IN + inner[None, :]
    down = weights + expert * (WIDTH_OUT * WIDTH_IN)
    down += columns[None, :] * WIDTH_IN + inner[:, None]
    result = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(0, WIDTH_IN, BLOCK_K):
        values = tl.load(rows + k, mask=used[:, None], other=0.0)
        result = tl.dot(values, _weights(down + k), result)
    result = result * (tl.load(slot_weight + row) * scale)[:, None]
    places = out + row[:, None] * WIDTH_OUT + columns[None, :]
    tl.store(places, result.to(tl.bfloat16), mask=used[:, None])
