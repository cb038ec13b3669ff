"""Blocks: a few ops of a model with one forward and one backward pass, compiled by recipe, shape and what is differentiated.

A block is the sum of two, its norm, and linears that read it, or some of these; or an activation and a linear. The recipe decides
what is kept, as in a run of the program.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property

import torch
from torch._C._functorch import is_functorch_wrapped_tensor, is_legacy_batchedtensor
from torch.autograd import forward_ad

from .._cuda_module import module_path
from .._error import Error
from ..graph import Graph

MAX_BLOCKS = 512  # compiled ones that are kept; the oldest go
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32, "i32": torch.int32, "boolean": torch.bool}


@dataclass(frozen=True)
class LinearSpec:
    name: str
    n_out: int
    has_bias: bool


@dataclass(frozen=True)
class Spec:
    """What a block computes, apart from its number of rows.

    n_in: columns of x.  n_addends: x is the first input, or the sum of two.  norm: "rms_norm", "layer_norm" or None.  layer: 0 inside of
    a layer, where recipes quantize and store; -1 outside.  act: what is made of x: of two inputs "silu", silu(gate) * up; of one "erf" or
    "tanh", its GELU; or None.  linears: read x, its norm, or this.
    """

    recipe: str
    n_in: int
    n_addends: int = 1
    norm: str | None = None
    eps: float = 0.0
    layer: int = 0
    act: str | None = None
    linears: tuple[LinearSpec, ...] = ()

    @cached_property
    def data(self) -> tuple[str, ...]:
        """Names of the inputs that are no parameters."""
        return ("gate", "up") if self.act == "silu" else ("x", "addend")[: self.n_addends]

    @cached_property
    def parameter_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the inputs behind `data`."""
        of_linears = [shape for linear in self.linears for shape in ((linear.n_out, self.n_in), (linear.n_out,))[:1 + linear.has_bias]]
        return (*[(self.n_in,) for _ in self.norm_parameters], *of_linears)

    @cached_property
    def norm_parameters(self) -> tuple[str, ...]:
        return {None: (), "rms_norm": ("norm.weight",), "layer_norm": ("norm.weight", "norm.bias")}[self.norm]

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        named = [*self.norm_parameters]
        for linear in self.linears:
            named += [f"{linear.name}.weight"] + ([f"{linear.name}.bias"] if linear.has_bias else [])
        return self.data + tuple(named)

    @cached_property
    def outputs(self) -> tuple[tuple[str, int], ...]:
        """Names and columns of what it gives: the sum, then the linears' results, or what they would read."""
        named = [("sum", self.n_in)] if self.n_addends == 2 else []
        last = [(linear.name, linear.n_out) for linear in self.linears] or [("normed", self.n_in)]
        return (*named, *last)

    @cached_property
    def quantized(self) -> tuple[str, ...]:
        """Outputs that are NaN where a quantizer met NaN or infinity: all but the sum, which has its own where they are."""
        return tuple(name for name, _ in self.outputs if name != "sum")

    @cached_property
    def passes_x(self) -> bool:
        """x goes on beside its norm: what comes back for it is added to its gradient before that is rounded."""
        return self.norm is not None and bool(self.linears) and self.n_addends == 1

    @cached_property
    def shown(self) -> str | None:
        """The value inside that others may read, too."""
        if not self.linears:
            return None
        return "product" if self.act else "normed" if self.norm else None

    def graph(self, rows: int, hidden=()) -> Graph:
        """Logical, forward. hidden: more outputs, "x" and `shown`."""
        g = Graph("block")
        data = [g.input(name, [rows, self.n_in]) for name in self.data]
        norm = [g.parameter(name, [self.n_in]) for name in self.norm_parameters]
        weights = [(g.parameter(f"{linear.name}.weight", [linear.n_out, self.n_in]),
                    g.parameter(f"{linear.name}.bias", [linear.n_out]) if linear.has_bias else None) for linear in self.linears]
        x = data[0]
        if "x" in hidden:
            g.output("x", x)
        if self.n_addends == 2:
            x = g.at(self.layer, "residual").add(*data)
            g.output("sum", x)
        if self.act:
            there = g.at(self.layer, "act_fn")
            x = there.gated_act(*data, act="silu") if self.act == "silu" else there.gelu(x, kind=self.act)
        if self.norm:
            there = g.at(self.layer, "norm")
            x = (there.rms_norm if self.norm == "rms_norm" else there.layer_norm)(x, *norm, eps=self.eps)[0]
        for linear, (w, bias) in zip(self.linears, weights):
            y = g.at(self.layer, linear.name).gemm(x, w, trans_b=True, role="forward")
            g.output(linear.name, y if bias is None else g.bias_add(y, bias))
        if not self.linears or self.shown in hidden:
            g.output(self.shown or self.outputs[-1][0], x)
        return g


