"""The Problem of sparse MLA decode: inputs that hide what must not be read, and a float64 reference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from kernel import _mma_sparse_decode_split_kernel_autotuned, _sparse_decode_combine_kernel

from occupancy_probe.exc import ProblemError
from occupancy_probe.launch import Inputs, Problem, Tolerance, Traffic, forced, sm_count

HEAD_DIM = 512
NOPE_DIM = 448
GROUP = 64
DATA_BYTES = 576
SCALE_BYTES = 8
TOKEN_BYTES = DATA_BYTES + SCALE_BYTES

NAN_BYTE = 0xFF
"""NaN as e4m3, as E8M0 and, twice, as bf16: a cache filled with it poisons every field."""

CASES = (
    "all_invalid",
    "duplicates",
    "equal_logits",
    "far_pages",
    "holes",
    "large_logits",
    "last_slot",
    "one_split_invalid",
    "ragged",
    "sink_inf",
    "sink_minus_inf",
    "zero_length",
)

ISSUE_CLOCKS = 70
"""SM clocks per gathered token and 16 heads: the lowest of the static issue costs, 70 to 175, of
straightforward kernels of this job on sm_90. A yardstick that all arms share rather than a bound:
the loop of this kernel needs 21 (BLOCK_T 32, 4 warps: 670 instructions a warp, 4 schedulers)."""

SPLIT_TILE = 32
"""Tokens in which a split's share is counted, so that the split count does not depend on the arm."""

MAX_SPLITS = 32

PAIR_ROUND = 1.4
"""Time of two CTAs that share an SM over the time of one alone (H200, 4 warps)."""

PROLOGUE_TOKENS = 40
"""Start and end of a CTA, query and partial result included, in tokens of its loop (H200)."""

COMBINE_VALUES = 4096
"""Partial values per one-warp program of the merge (H200, C96, 4 splits: 1 warp 3.1 µs, 4 warps 9.5)."""


