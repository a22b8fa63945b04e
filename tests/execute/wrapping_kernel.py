"""C1: an offset computed in 32 bits and in 64; run with TRITON_INTERPRET=1."""

import torch
import triton
import triton.language as tl


@triton.jit
def offsets(out, row, stride):
    r = tl.load(row)
    s = tl.load(stride)
    tl.store(out, (r * s).to(tl.int64))
    tl.store(out + 1, r.to(tl.int64) * s)


if __name__ == "__main__":
    found = torch.zeros(2, dtype=torch.int64)
    row, stride = (torch.tensor([v], dtype=torch.int32) for v in (319, 7_864_320))
    offsets[(1,)](found, row, stride)
    print(*found.tolist())
