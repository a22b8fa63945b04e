"""Sparse MLA decode for DeepSeek-V4-Flash: split-KV attention over a paged fp8 cache, then a merge.

Each request attends to the cache rows its index row names. A row is both key and value: 512 wide,
448 NoPE dimensions in e4m3 with one power-of-two scale per 64 and 64 RoPE dimensions in bf16.
The row is handled as eight groups of 64 dimensions, seven scaled ones and RoPE as the eighth.

A page of P tokens is ``[P × 576 B data][P × 8 B scales]``, padded to a multiple of 576 B. Data are
448 e4m3 bytes and 64 bf16; scales are seven E8M0 bytes, 2^(b - 127), and one undefined byte.

This file imports Triton only: compile jobs load it without torch and without a GPU.
"""

import triton
import triton.language as tl
from triton.language.target_info import is_cuda

HEAD_DIM = tl.constexpr(512)
GROUP = tl.constexpr(64)
NOPE_GROUPS = tl.constexpr(7)
NOPE_BYTES = tl.constexpr(448)
DATA_BYTES = tl.constexpr(576)
SCALE_BYTES = tl.constexpr(8)

_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
_LN_2 = tl.constexpr(0.6931471805599453)
_LOG2_E = tl.constexpr(1.4426950408889634)

# Four e4m3 in $2 to four bf16 in $0 and $1, times the scale, packed twice in $3. Every step is
# exact: e4m3 is a subset of f16, f16 of f32, and at most four significant bits are left to round.
_E4M3X4_TO_SCALED_BF16X4 = tl.constexpr("""
{
    .reg .b16 low, high, h0, h1, h2, h3;
    .reg .b32 p, q;
    .reg .f32 f0, f1, f2, f3;
    mov.b32 {low, high}, $2;
    cvt.rn.f16x2.e4m3x2 p, low;
    cvt.rn.f16x2.e4m3x2 q, high;
    mov.b32 {h0, h1}, p;
    mov.b32 {h2, h3}, q;
    cvt.f32.f16 f0, h0;
    cvt.f32.f16 f1, h1;
    cvt.f32.f16 f2, h2;
    cvt.f32.f16 f3, h3;
    cvt.rn.bf16x2.f32 p, f1, f0;
    cvt.rn.bf16x2.f32 q, f3, f2;
    mul.rn.bf16x2 $0, p, $3;
    mul.rn.bf16x2 $1, q, $3;
}
""")


