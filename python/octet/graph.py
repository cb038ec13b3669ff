"""octet.graph: functions of one's own, differentiated, scaled, quantized by the passes of the program, and run on arrays.

    from octet import graph

    g = graph.Graph("mine")
    x, w = g.input("x", [32, 16]), g.parameter("w", [64, 16])
    y = g.gemm(x, w, trans_b=True)
    g.output("loss", g.reduce_sum(y * y, axes=[0, 1]))
    step = g.passes("autodiff", "simplify").scalify()
    step.scale_of("grad:w")                       # log2
    outputs = step.passes("fp16").run(x=x_array, w=w_array)

A graph is a function of named arrays: inputs, nodes in order, named outputs. `octet opt --list` has the passes; each gives a new
graph. The program reads and writes the same graphs as text (`octet opt FILE.ir`).
"""

from __future__ import annotations

import numbers
import operator
import threading
from functools import partial

import numpy as np

from ._arrays import adopt, contiguous
from ._error import Error

__all__ = ["Function", "Graph", "Value", "op_names"]

_RESULT = 1 << 40  # what the text calls the result of a node: no id is as large


def op_names() -> list[str]:
    """The ops that a node can be of; Graph has a method of each name."""
    from . import _native
    return _native.op_names()


class Value:
    """A value of a graph: `shape`, `dtype` ("real" until a recipe chooses a type), and arithmetic on values of one shape or numbers."""

    __slots__ = ("graph", "id")
    __array_ufunc__ = None  # array * value is not an array of values

    def __init__(self, graph: Graph, id: int):
        self.graph, self.id = graph, id

    @property
    def dtype(self) -> str:
        return self.graph._native.type(self.id)[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.graph._native.type(self.id)[1])

    def _lifted(self, other) -> Value:
        if isinstance(other, Value):
            return other
        if not isinstance(other, numbers.Real):
            raise Error(f"[graph] expected a value of this graph or a number, got {type(other).__name__}")
        return self.graph.op("fill", shape=list(self.shape), value=float(other))

    def __add__(self, other):
        return self.graph.op("add", self, self._lifted(other))

    def __radd__(self, other):
        return self.graph.op("add", self._lifted(other), self)

    def __sub__(self, other):
        return self.graph.op("sub", self, self._lifted(other))

    def __rsub__(self, other):
        return self.graph.op("sub", self._lifted(other), self)

    def __mul__(self, other):
        return self.graph.op("mul", self, self._lifted(other))

    def __rmul__(self, other):
        return self.graph.op("mul", self._lifted(other), self)

    def __truediv__(self, other):
        return self.graph.op("div", self, self._lifted(other))

    def __rtruediv__(self, other):
        return self.graph.op("div", self._lifted(other), self)

    def __neg__(self):
        return self.graph.op("neg", self)

    def __matmul__(self, other):
        return self.graph.op("gemm", self, other)

    def __repr__(self) -> str:
        return f"%{self.id} : {self.dtype}{list(self.shape)}"


def _whole(name: str, values) -> list[int]:
    try:
        return [operator.index(value) for value in values]
    except TypeError:
        raise Error(f"[graph] {name}: expected whole numbers, got {values!r}") from None


def _attribute(name: str, value) -> str:
    if isinstance(value, (bool, np.bool_)):
        return f"{name} = {'true' if value else 'false'}"
    if isinstance(value, (list, tuple)):
        return f"{name} = [{','.join(map(str, _whole(name, value)))}]"
    if isinstance(value, (int, np.integer)):
        return f"{name} = {int(value)}"
    return f"{name} = {float(value)!r}" if isinstance(value, (float, np.floating)) else f"{name} = {value}"


