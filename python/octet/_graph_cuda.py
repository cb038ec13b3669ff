"""Functions of octet.graph on tensors of a GPU, where they lie."""

from __future__ import annotations

from ._arrays import FLOAT8, adopt, is_on_cuda, is_torch
from ._error import Error

# PyTorch's types of a graph's. Codes of 8-bit formats are uint8.
_TYPES = {"f32": "float32", "bf16": "bfloat16", "fp16": "float16", "i32": "int32", "i16": "int16", "int8": "int8", "bool": "bool",
          "u16": "uint16", "u32": "uint32", "u8": "uint8"}
_ALIGNMENT = 256


def _pytorch():
    try:
        import torch
    except ImportError:
        raise Error("[graph] expected PyTorch for arrays on a GPU, it is not installed") from None
    return torch


def _type_of(torch, kind: str):
    return getattr(torch, _TYPES.get(kind, "uint8"))


def _tensor(torch, name: str, x, kind: str, shape, device):
    """x as the graph reads a value of type `kind`, and how many bytes were copied or converted for that."""
    dtype = _type_of(torch, kind)
    if is_torch(x):
        tensor = x.detach()
    else:
        tensor = torch.from_dlpack(x) if is_on_cuda(x) else torch.as_tensor(adopt(x))
    if tensor.device.type == "cuda" and tensor.device != device:
        raise Error(f"[graph] '{name}': expected an array on {device} or on the CPU, got one on {tensor.device}", "device")
    if FLOAT8.get(str(tensor.dtype).removeprefix("torch.")) == kind:
        tensor = tensor.view(torch.uint8)
    if tensor.dtype != dtype and not (tensor.dtype.is_floating_point and dtype.is_floating_point):
        raise Error(f"[graph] '{name}': expected type {dtype}, got {tensor.dtype}")
    if list(tensor.shape) != list(shape):
        raise Error(f"[graph] '{name}': expected shape {list(shape)}, got {list(tensor.shape)}")
    read = tensor.to(device=device, dtype=dtype).contiguous()
    if read.data_ptr() % _ALIGNMENT:
        read = read.clone()
    return read, 0 if read.data_ptr() == tensor.data_ptr() else read.numel() * read.element_size()


def run_on_cuda(run, arrays: dict, lock) -> tuple[dict, int]:
    """The outputs as tensors, queued on PyTorch's current stream, and the bytes that were copied."""
    torch = _pytorch()
    device, graph = torch.device("cuda", 0), run.graph()
    inputs = [(name, *graph.type(id)) for name, id in graph.inputs()]
    missing = [name for name, _, _ in inputs if name not in arrays]
    other = sorted(set(arrays) - {name for name, _, _ in inputs})
    if missing or other:
        raise Error("[graph] " + "; ".join([f"expected an array '{name}', got none" for name in missing]
                                           + [f"'{name}' is no input of the graph" for name in other]))
    read = [_tensor(torch, name, arrays[name], kind, shape, device) for name, kind, shape in inputs]
    outputs = {}
    for name, id in graph.outputs():
        kind, shape = graph.type(id)
        outputs[name] = torch.empty(shape, dtype=_type_of(torch, kind), device=device)
    with lock, torch.cuda.device(device):
        workspace = torch.empty(max(run.workspace_bytes(), 1), dtype=torch.uint8, device=device)
        run.run_on_device([tensor.data_ptr() for tensor, _ in read], [tensor.data_ptr() for tensor in outputs.values()],
                          workspace.data_ptr(), torch.cuda.current_stream(device).cuda_stream)
    return outputs, sum(n for _, n in read)