@triton.jit
def _row_offsets(index, PAGE_SIZE: tl.constexpr):
    """Byte offsets of a token's data and of its scales, 64 bits wide: a cache may exceed 2 GiB."""
    USED: tl.constexpr = PAGE_SIZE * (DATA_BYTES + SCALE_BYTES)
    PAGE_STRIDE: tl.constexpr = (USED + DATA_BYTES - 1) // DATA_BYTES * DATA_BYTES
    page = (index // PAGE_SIZE).to(tl.int64) * PAGE_STRIDE
    slot = index % PAGE_SIZE
    return page + slot * DATA_BYTES, page + (PAGE_SIZE * DATA_BYTES + slot * SCALE_BYTES)


@triton.jit
def _scaled(raw, exponent):
    """``raw`` (e4m3 bytes) × 2^(exponent - 127) in bf16; exponent byte 0 counts as a scale of zero.

    The assembly is declared impure although it is not. Triton moves a pure operation behind the
    layout conversions of the two dots: the tile is then dequantised twice, and transposed byte by
    byte through shared memory (sm_90, BLOCK_T 32, 4 warps, 1 stage: 1,422 instructions in the loop
    instead of 670). As it is, one bf16 tile in shared memory serves as key and as value.
    """
    if _INTERPRETED or not is_cuda():  # the same arithmetic where there is no PTX
        scale = (exponent << 23).to(tl.float32, bitcast=True)
        wide = raw.to(tl.float8e4nv, bitcast=True).to(tl.float32)
        return (wide * scale[:, None]).to(tl.bfloat16)
    twice = tl.broadcast_to((exponent * 0x0080_0080)[:, None], raw.shape)
    return tl.inline_asm_elementwise(
        _E4M3X4_TO_SCALED_BF16X4,
        "=r,=r,r,r,r,r,r",
        [raw, twice],
        dtype=tl.bfloat16,
        is_pure=False,
        pack=4,
    )


@triton.jit
def _gather(cache, index, valid, PAGE_SIZE: tl.constexpr):
    """The rows at ``index`` as eight bf16 tiles [BLOCK_T, 64]; zero where not valid (0 · NaN = NaN).

    Tiles of 64 columns keep one row per thread at BLOCK_T 32 and 4 warps: one address with
    immediate offsets serves all seven loads, and the eight scale bytes are a single 8-byte load.
    """
    data, scales = _row_offsets(tl.where(valid, index, 0), PAGE_SIZE)
    exponents = tl.load((cache + scales).to(tl.pointer_type(tl.int64)), mask=valid, other=0)
    columns = tl.arange(0, GROUP)[None, :]
    rope = (cache + NOPE_BYTES + data).to(tl.pointer_type(tl.bfloat16))
    rope = tl.load(rope[:, None] + columns, mask=valid[:, None], other=0.0)
    tiles = ()
    for g in tl.static_range(NOPE_GROUPS):
        raw = tl.load(cache + g * GROUP + (data[:, None] + columns), mask=valid[:, None], other=0)
        tiles += (_scaled(raw, (exponents >> (8 * g)).to(tl.int32) & 0xFF),)
    tiles += (rope,)
    return tiles


@triton.jit
def _mma_sparse_decode_split_kernel(
    q,  # bf16 [B, HEADS, 512]
    cache,  # uint8 [pages, page stride]
    indices,  # int32 [B, topk_rounded]: page · PAGE_SIZE + slot, -1 = no token
    lengths,  # int32 [B]: entries of the index row that count
    partial_out,  # bf16 [B, splits, HEADS, 512], normalised within its split
    partial_lse,  # f32 [B, splits, HEADS], base 2; -inf where the split is empty
    scale_log2,  # softmax scale · log2(e)
    topk_rounded,
    HEADS: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """One request, BLOCK_H heads and one split of the candidates. Grid (B, head blocks, splits)."""
    request = tl.program_id(0)
    split = tl.program_id(2)
    splits = tl.num_programs(2)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    is_head = head < HEADS
    columns = tl.arange(0, GROUP)[None, :]

    q_rows = q + (request * HEADS + head).to(tl.int64)[:, None] * HEAD_DIM + columns
    query = ()
    accumulator = ()
    for g in tl.static_range(NOPE_GROUPS + 1):
        query += (tl.load(q_rows + g * GROUP, mask=is_head[:, None], other=0.0),)
        accumulator += (tl.zeros([BLOCK_H, GROUP], tl.float32),)
    maximum = tl.full([BLOCK_H], float("-inf"), tl.float32)
    # Summed over tokens after the loop: one reduction across warps less per tile (H200, C64: -3 %).
    weight = tl.zeros([BLOCK_H, BLOCK_T], tl.float32)

    length = tl.minimum(tl.load(lengths + request), topk_rounded)
    share = tl.cdiv(tl.cdiv(length, splits), BLOCK_T) * BLOCK_T
    begin = split * share
    end = tl.minimum(begin + share, length)
    row = indices + request.to(tl.int64) * topk_rounded
    offset = begin + tl.arange(0, BLOCK_T)
    upcoming = tl.load(row + offset, mask=offset < end, other=-1)

    for _ in range(begin, end, BLOCK_T):
        # Indices one tile ahead: a gather waits for one memory latency, not two (H200, C64: -6 %).
        index = upcoming
        offset += BLOCK_T
        upcoming = tl.load(row + offset, mask=offset < end, other=-1)

        valid = index >= 0
        tiles = _gather(cache, index, valid, PAGE_SIZE)

        # Two chains of four dots; eight independent dots took the same time on H200.
        even = tl.dot(query[0], tl.trans(tiles[0]))
        odd = tl.dot(query[1], tl.trans(tiles[1]))
        for g in tl.static_range(2, NOPE_GROUPS + 1, 2):
            even = tl.dot(query[g], tl.trans(tiles[g]), even)
            odd = tl.dot(query[g + 1], tl.trans(tiles[g + 1]), odd)
        logits = tl.where(valid[None, :], (even + odd) * scale_log2, float("-inf"))

        new_maximum = tl.maximum(maximum, tl.max(logits, 1))
        shift = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)  # -inf - -inf is NaN
        rescale = tl.exp2(maximum - shift)[:, None]
        p = tl.exp2(logits - shift[:, None])
        weight = weight * rescale + p
        p = p.to(tl.bfloat16)
        updated = ()
        for g in tl.static_range(NOPE_GROUPS + 1):
            updated += (tl.dot(p, tiles[g], accumulator[g] * rescale),)
        accumulator = updated
        maximum = new_maximum

    total = tl.sum(weight, 1)
    inverse = tl.where(total > 0.0, 1.0 / total, 0.0)[:, None]
    destination = ((request * splits + split) * HEADS + head).to(tl.int64)
    tl.store(partial_lse + destination, maximum + tl.log2(total), mask=is_head)
    out_rows = partial_out + destination[:, None] * HEAD_DIM + columns
    for g in tl.static_range(NOPE_GROUPS + 1):
        out = (accumulator[g] * inverse).to(tl.bfloat16)
        tl.store(out_rows + g * GROUP, out, mask=is_head[:, None])


@triton.jit(do_not_specialize=["splits"])
def _sparse_decode_combine_kernel(
    partial_out,  # bf16 [B, splits, HEADS, 512]
    partial_lse,  # f32 [B, splits, HEADS], base 2
    sink,  # f32 [HEADS]: logit that joins the denominator and has no value
    out,  # bf16 [B, HEADS, 512]
    lse,  # f32 [B, HEADS], natural
    splits,
    HEADS: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Merge the splits of one request and head, and apply the sink, once. Grid (B, HEADS, 512 / BLOCK_D).

    ``lse`` is of the candidates alone, without the sink. A row without a valid candidate has
    out 0 and lse -inf, whatever the sink.
    """
    request = tl.program_id(0)
    head = tl.program_id(1)
    split = tl.arange(0, BLOCK_S)
    present = split < splits
    source = ((request * splits + split) * HEADS + head).to(tl.int64)
    columns = tl.program_id(2) * BLOCK_D + tl.arange(0, BLOCK_D)

    partial = tl.load(partial_lse + source, mask=present, other=float("-inf"))
    rows = partial_out + source[:, None] * HEAD_DIM + columns[None, :]
    values = tl.load(rows, mask=present[:, None], other=0.0).to(tl.float32)

    maximum = tl.max(partial, 0)
    shift = tl.where(maximum == float("-inf"), 0.0, maximum)
    weight = tl.exp2(partial - shift)
    total = tl.sum(weight, 0)
    denominator = total + tl.exp2(tl.load(sink + head) * _LOG2_E - shift)
    inverse = tl.where(total > 0.0, 1.0 / denominator, 0.0)
    merged = tl.sum(values * weight[:, None], 0) * inverse

    destination = (request * HEADS + head).to(tl.int64)
    tl.store(out + destination * HEAD_DIM + columns, merged.to(tl.bfloat16))
    if tl.program_id(2) == 0:
        tl.store(lse + destination, (maximum + tl.log2(total)) * _LN_2)


# The configs and the key of the public sm_120 kernel of this job. The key sees neither the batch
# nor the heads: the first batch size to arrive chooses for all.
_mma_sparse_decode_split_kernel_autotuned = triton.autotune(
    configs=[
        triton.Config({"BLOCK_T": 16}, num_warps=4, num_stages=2),
        triton.Config({"BLOCK_T": 16}, num_warps=8, num_stages=2),
        triton.Config({"BLOCK_T": 32}, num_warps=8, num_stages=2),
    ],
    key=["topk_rounded"],
)(_mma_sparse_decode_split_kernel)