class Graph:
    """A function of named arrays.

    Values are made by input(), parameter() and a method for each op: `g.gemm(x, w, trans_b=True)`. Operands come in the order of the
    op's slots, optional ones by name; numbers, lists and words by name are attributes. An op with several results gives a tuple. Types
    and shapes are inferred; a wrong operand is an octet.Error that names the op.

    scales: after scalify(), log2 of each value's scale.
    """

    def __init__(self, name: str = "graph"):
        from . import _native
        self._native, self._tag, self.scales = _native.Graph(name), "", None

    @classmethod
    def parse(cls, text: str, name: str = "graph") -> Graph:
        """A graph of its text, as `octet opt` prints it. Raises octet.Error with line and column."""
        from . import _native
        return cls._of(_native.Graph.parse(text, name))

    @classmethod
    def _of(cls, native, scales=None) -> Graph:
        graph = cls.__new__(cls)
        graph._native, graph._tag, graph.scales = native, "", scales
        return graph

    def __str__(self) -> str:
        return self._native.text()

    @property
    def phase(self) -> str:
        """logical (numbers without types), typed, sharded or lowered."""
        return self._native.phase()

    @property
    def inputs(self) -> dict[str, Value]:
        return {name: Value(self, id) for name, id in self._native.inputs()}

    @property
    def outputs(self) -> dict[str, Value]:
        return {name: Value(self, id) for name, id in self._native.outputs()}

    def input(self, name: str, shape, dtype: str = "real", kind: str = "batch") -> Value:
        """An array that run() takes. dtype: real, i32 for indices and labels, or a type of storage."""
        return Value(self, self._native.add_input(kind, name, dtype, _whole(f"shape of '{name}'", shape)))

    def parameter(self, name: str, shape) -> Value:
        """An input that autodiff differentiates by: its gradient is the output "grad:NAME"."""
        return self.input(name, shape, kind="parameter")

    def output(self, name: str, value: Value) -> None:
        """autodiff differentiates "loss"."""
        self._expect_own(name, value)
        self._native.add_output(name, value.id)

    def at(self, layer: int, module: str = "") -> Graph:
        """The nodes that follow belong to this layer and module: recipes quantize the linears of layers. Gives the graph."""
        (layer,) = _whole("layer", [layer])
        self._tag = f' @ layer {layer}, forward, "{module}"' if module else f" @ layer {layer}, forward"
        return self

    def op(self, name: str, *operands: Value, **named):
        """A node of this op. Gives its result, or a tuple of them with None for an absent one."""
        from . import _native
        names, n_required = _native.op_slots(name)
        # An optional operand that comes in order is called by its name.
        slots = [(names[i] if n_required <= i < len(names) else None, operand) for i, operand in enumerate(operands)]
        slots += [(key, value) for key, value in named.items() if isinstance(value, Value)]
        for key, operand in slots:
            self._expect_own(key or name, operand)
        given = ", ".join((f"{key} = " if key else "") + f"%{operand.id}" for key, operand in slots)
        attributes = ", ".join(_attribute(key, value) for key, value in named.items() if not isinstance(value, Value))
        ids = self._native.append(f"%{_RESULT} = {name}({given}) {{{attributes}}}{self._tag}")
        results = tuple(Value(self, id) if id >= 0 else None for id in ids)
        return results[0] if len(results) == 1 else results

    def __getattr__(self, name: str):
        if name.startswith("_") or name not in op_names():
            raise AttributeError(f"octet.graph.Graph has no attribute and no op '{name}' (octet.graph.op_names() lists them)")
        return partial(self.op, name)

    def _expect_own(self, what: str, value) -> None:
        if not isinstance(value, Value) or value.graph is not self:
            raise Error(f"[graph] {what}: expected a value of this graph, got "
                        + ("one of another graph" if isinstance(value, Value) else type(value).__name__))

    def passes(self, *names: str) -> Graph:
        """The graph behind these passes, in order (`octet opt --list`): autodiff, simplify, and recipes as fp32, bf16, fp8_linear."""
        return self._of(self._native.passes(list(names)))

    def scalify(self, rounding: str = "predicted", input_rms: dict[str, float] | None = None,
                input_scales: dict[str, int] | None = None) -> Graph:
        """Every float value as data and a power-of-two scale that its op's rule chooses (docs/scalify.md). Outputs are values again.

        rounding: of scales, predicted, nearest or paper.  input_rms: log2 of the RMS that an input has; 0 without.
        input_scales: log2 of the scale that an input's data come with.
        """
        native, scales = self._native.scalify(rounding, input_rms or {}, input_scales or {})
        return self._of(native, scales)

    def scale_of(self, value: Value | str) -> int:
        """log2 of the scale of a value, or of the output of this name, after scalify()."""
        if self.scales is None:
            raise Error("[graph] expected a graph of scalify(), which has scales")
        if isinstance(value, str):
            if value not in self.outputs:
                raise Error(f"[graph] '{value}' is no output; the outputs are {', '.join(self.outputs) or 'none'}")
            value = self.outputs[value]
        self._expect_own("scale_of", value)
        if value.id >= len(self.scales):
            raise Error(f"[graph] %{value.id} was added after scalify() and has no scale")
        return self.scales[value.id]

    def compile(self, device: str = "cpu", threads: int = 0, isa: str = "auto") -> Function:
        """The graph with a kernel for each node; values without types are f32."""
        return Function(self, device, threads, isa)

    def run(self, arrays: dict | None = None, /, **named) -> dict[str, np.ndarray]:
        """The outputs by name, on the CPU: compile()() of these arrays."""
        return self.compile()(arrays, **named)


class Function:
    """A graph that runs: f(x=..., w=...) gives a dict of NumPy arrays. BF16 comes as float32, codes of 8-bit formats as uint8.
    Calls of several threads are queued."""

    def __init__(self, graph: Graph, device: str = "cpu", threads: int = 0, isa: str = "auto"):
        from . import _native
        self._lock = threading.Lock()
        self._run = _native.GraphRun(graph._native, _native.Machine(device, isa, threads, ""))

    @property
    def graph(self) -> Graph:
        """As it runs: types chosen, ops fused."""
        return Graph._of(self._run.graph())

    def __call__(self, arrays: dict | None = None, /, **named) -> dict[str, np.ndarray]:
        twice = set(arrays or {}) & set(named)
        if twice:
            raise Error(f"[graph] given twice: {', '.join(sorted(twice))}")
        given = {}
        for name, array in {**(arrays or {}), **named}.items():
            array = contiguous(adopt(array))
            if array.dtype.name == "bfloat16":
                array = array.astype(np.float32)
            given[name] = (array.dtype.str, list(array.shape), array.tobytes())
        with self._lock:
            results = self._run(given)
        return {name: np.frombuffer(data, dtype=np.dtype(descr)).reshape(shape).copy()
                for name, (descr, shape, data) in results.items()}
