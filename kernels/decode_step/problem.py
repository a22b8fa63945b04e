"""One decode step of DeepSeek-V4-Flash on one of four GPUs: what the attention kernel is a part of.

Real sizes: 43 layers, of which 21 gather the top 512 of a cache compressed 4 : 1 and a window of 128
tokens, 20 attend to all of a cache compressed 128 : 1 and the window, and 2 to the window alone; 64
heads of 512, 16 of them per GPU; 256 experts, 6 per token. Hidden size 4096, ranks of the query and
output projections 1024, 8 output groups, expert width 2048 and one shared expert are those of the
model's published ``config.json`` (hidden_size, q_lora_rank, o_lora_rank, o_groups,
moe_intermediate_size, n_shared_experts). A context of 32,768 tokens is this harness's choice: it
gives the ratio-4 layers the cache of 8,192 rows that the kernel's own study uses.

Left out: the all-reduces of tensor parallelism, the top-k indexer and the router (index rows and
routing are drawn beforehand), RoPE, hyper-connections (a plain residual), the new token's cache row,
embedding, LM head and sampling: they make attention's share of this step larger than in a server.
Others make it smaller: experts are e4m3, 1 byte a weight (the model's checkpoint has 4-bit experts),
projections are bf16 (2 bytes; the model's are fp8), the expert kernels here take longer than their
bytes need, and nothing elementwise is fused. The share is this step's, no bound of a server's.

Experts' weights exist ``expert_sets`` times, not once per layer: a layer's 1.6 GB flow through an L2
of 50 MB, so which layer they belong to makes no difference to the time; projections have their own
weights in every layer. Weights are allocated once per process, everything else for every replicate.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from experts import BLOCK_M, _experts_down_kernel, _experts_up_kernel
from torch.nn import functional

from occupancy_probe.exc import ProblemError
from occupancy_probe.launch import Inputs, Problem, Tolerance, Traffic


def _load(name: str, path: Path) -> Any:
    """The module at ``path`` under ``name``: both kernels' folders have a ``problem.py``."""
    if getattr(sys.modules.get(name), "__file__", None) != str(path):
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


_sparse = _load(
    "sparse_mla_decode_problem",
    Path(__file__).resolve().parent.parent / "sparse_mla_decode" / "problem.py",
)

TILE = int(BLOCK_M.value)
ATTENTION = (
    "q", "cache", "indices", "lengths", "sink", "partial_out", "partial_lse", "out", "lse",
)  # fmt: skip
"""Tensors of the attention's own Problem; every layer has index rows and lengths of its own."""
KINDS = ("ratio-4", "ratio-128", "window")
"""Kinds of layers: top-k rows and a window, all rows of a compressed cache, a window alone."""
UNIT = 0.6
"""Root mean square of a random weight: a sign, 3 of the 4 exponent bits and 3 of mantissa."""
QUERY_SIZE = 8.0
"""Query entries that give logits of size 1 with the cache rows of the attention's own Problem."""
ATTENTION_SIZE = 0.01
"""Attention's entries with such rows, within a factor of two; the next projection undoes it."""