class Fields:
    """Inputs or outputs of a pass: names, and shapes and types of their tensors."""

    def __init__(self, fields):
        self.names = [name for name, *_ in fields]
        self.types = {name: text for name, _, _, text in fields}
        self.tensors = {name: (tuple(shape), DTYPES.get(dtype, torch.uint8)) for name, dtype, shape, _ in fields}
        self._all = list(self.tensors.values())

    def empty(self, device, n: int = 0, lead: tuple[int, ...] = ()) -> list:
        """Tensors in the order of names; the first n with these extents in the place of their rows."""
        first = [torch.empty((*lead, *shape[1:]), dtype=dtype, device=device) for shape, dtype in self._all[:n]]
        return first + [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in self._all[n:]]

    def places(self, names) -> list[int]:
        """Where among `names` each is."""
        order = {name: i for i, name in enumerate(names)}
        return [order[name] for name in self.names]


class Block:
    """A compiled block. wanted: inputs whose gradients are asked for.  hidden: of `x` and the spec's `shown`, whose gradients come, too.

    forward(): of tensors in the order of spec.inputs `given` (those of spec.outputs, in x's shape), and `kept`. backward(): of the
    inputs that it reads (read_inputs), what is kept, and gradients of outputs and of `hidden`, in this order, the gradients of `wanted`.
    A quantizer that met NaN or infinity makes its pass's results NaN, but for a sum. Tensors are on `device`; of a CUDA device work is
    queued on this stream, and nothing waits for it.
    """

    def __init__(self, spec: Spec, rows: int, wanted: tuple[str, ...], hidden: tuple[str, ...], device: torch.device, stream: int = 0):
        from .. import _native
        graph = spec.graph(rows, hidden)
        self._device, self._stream = device, stream
        with _on(device):
            self._native = _native.Block(graph._native, spec.recipe, list(wanted), list(hidden), list(spec.quantized), _machine(device),
                                         stream)
        self._workspace_bytes = self._native.workspace_bytes()
        inputs, self.outputs = Fields(self._native.forward_inputs()), Fields(self._native.forward_outputs())
        if any(inputs.tensors[name][1] != torch.bfloat16 for name in inputs.names):
            raise Error(f"[torch] expected a recipe that computes in bf16, got inputs {inputs.types}", "internal")
        self._n_given, self._has_flag = len(spec.outputs), "forward_flag" in self.outputs.names
        self._forward_places = inputs.places(spec.inputs)
        self.kept = [name for name in self.outputs.names if name.startswith("kept.")]
        if not wanted:
            return
        reads, self.gradients = Fields(self._native.backward_inputs()), Fields(self._native.backward_outputs())
        self.read_inputs = [name for name in spec.inputs if name in reads.names]
        dys = [f"d.{name}" for name, _ in spec.outputs] + [f"d.{name}" for name in hidden]
        self._backward_places = reads.places([*self.read_inputs, *self.kept, *dys])
        self._gradient_places = [self.gradients.names.index(f"grad:{name}") for name in wanted]

    def forward(self, tensors) -> tuple[list, list]:
        results = self.outputs.empty(self._device, self._n_given, tensors[0].shape[:-1])
        self._run(self._native.run_forward, [tensors[i] for i in self._forward_places], results)
        n = self._n_given
        return results[:n], results[n + self._has_flag:]

    def backward(self, tensors) -> list:
        results = self.gradients.empty(self._device)
        self._run(self._native.run_backward, [tensors[i] for i in self._backward_places], results)
        return [results[i] for i in self._gradient_places]

    def _run(self, run, tensors, results) -> None:
        inputs, outputs = [tensor.data_ptr() for tensor in tensors], [result.data_ptr() for result in results]
        if self._workspace_bytes == 0 and self._device.type == "cpu":
            return run(inputs, outputs)
        # PyTorch's: what is queued on the stream behind this call may have it next.
        workspace = torch.empty(max(self._workspace_bytes, 1), dtype=torch.uint8, device=self._device)
        with _on(self._device):
            run(inputs, outputs, workspace.data_ptr(), self._stream)

    def on_stream(self, stream: int) -> Block:
        """This block, for another stream."""
        other = copy.copy(self)
        other._stream = stream
        return other

    def text(self) -> str:
        """Both passes, as `octet opt` prints graphs."""
        return self._native.text()


_lock = threading.Lock()
_blocks: OrderedDict[tuple, Block] = OrderedDict()
_machines: dict[torch.device, object] = {}


