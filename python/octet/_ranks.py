"""Sums over the ranks that hold the other parts of sharded parameters."""

from __future__ import annotations

import torch

from ._error import Error


def sharded_over(params) -> list:
    """(mesh, dimension) over which all these parameters are sharded; none where no parameter is distributed."""
    kinds = {(p.device_mesh, tuple(p.placements)) if hasattr(p, "device_mesh") else None for p in params}
    if kinds <= {None}:
        return []
    if len(kinds) > 1:
        raise Error("[optimizer] expected parameters that are all sharded alike for a norm inside the step, got others "
                    "(clip=0, skip_nonfinite=False does without)")
    mesh, placements = kinds.pop()
    return [(mesh, dim) for dim, placement in enumerate(placements) if placement.is_shard()]


def add_ranks(total, sharded) -> None:
    """`total`, a tensor, becomes the sum over the ranks; None: there are none."""
    for mesh, dim in sharded or ():
        torch.distributed.all_reduce(total, group=mesh.get_group(dim))
