#!/usr/bin/env bash
# How torch adds up gradients of bfloat16 parameters that are used by many rows, on a CPU with one thread.
# guess: in float32, with one rounding, as products and sums do: the gradient of what 1000 rows use with a gradient of 1 each is 1000.
# seen:  in torch 2.15.0 256 of an embedding, of w[ids] and embedding_bag, of a LayerNorm's bias, and of index_add on a vector: each
#        addition is rounded. 1000 of index_select, gather, scatter_add, expand, linear's bias, a product with one-hot rows,
#        and of index_add on a matrix. In float16 all are 1000.
. "$(dirname "$0")/common.sh"
with_packages torch==2.15.0 numpy==2.4.6 <<'END'
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
n = 1000
ids = torch.zeros(n, dtype=torch.long)
ways = {
    "embedding": lambda w: F.embedding(ids, w), "w[ids]": lambda w: w[ids], "embedding_bag": lambda w: F.embedding_bag(ids[None], w, mode="sum"),
    "LayerNorm's bias": lambda w: F.layer_norm(torch.arange(8.0, dtype=w.dtype).repeat(n, 1), (8,), None, w[0]),
    "index_select": lambda w: w.index_select(0, ids), "gather": lambda w: torch.gather(w, 0, ids[:, None].expand(-1, 8)),
    "expand": lambda w: w[:1].expand(n, 8),
    "linear's bias": lambda w: F.linear(torch.ones(n, 3, dtype=w.dtype), torch.ones(8, 3, dtype=w.dtype), w[0]),
    "one-hot": lambda w: F.one_hot(ids, 4).to(w.dtype) @ w,
}

def gradients(kind):
    found = []
    for way in ways.values():
        w = torch.ones(4, 8, dtype=kind, requires_grad=True)
        way(w).sum().backward()
        found.append(w.grad[0, 0].item())
    one = torch.ones(n, dtype=kind)
    found += [torch.zeros(1, dtype=kind).index_add(0, ids, one).item(), torch.zeros(1, dtype=kind).scatter_add(0, ids, one).item(),
              torch.zeros(1, 8, dtype=kind).index_add(0, ids, one[:, None].expand(n, 8))[0, 0].item()]
    print(f"{kind}: " + ", ".join(f"{name} {y:g}" for name, y in zip([*ways, "index_add", "scatter_add", "index_add of rows"], found)))
    return found

ok = gradients(torch.float16) == [n] * 12
raise SystemExit(not (ok and gradients(torch.bfloat16) == [256] * 4 + [n] * 5 + [256, n, n]))
END
