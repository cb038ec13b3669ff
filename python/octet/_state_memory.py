"""States of parameters: what they are, and their memory. All that begin together on a device lie in one buffer.

PyTorch's allocator rounds every allocation of a GPU to 512 bytes, and large ones to 2 MiB; of one buffer for all states little is
rounded. Each state is a tensor whose storage is its own part of the buffer: saving or copying it takes its bytes alone, and the
buffer lives as long as one of its states.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.utils import dlpack

from . import _optimizer as _c
from ._tensors import DTYPES

ALIGNMENT = 128  # a line of a GPU's cache; kernels read 16 bytes at once
_BY_WIDTH = {1: torch.uint8, 2: torch.bfloat16, 4: torch.float32}


class Field(NamedTuple):
    """A state of a weight, as it lies: like the weight, or a list of words."""

    key: str
    dtype: torch.dtype
    shape: tuple
    strides: tuple
    n_bytes: int


def fields_of(kernels, weight) -> list[Field]:
    """The states of a weight on any device but its counter "step"."""
    layout, n = kernels.layout(weight.numel(), DTYPES[weight.dtype]), weight.numel()
    shape, strides = tuple(weight.shape), weight.stride()
    fields = []
    for key, width, groups in (("exp_avg", layout.m_bytes, layout.m_groups), ("exp_avg_sq", layout.v_bytes, layout.v_groups)):
        fields.append(Field(key, _BY_WIDTH[width], shape, strides, width * n))
        if groups > 0 or (width == 1 and n == 0):
            fields.append(Field(key + "_meta", torch.int32, (groups,), (1,), 4 * groups))
    if layout.master == _c.REMAINDER:
        fields.append(Field("master", torch.int16, shape, strides, 2 * n))
    elif layout.master == _c.MASTER_F32:
        fields.append(Field("master", torch.float32, shape, strides, 4 * n))
    return fields


def buffer_bytes(fields) -> int:
    """Of a buffer that holds these one after another."""
    return sum(_aligned(field.n_bytes) for field in fields)


def begin(kernels, rows) -> None:
    """States of zeros, and masters that are the weights. rows: (weight, its empty state)."""
    for device in dict.fromkeys(weight.device for weight, _ in rows):
        here = [(weight, state, fields_of(kernels, weight)) for weight, state in rows if weight.device == device]
        buffer = torch.zeros(buffer_bytes(field for _, _, fields in here for field in fields), dtype=torch.uint8, device=device)
        at = 0
        for weight, state, fields in here:
            state["step"] = torch.zeros((), dtype=torch.int64)
            for field in fields:
                state[field.key] = _part(buffer, at, field)
                at += _aligned(field.n_bytes)
            if "master" in state and state["master"].dtype == torch.float32:
                state["master"].copy_(weight)


def _aligned(n_bytes: int) -> int:
    return (n_bytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def _part(buffer, at: int, field: Field):
    """A tensor in the buffer that is no view of it: through DLPack its storage is its part alone, and keeps the buffer."""
    result = torch.empty(0, dtype=field.dtype, device=buffer.device)
    if field.n_bytes == 0:
        return result.new_empty(field.shape)
    own = dlpack.from_dlpack(dlpack.to_dlpack(buffer[at:at + field.n_bytes]))
    return result.set_(own.untyped_storage(), 0, field.shape, field.strides)