class SparseMlaDecode(Problem):
    """One layer's decode attention for ``concurrency`` requests of one new token each.

    Workload axes: ``concurrency``; ``topk`` and ``window``, whose sum is the length of an index
    row; ``context``, tokens per request in the cache; ``case``, one of :data:`CASES`.
    """

    kernel = _mma_sparse_decode_split_kernel_autotuned
    outputs = ("out", "lse", "partial_out", "partial_lse")
    tolerance: ClassVar[Mapping[str, Tolerance]] = {  # the gates of FlashMLA's own tests
        "out": Tolerance(absolute=1e-3, relative=2.01 / 128, cosine=5e-6, norm=4e-3),
        "lse": Tolerance(absolute=1e-6, relative=1.22e-4),
    }

    def __init__(
        self,
        model_heads: int = 64,
        tensor_parallel: int = 4,
        page_size: int = 64,
        context: int = 8192,
    ) -> None:
        if tensor_parallel < 1 or model_heads < 1 or model_heads % tensor_parallel:
            raise ProblemError(
                f"model_heads {model_heads} cannot be shared by tensor_parallel {tensor_parallel}: "
                "give a divisor"
            )
        if page_size < 1 or context < 1:
            raise ProblemError(f"page_size {page_size} and context {context} must be at least 1")
        self.heads = model_heads // tensor_parallel
        # One tensor-core tile has 16 rows; above 32 the accumulator no longer fits the registers.
        self.block_h = min(32, max(16, 1 << (self.heads - 1).bit_length()))
        self.head_blocks = -(-self.heads // self.block_h)
        self.page_size = page_size
        self.page_stride = math.ceil(page_size * TOKEN_BYTES / DATA_BYTES) * DATA_BYTES
        self.context = context

    def make_inputs(self, workload: Mapping[str, Any], device: str, seed: int) -> Inputs:
        axes = self._axes(workload)
        if axes.case == "far_pages" and torch.device(device).type == "cpu":
            raise ProblemError("case far_pages gathers beyond 2 GiB: it needs a GPU")
        rows, splits = axes.concurrency, self._splits(axes, device)
        pages = self._first_page(axes) + rows * self._pages_per_request(axes)
        bf16: dict[str, Any] = {"dtype": torch.bfloat16, "device": device}
        f32: dict[str, Any] = {"dtype": torch.float32, "device": device}
        i32: dict[str, Any] = {"dtype": torch.int32, "device": device}
        inputs: Inputs = {
            "q": torch.empty(rows, self.heads, HEAD_DIM, **bf16),
            "cache": torch.empty(pages, self.page_stride, dtype=torch.uint8, device=device),
            "indices": torch.empty(rows, axes.candidates_rounded, **i32),
            "lengths": torch.empty(rows, **i32),
            "sink": torch.empty(self.heads, **f32),
            "partial_out": torch.empty(rows, splits, self.heads, HEAD_DIM, **bf16),
            "partial_lse": torch.empty(rows, splits, self.heads, **f32),
            "out": torch.empty(rows, self.heads, HEAD_DIM, **bf16),
            "lse": torch.empty(rows, self.heads, **f32),
        }
        if inputs["q"].is_meta:
            return inputs
        inputs["cache"].fill_(NAN_BYTE)
        random = torch.Generator(device).manual_seed(seed)
        # Queries of size 8 against rows of size 1/8: logits of size 1, and values so small that
        # rounding the softmax weights to bf16 stays within the absolute gate.
        q_size = {"large_logits": 8e3, "equal_logits": 0.0}.get(axes.case, 8.0)
        inputs["q"].normal_(generator=random).mul_(q_size)
        inputs["sink"].normal_(generator=random)
        if axes.case == "sink_minus_inf":
            inputs["sink"].fill_(float("-inf"))
        if axes.case == "sink_inf":
            inputs["sink"][::2] = float("inf")  # the other half of the heads keep theirs
        self._select(inputs, axes, random)
        return inputs

    def rotate(self, inputs: Inputs, workload: Mapping[str, Any], seed: int) -> Inputs:
        """Other index rows into a cache of their own; queries, outputs and workspaces are shared.

        New rows into the same cache would meet slots that an earlier instance left in L2: at C1 the
        whole cache is 5 MB.
        """
        own = ("cache", "indices", "lengths")
        rotated = inputs | {name: torch.empty_like(inputs[name]) for name in own}
        if not rotated["q"].is_meta:
            rotated["cache"].fill_(NAN_BYTE)
            random = torch.Generator(inputs["cache"].device).manual_seed(seed)
            self._select(rotated, self._axes(workload), random)
        return rotated

    def redraw(self, inputs: Inputs, workload: Mapping[str, Any], seed: int) -> Inputs:
        """Other index rows into the same cache, for a caller that sees to cold caches itself."""
        drawn = inputs | {name: torch.empty_like(inputs[name]) for name in ("indices", "lengths")}
        if not drawn["q"].is_meta:
            random = torch.Generator(inputs["cache"].device).manual_seed(seed)
            self._select(drawn, self._axes(workload), random)
        return drawn

    def launch(self, inputs: Inputs, config: Mapping[str, Any]) -> None:
        rows, splits, heads = inputs["partial_lse"].shape
        forced(self.kernel, config)[rows, self.head_blocks, splits](
            inputs["q"],
            inputs["cache"],
            inputs["indices"],
            inputs["lengths"],
            inputs["partial_out"],
            inputs["partial_lse"],
            HEAD_DIM**-0.5 * math.log2(math.e),
            topk_rounded=inputs["indices"].shape[1],
            HEADS=heads,
            PAGE_SIZE=self.page_size,
            BLOCK_H=self.block_h,
        )
        block_s = 1 << (splits - 1).bit_length()
        block_d = min(HEAD_DIM, COMBINE_VALUES // block_s)
        _sparse_decode_combine_kernel[rows, heads, HEAD_DIM // block_d](
            inputs["partial_out"],
            inputs["partial_lse"],
            inputs["sink"],
            inputs["out"],
            inputs["lse"],
            splits,
            HEADS=heads,
            BLOCK_S=block_s,
            BLOCK_D=block_d,
            num_warps=1,
        )

    def reference(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        q = inputs["q"].double()
        sink = inputs["sink"].double()
        outs, lses = [], []
        for row in range(q.shape[0]):
            index = inputs["indices"][row, : int(inputs["lengths"][row])]
            tokens = self.dequantise(inputs["cache"], index[index >= 0].long())
            logits = q[row] @ tokens.T * HEAD_DIM**-0.5
            lse = logits.logsumexp(-1)
            # With an empty row every term below is an empty sum: out is 0 whatever the sink.
            weights = (logits - torch.logaddexp(lse, sink)[:, None]).exp()
            outs.append(weights @ tokens)
            lses.append(lse)
        return {"out": torch.stack(outs), "lse": torch.stack(lses)}

    def dequantise(self, cache: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """The rows at ``index`` (page · page size + slot) in float64 [n, 512]."""
        page, slot = index // self.page_size, index % self.page_size
        row = self._data(cache)[page, slot]
        nope = row[:, :NOPE_DIM].contiguous().view(torch.float8_e4m3fn).double()
        rope = row[:, NOPE_DIM:].contiguous().view(torch.bfloat16).double()
        exponent = self._scales(cache)[page, slot, : NOPE_DIM // GROUP].double() - 127
        nope = nope.unflatten(1, (-1, GROUP)) * exponent.exp2()[..., None]
        return torch.cat([nope.flatten(1), rope], 1)

    def traffic(self, workload: Mapping[str, Any]) -> Traffic:
        axes = self._axes(workload)
        tokens = axes.concurrency * axes.candidates
        query = axes.concurrency * self.heads * HEAD_DIM * 2
        row_metadata = axes.concurrency * (4 + 4 * self.heads)  # length, lse
        return Traffic(
            bytes=tokens * (TOKEN_BYTES + 4) + 2 * query + row_metadata,
            flop=tokens * self.heads * 2 * 2 * HEAD_DIM,
            sm_clocks=tokens * ISSUE_CLOCKS * self.head_blocks * self.block_h / 16,
        )

    def facts(self, workload: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        axes = self._axes(workload)
        facts = {
            "heads_per_gpu": self.heads,
            "block_h": self.block_h,
            "head_blocks": self.head_blocks,
            "guard_rows": self.head_blocks * self.block_h - self.heads,
            "candidates": axes.candidates,
            "topk_rounded": axes.candidates_rounded,
            "page_stride": self.page_stride,
        }
        if "BLOCK_T" in config:
            facts["tile_bytes"] = config["BLOCK_T"] * HEAD_DIM * 2
        if "num_warps" in config:
            values = self.block_h * HEAD_DIM // (32 * config["num_warps"])
            facts["accumulator_values_per_thread"] = values
            facts["accumulator_registers"] = values  # f32: one register each
        return facts

    # -- workload ---------------------------------------------------------------------------------

    def _axes(self, workload: Mapping[str, Any]) -> _Axes:
        return _Axes({"context": self.context, **workload})

    def _splits(self, axes: _Axes, device: str) -> int:
        """The count that keeps the busiest SM busy for the shortest estimated time.

        On H200 (BLOCK_T 32, 4 warps, 2 stages) it picks the fastest of the counts measured at C1,
        C16, C64 and C96. Rounding up SMs / programs instead gives 5 at C64, a second wave for a fifth
        of the CTAs: 29.3 µs in place of 22.2.
        """
        programs, sms = axes.concurrency * self.head_blocks, sm_count(device)

        def time(splits: int) -> float:
            share = math.ceil(axes.candidates / splits / SPLIT_TILE) * SPLIT_TILE
            pairs, single = divmod(math.ceil(programs * splits / sms), 2)
            return (share + PROLOGUE_TOKENS) * (pairs * PAIR_ROUND + single)

        most = min(MAX_SPLITS, math.ceil(axes.candidates / SPLIT_TILE))
        return min(range(1, most + 1), key=time)

    def _pages_per_request(self, axes: _Axes) -> int:
        return math.ceil(axes.context / self.page_size)

    def _first_page(self, axes: _Axes) -> int:
        return math.ceil(2**31 / self.page_stride) if axes.case == "far_pages" else 0

    # -- values -----------------------------------------------------------------------------------

    def _select(self, inputs: Inputs, axes: _Axes, random: torch.Generator) -> None:
        """Draw index rows and lengths, and give the slots they name finite values."""
        rows, device = axes.concurrency, inputs["cache"].device
        top = (
            torch.rand(rows, axes.context, generator=random, device=device).topk(axes.topk).indices
        )
        start = torch.randint(
            axes.context - axes.window + 1, (rows, 1), generator=random, device=device
        )
        position = torch.cat([top, start + torch.arange(axes.window, device=device)], 1)
        if axes.case == "duplicates":
            position = position[:, :1].where(position % 2 == 0, position)
        if axes.case == "last_slot":
            position[:, -1] = self._pages_per_request(axes) * self.page_size - 1

        per_request = self._pages_per_request(axes)
        pages = torch.randperm(rows * per_request, generator=random, device=device)
        page = pages.view(rows, per_request).gather(1, position // self.page_size)
        index = (page + self._first_page(axes)) * self.page_size + position % self.page_size
        if axes.case == "last_slot":
            index[-1, -1] = inputs["cache"].shape[0] * self.page_size - 1

        if axes.case == "all_invalid":
            index.fill_(-1)
        if axes.case == "one_split_invalid":
            index[:, : -(-axes.candidates // 2)] = -1
        if axes.case == "holes":
            hole = torch.rand(index.shape, generator=random, device=device) < 1 / 3
            index.masked_fill_(hole, -1)

        inputs["indices"].fill_(-1)
        inputs["indices"][:, : axes.candidates] = index
        inputs["lengths"].copy_(self._lengths(axes))
        self._fill(inputs["cache"], index, random)

    def _lengths(self, axes: _Axes) -> torch.Tensor:
        lengths = torch.full((axes.concurrency,), axes.candidates)
        if axes.case == "zero_length":
            lengths[::2] = 0
        if axes.case == "ragged":
            odd = torch.tensor([axes.candidates - 3, 17, 1, axes.candidates // 2 + 5, 15])
            lengths = odd.repeat(axes.concurrency)[: axes.concurrency].clamp(1, axes.candidates)
        return lengths

    def _fill(self, cache: torch.Tensor, index: torch.Tensor, random: torch.Generator) -> None:
        """Random finite rows in those slots of ``index`` that are still poisoned."""
        index = index[index >= 0].unique()
        empty = self._scales(cache)[index // self.page_size, index % self.page_size, 0] == NAN_BYTE
        index = index[empty]
        page, slot, device = index // self.page_size, index % self.page_size, cache.device
        nope = torch.randn(len(index), NOPE_DIM, generator=random, device=device) * 2
        rope = torch.randn(len(index), GROUP, generator=random, device=device) / 8
        data = [nope.to(torch.float8_e4m3fn), rope.to(torch.bfloat16)]
        self._data(cache)[page, slot] = torch.cat([d.view(torch.uint8) for d in data], 1)
        groups = (len(index), NOPE_DIM // GROUP)
        exponent = torch.randint(-6, -2, groups, generator=random, device=device)
        self._scales(cache)[page, slot, : NOPE_DIM // GROUP] = (exponent + 127).to(torch.uint8)

    def _data(self, cache: torch.Tensor) -> torch.Tensor:
        """View [pages, page size, 576] of the data parts."""
        return cache[:, : self.page_size * DATA_BYTES].unflatten(1, (-1, DATA_BYTES))

    def _scales(self, cache: torch.Tensor) -> torch.Tensor:
        """View [pages, page size, 8] of the scale parts."""
        used = self.page_size * TOKEN_BYTES
        return cache[:, self.page_size * DATA_BYTES : used].unflatten(1, (-1, SCALE_BYTES))


class _Axes:
    """A workload's axes, checked."""

    def __init__(self, axes: Mapping[str, Any]) -> None:
        known = ("concurrency", "topk", "window", "context", "case")
        if unknown := sorted(set(axes) - set(known)):
            raise ProblemError(f"unknown workload axis {unknown[0]!r}; known: {', '.join(known)}")
        if "concurrency" not in axes:
            raise ProblemError("a workload of sparse MLA decode needs the axis 'concurrency'")
        self.concurrency = int(axes["concurrency"])
        self.topk = int(axes.get("topk", 512))
        self.window = int(axes.get("window", 128))
        self.context = int(axes["context"])
        self.case = axes.get("case")
        if self.case is not None and self.case not in CASES:
            raise ProblemError(f"unknown case {self.case!r}; known: {', '.join(CASES)}")
        if self.concurrency < 1 or self.topk < 1 or not 0 <= self.window <= self.context:
            raise ProblemError(
                f"concurrency {self.concurrency} and topk {self.topk} must be at least 1, "
                f"window {self.window} within 0 and the context"
            )
        if self.topk > self.context:
            raise ProblemError(f"topk {self.topk} exceeds the context of {self.context} tokens")

    @property
    def candidates(self) -> int:
        """Length of an index row: top-k and window alike."""
        return self.topk + self.window

    @property
    def candidates_rounded(self) -> int:
        """Stride of an index row and the autotuner's key; a multiple of 64 keeps rows aligned."""
        return math.ceil(self.candidates / 64) * 64