def _machine(device: torch.device):
    """The device's kernels, opened when they are first called: with as many threads as PyTorch has then; of a CUDA device with products
    by the library's own choice, or by timing where torch.backends.cudnn.benchmark asks for that."""
    if device not in _machines:
        from .. import _native
        if device.type == "cpu":
            machine = _native.Machine("cpu", "auto", torch.get_num_threads(), "")
        else:
            machine = _native.Machine("cuda", "auto", 1, str(module_path()), "", device.index, not torch.backends.cudnn.benchmark)
        _machines[device] = _native.BlockMachine(machine)
    return _machines[device]


def _on(device: torch.device):
    """PyTorch's current device becomes this one, where it is another."""
    is_other = device.type == "cuda" and torch.cuda.current_device() != device.index
    return torch.cuda.device(device) if is_other else contextlib.nullcontext()


def _stream(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def block(text: str, spec: Spec, rows: int, wanted: tuple[str, ...], hidden: tuple[str, ...], device: torch.device) -> Block:
    """The block of this text, which is the spec's, for the device's current stream; compiled where it is not there yet."""
    key = (text, rows, wanted, hidden, device, _stream(device))
    with _lock:
        found = _blocks.get(key)
        if found is None:
            found = _blocks[key] = _other_streams(key) or Block(spec, rows, wanted, hidden, device, key[-1])
            if len(_blocks) > MAX_BLOCKS:
                _blocks.popitem(last=False)
        else:
            _blocks.move_to_end(key)
        return found


def _other_streams(key) -> Block | None:
    """Of a stream that a CUDA graph captures: a copy of the block that another stream has, since none can be compiled now."""
    if key[-2].type != "cuda" or not torch.cuda.is_current_stream_capturing():
        return None
    for other, found in _blocks.items():
        if other[:-1] == key[:-1]:
            return found.on_stream(key[-1])
    raise Error("[torch] expected a call with these shapes before a CUDA graph captures one, got none")


_TYPES = {torch.Tensor, torch.nn.Parameter}


def is_taken(tensor) -> bool:
    """Whether kernels take the tensor as it is."""
    return (type(tensor) in _TYPES and tensor.dtype is torch.bfloat16 and (tensor.is_cpu or tensor.is_cuda)
            and tensor.layout is torch.strided)


def check_plain(tensors) -> None:
    """Raises octet.Error for tensors that stand for others: what kernels would do to their memory is not what is asked for."""
    if torch.jit.is_tracing():
        raise Error("[torch] expected a call outside of torch.jit.trace, got one inside, which would keep its results as constants: "
                    "torch.compile and torch.export keep these modules")
    if any(is_functorch_wrapped_tensor(tensor) or is_legacy_batchedtensor(tensor) for tensor in tensors):
        raise Error("[torch] expected plain tensors, got one of a transform of torch.func (vmap, grad, jvp) or of batched gradients")
    if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise Error("[torch] expected tensors without tangents, got one of forward-mode differentiation")


def check_whole(names, parameters, shapes) -> None:
    """Raises octet.Error for parameters that are not there as a whole: FullyShardedDataParallel gathers those of a module that it wraps
    for the module's own call alone, and blocks read those of their neighbours."""
    for name, tensor, shape in zip(names, parameters, shapes):
        is_freed = tensor.numel() > 0 and tensor.untyped_storage().nbytes() == 0
        if is_freed or tensor.shape != shape:
            raise Error(f"[torch] {name}: expected a whole tensor {list(shape)}, got "
                        f"{'one whose storage is freed' if is_freed else list(tensor.shape)} (FullyShardedDataParallel: wrap whole layers)")


def check(where: str, tensor) -> None:
    """Raises octet.Error for a tensor that no kernel takes, not even rounded to bfloat16."""
    if not isinstance(tensor, torch.Tensor):
        raise Error(f"[torch] {where}: expected a tensor, got {type(tensor).__name__}")
    if tensor.device.type not in ("cpu", "cuda"):
        raise Error(f"[torch] {where}: expected a tensor on the CPU or a CUDA device, got one on {tensor.device}", "device")
    if tensor.layout != torch.strided:
        raise Error(f"[torch] {where}: expected a dense tensor, got one of {tensor.layout}")
    if tensor.dtype not in (torch.bfloat16, torch.float32):
        raise Error(f"[torch] {where}: expected bfloat16 or float32, got {str(tensor.dtype).removeprefix('torch.')}")
    if hasattr(tensor, "to_local"):
        raise Error(f"[torch] {where}: expected a whole tensor, got a shard (shard whole layers: fully_shard(layer))")