@dataclass(frozen=True)
class Sizes:
    """Of the model and the step; every field can be overridden by a workload axis of its name."""

    concurrency: int
    attention_passes: int = 1
    """2 runs each layer's attention twice, first over another layer's index rows in a cache of its own:
    t(2) - t(1) is what attention costs inside the step, and the result stays the same."""
    hidden: int = 4096
    heads: int = 64
    q_rank: int = 1024
    o_rank: int = 1024
    o_groups: int = 8
    expert_width: int = 2048
    experts: int = 256
    per_token: int = 6
    tensor_parallel: int = 4
    context: int = 32768
    topk: int = 512
    window: int = 128
    ratio4_layers: int = 21
    ratio128_layers: int = 20
    window_layers: int = 2
    expert_sets: int = 4

    @property
    def heads_here(self) -> int:
        return self.heads // self.tensor_parallel

    @property
    def groups_here(self) -> int:
        return self.o_groups // self.tensor_parallel

    @property
    def width_here(self) -> int:
        return self.expert_width // self.tensor_parallel

    @property
    def slots_per_token(self) -> int:
        """Chosen experts and the shared one, which is the last of the experts."""
        return self.per_token + 1

    @property
    def tiles(self) -> int:
        """Most tiles that any routing can need: the grid must not depend on values."""
        slots = self.concurrency * self.per_token
        return min(slots, self.experts + slots // TILE) + math.ceil(self.concurrency / TILE)

    @property
    def kinds(self) -> dict[str, tuple[int, dict[str, int]]]:
        """Layers of each kind, and the axes of its attention; rows that are all used are a top-k."""
        rows = self.context // 128 + self.window
        sparse = {"topk": self.topk, "window": self.window, "context": self.context // 4}
        window = {"topk": self.window, "window": 0, "context": self.window}
        axes = (sparse, {"topk": rows, "window": 0, "context": rows}, window)
        counts = (self.ratio4_layers, self.ratio128_layers, self.window_layers)
        return dict(zip(KINDS, zip(counts, axes, strict=True), strict=True))

    @property
    def layers(self) -> list[str]:
        """Kind of every layer; kinds alternate as far as they can, as in the model."""
        left = {kind: count for kind, (count, _) in self.kinds.items()}
        order: list[str] = []
        while any(left.values()):
            order += [kind for kind, count in left.items() if count]
            left = {kind: max(0, count - 1) for kind, count in left.items()}
        return order


class DecodeStep(Problem):
    """The step for ``concurrency`` requests, ``attention_passes`` 1 or 2; other axes are sizes."""

    kernel = _sparse.SparseMlaDecode.kernel
    outputs = (
        "hidden",
        "expert_hidden",
        "expert_out",
        *(f"{kind}/{name}" for kind in KINDS for name in _sparse.SparseMlaDecode.outputs),
    )
    tolerance: ClassVar[Mapping[str, Tolerance]] = {
        # bf16 rounds some dozen times per layer, and every layer reads what the one before rounded:
        # an error of 2 % of the norm, whose largest of 400,000 elements is six times that. A single
        # element may be off by ten times that; what is wrong in many shows in the norm.
        "hidden": Tolerance(absolute=0.2, relative=2.01 / 128, cosine=5e-4, norm=3e-2),
    }

    def __init__(self, **sizes: int) -> None:
        _check_names(sizes)
        self.sizes = sizes
        full = Sizes(1, **sizes)
        for name in ("heads", "o_groups", "expert_width"):
            if getattr(full, name) % full.tensor_parallel:
                raise ProblemError(f"{name} {getattr(full, name)} cannot be shared by its GPUs")
        self.attention = _sparse.SparseMlaDecode(full.heads, full.tensor_parallel)
        self._weights_of: dict[Any, dict[str, Any]] = {}

    def make_inputs(self, workload: Mapping[str, Any], device: str, seed: int) -> Inputs:
        s = self._sizes(workload)
        slots = s.concurrency * s.slots_per_token
        bf16: dict[str, Any] = {"dtype": torch.bfloat16, "device": device}
        inputs: Inputs = {
            "sizes": s,
            "weights": self._weights(s, device),
            "hidden": torch.empty(s.concurrency, s.hidden, **bf16),
            "expert_hidden": torch.empty(slots, s.width_here, **bf16),
            "expert_out": torch.empty(slots, s.hidden, **bf16),
        }
        for kind, (_, axes) in s.kinds.items():
            axes = {"concurrency": s.concurrency, **axes}
            made = self.attention.make_inputs(axes, device, seed)
            inputs |= {f"{kind}/{name}": made[name] for name in ATTENTION}
            if s.attention_passes == 2:  # else the second pass would find the rows in L2
                inputs[f"{kind}/decoy_cache"] = made["cache"].clone()
        return self._draw(inputs, device, seed)

    def rotate(self, inputs: Inputs, workload: Mapping[str, Any], seed: int) -> Inputs:
        """Another token of each request: index rows, routing and hidden states are drawn anew."""
        return self._draw(dict(inputs), inputs["hidden"].device.type, seed)

    def launch(self, inputs: Inputs, config: Mapping[str, Any]) -> None:
        s: Sizes = inputs["sizes"]
        w = inputs["weights"]
        x = inputs["x"]
        for i, decoy in enumerate(inputs["decoys"]):
            latent = _norm(x).bfloat16() @ w["qkv"][i]  # with the new token's row, unused here
            q = _norm(latent[:, : s.q_rank]) @ w["q"][i]
            q = q.view(s.concurrency, s.heads_here, _sparse.HEAD_DIM)
            if s.attention_passes == 2:
                other = inputs[f"{inputs['kinds'][decoy]}/decoy_cache"]
                self.attention.launch(
                    {**_attention(inputs, decoy), "q": q, "cache": other}, config
                )
            attention = {**_attention(inputs, i), "q": q}
            self.attention.launch(attention, config)
            groups = attention["out"].view(s.concurrency, s.groups_here, -1)
            low = torch.bmm(groups.transpose(0, 1), w["o_low"][i]).transpose(0, 1)
            x = x + low.reshape(s.concurrency, -1) @ w["o"][i]
            self._experts(inputs, _norm(x).bfloat16(), i)
            chosen = inputs["expert_out"].view(s.concurrency, s.slots_per_token, s.hidden)
            x = x + chosen.sum(1, dtype=torch.float32)
        inputs["hidden"].copy_(_norm(x))

    def reference(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        s: Sizes = inputs["sizes"]
        w = inputs["weights"]
        x = inputs["x"].double()
        for i in range(len(inputs["kinds"])):
            latent = _norm(x) @ w["qkv"][i].double()
            q = _norm(latent[:, : s.q_rank]) @ w["q"][i].double()
            q = q.view(s.concurrency, s.heads_here, _sparse.HEAD_DIM)
            out = self.attention.reference({**_attention(inputs, i), "q": q})["out"]
            groups = out.view(s.concurrency, s.groups_here, -1)
            low = torch.einsum("bgk,gkr->bgr", groups, w["o_low"][i].double())
            x = x + low.reshape(s.concurrency, -1) @ w["o"][i].double()
            x = x + self._reference_experts(inputs, _norm(x), i)
        return {"hidden": _norm(x)}

    def traffic(self, workload: Mapping[str, Any]) -> Traffic:
        s = self._sizes(workload)
        attention = [
            (n * s.attention_passes, self.attention.traffic({"concurrency": s.concurrency, **axes}))
            for n, axes in s.kinds.values()
        ]
        layers = len(s.layers)
        touched = s.experts * (1 - (1 - s.per_token / s.experts) ** s.concurrency) + 1
        per_expert = 3 * s.hidden * s.width_here
        projections = sum(math.prod(shape) for shape in self._projections(s).values())
        rows = s.concurrency * 2
        return Traffic(
            bytes=sum(n * t.bytes for n, t in attention)
            + layers * (int(touched * per_expert) + 2 * projections),
            flop=sum(n * t.flop for n, t in attention)
            + layers * rows * (s.slots_per_token * per_expert + projections),
        )

    def facts(self, workload: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        s = self._sizes(workload)
        sparse = self.attention.facts({"concurrency": 1, **s.kinds["ratio-4"][1]}, config)
        return {
            "layers": len(s.layers),
            "attention_layers": " + ".join(f"{n} {kind}" for kind, (n, _) in s.kinds.items()),
            "expert_bytes_per_layer": 3 * s.hidden * s.width_here * (s.experts + 1),
            "heads_per_gpu": sparse["heads_per_gpu"],
            "block_h": sparse["block_h"],
        }

    # -- the model --------------------------------------------------------------------------------

    def _sizes(self, workload: Mapping[str, Any]) -> Sizes:
        _check_names(workload)
        if "concurrency" not in workload:
            raise ProblemError("a workload of the decode step needs the axis 'concurrency'")
        sizes = replace(Sizes(1, **self.sizes), **{k: int(v) for k, v in workload.items()})
        if sizes.attention_passes not in (1, 2):
            raise ProblemError(f"attention_passes {sizes.attention_passes}: give 1 or 2")
        if sizes.heads_here != self.attention.heads:
            raise ProblemError("heads and tensor_parallel are kernel.parameters, no axes")
        return sizes

    @staticmethod
    def _projections(s: Sizes) -> dict[str, tuple[int, ...]]:
        """Shapes of one layer's bf16 weights on one GPU; the query latent and the new row are not shared."""
        attended = s.heads_here * _sparse.HEAD_DIM
        return {
            "qkv": (s.hidden, s.q_rank + _sparse.HEAD_DIM),
            "q": (s.q_rank, attended),
            "o_low": (s.groups_here, attended // s.groups_here, s.o_rank),
            "o": (s.groups_here * s.o_rank, s.hidden),
        }

    def _weights(self, s: Sizes, device: str) -> dict[str, Any]:
        """Random weights that keep values of size 1; the same for every workload of a process."""
        key = (replace(s, concurrency=1, attention_passes=1), device)
        if key not in self._weights_of:
            random = torch.Generator("cpu" if device == "meta" else device).manual_seed(1)
            sizes = {"q": QUERY_SIZE, "o_low": 1 / ATTENTION_SIZE}
            made: dict[str, Any] = {}
            for name, shape in self._projections(s).items():
                shape = (len(s.layers), *shape)
                made[name] = torch.empty(shape, dtype=torch.bfloat16, device=device)
                if device != "meta":
                    made[name].normal_(generator=random)
                    made[name].mul_(sizes.get(name, 1.0) * shape[-2] ** -0.5)
            experts = (s.expert_sets, s.experts + 1)
            made["up"] = torch.empty(
                *experts, 2, s.width_here, s.hidden, dtype=torch.uint8, device=device
            )
            made["down"] = torch.empty(
                *experts, s.hidden, s.width_here, dtype=torch.uint8, device=device
            )
            if device != "meta":
                for name in ("up", "down"):
                    made[name].random_(0, 256, generator=random).bitwise_and_(0xBF)
            self._weights_of[key] = made
        return self._weights_of[key]

    def _draw(self, inputs: Inputs, device: str, seed: int) -> Inputs:
        """Hidden states, and per layer index rows into the kind's cache and a routing.

        Layers of a kind share a cache: between two of them the weights of two layers, twice the L2
        and more, pass through it.

        Layers of a kind launch the same kernels over the same grids; meta tensors, which exist to
        note launches, have one layer of each kind.
        """
        s: Sizes = inputs["sizes"]
        kinds = list(dict.fromkeys(s.layers)) if device == "meta" else s.layers
        inputs |= {
            "x": torch.empty(s.concurrency, s.hidden, device=device),
            "kinds": kinds,
            "decoys": [_next_of_kind(kinds, i) for i in range(len(kinds))],
        }
        if device != "meta":
            random = torch.Generator(device).manual_seed(seed)
            inputs["x"].normal_(generator=random)
        for i, kind in enumerate(kinds):
            axes = {"concurrency": s.concurrency, **s.kinds[kind][1]}
            whole = {name: inputs[f"{kind}/{name}"] for name in ATTENTION}
            drawn = self.attention.redraw(whole, axes, seed + 1000 * (i + 1))
            routing = _route(s, device, seed + 1000 * (i + 1))
            own = {"indices": drawn["indices"], "lengths": drawn["lengths"], **routing}
            inputs |= {f"{i}/{name}": value for name, value in own.items()}
        return inputs

    def _experts(self, inputs: Inputs, values: torch.Tensor, i: int) -> None:
        """Fill ``expert_out`` [slots, hidden]."""
        s: Sizes = inputs["sizes"]
        w, of = inputs["weights"], i % s.expert_sets
        tiles = inputs[f"{i}/tile_expert"].shape[0]
        block_up, block_down = min(32, s.width_here), min(64, s.hidden)
        _experts_up_kernel[tiles, s.width_here // block_up](
            values,
            w["up"][of],
            inputs[f"{i}/tile_expert"],
            inputs[f"{i}/tile_slots"],
            inputs["expert_hidden"],
            1 / (UNIT * s.hidden**0.5),
            PER_TOKEN=s.slots_per_token,
            WIDTH_IN=s.hidden,
            WIDTH_OUT=s.width_here,
            BLOCK_N=block_up,
            BLOCK_K=min(128, s.hidden),
            num_warps=4,
            num_stages=4,
        )
        _experts_down_kernel[tiles, s.hidden // block_down](
            inputs["expert_hidden"],
            w["down"][of],
            inputs[f"{i}/tile_expert"],
            inputs[f"{i}/tile_slots"],
            inputs[f"{i}/slot_weight"],
            inputs["expert_out"],
            1 / (UNIT * s.width_here**0.5),
            WIDTH_IN=s.width_here,
            WIDTH_OUT=s.hidden,
            BLOCK_N=block_down,
            BLOCK_K=min(128, s.width_here),
            num_warps=4,
            num_stages=4,
        )

    def _reference_experts(self, inputs: Inputs, values: torch.Tensor, i: int) -> torch.Tensor:
        """Sum over the experts in float64 [tokens, hidden]: all tokens through every one that any
        token chose, weighted with zero where it did not."""
        s: Sizes = inputs["sizes"]
        w, of = inputs["weights"], i % s.expert_sets
        chosen = inputs[f"{i}/slot_expert"].long().view(s.concurrency, s.slots_per_token)
        weight = inputs[f"{i}/slot_weight"].double().view_as(chosen)
        dense = values.new_zeros(s.concurrency, s.experts + 1).scatter_(1, chosen, weight)
        result = torch.zeros_like(values)
        for some in chosen.unique().split(32):  # 1.6 GB of weights in float64 at the real sizes
            gate, up = _e4m3(w["up"][of, some]).unbind(1)
            gated = functional.silu(values @ gate.mT / (UNIT * s.hidden**0.5))
            hidden = gated * (values @ up.mT) / (UNIT * s.hidden**0.5)
            hidden *= dense[:, some].T[..., None]
            result += (hidden @ _e4m3(w["down"][of, some]).mT).sum(0) / (UNIT * s.width_here**0.5)
        return result


def _check_names(sizes: Mapping[str, Any]) -> None:
    known = [f.name for f in fields(Sizes)]
    if unknown := sorted(set(sizes) - set(known)):
        raise ProblemError(f"unknown size {unknown[0]!r}; known: {', '.join(known)}")


def _attention(inputs: Inputs, i: int) -> Inputs:
    """Inputs of layer ``i``'s attention: what its kind shares, and its own index rows."""
    kind = inputs["kinds"][i]
    own = {name: inputs[f"{i}/{name}"] for name in ("indices", "lengths")}
    return {**{name: inputs[f"{kind}/{name}"] for name in ATTENTION}, **own}


def _next_of_kind(kinds: list[str], i: int) -> int:
    """The next layer of the same kind, round and round."""
    same = [j for j, kind in enumerate(kinds) if kind == kinds[i]]
    return same[(same.index(i) + 1) % len(same)]


def _norm(x: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, x.shape[-1:], eps=1e-6)


def _e4m3(raw: torch.Tensor) -> torch.Tensor:
    return raw.view(torch.float8_e4m3fn).double()


def _route(s: Sizes, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Distinct random experts for each token, the shared one always, as tiles of one expert each.

    slot_expert, slot_weight [slots]: a token's weights add up to 2, one for the shared expert.
    tile_expert [tiles], tile_slots [tiles, 16]: -1 where there is none.
    """
    slots = s.concurrency * s.slots_per_token
    i32: dict[str, Any] = {"dtype": torch.int32, "device": device}
    routing = {
        "slot_expert": torch.empty(slots, **i32),
        "slot_weight": torch.empty(slots, device=device),
        "tile_expert": torch.empty(s.tiles, **i32),
        "tile_slots": torch.empty(s.tiles, TILE, **i32),
    }
    if device == "meta":
        return routing
    random = torch.Generator(device).manual_seed(seed)
    drawn = torch.rand(s.concurrency, s.experts, generator=random, device=device)
    weight, expert = drawn.topk(s.per_token)
    shared = torch.full_like(expert[:, :1], s.experts)
    expert = torch.cat([expert, shared], 1).flatten()
    weight = torch.cat([weight / weight.sum(1, keepdim=True), torch.ones_like(weight[:, :1])], 1)
    order = expert.argsort(stable=True)
    counts = expert.bincount(minlength=s.experts + 1)
    tiles = (counts + TILE - 1) // TILE
    first_slot, first_tile = counts.cumsum(0) - counts, tiles.cumsum(0) - tiles
    owner = expert[order]
    place = torch.arange(slots, device=device) - first_slot[owner]
    tile = first_tile[owner] + place // TILE
    routing["tile_expert"].fill_(-1)[tile] = owner.int()
    routing["tile_slots"].fill_(-1)[tile, place % TILE] = order.int()
    routing["slot_expert"].copy_(expert)
    routing["slot_weight"].copy_(weight.flatten())
    return routing
