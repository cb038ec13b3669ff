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

import math
import numbers
import operator
import re
import threading
from functools import partial

import numpy as np

from . import _checks
from ._arrays import FLOAT8, adopt, contiguous, is_on_cuda, is_torch, result_like
from ._cuda_module import module_path
from ._error import Error
from ._graph_cuda import run_on_cuda

__all__ = ["Function", "Graph", "ScaledArray", "Value", "next_inputs", "op_names"]

_AXES = {"tensor": None, "row": 1, "channel": 0}  # which axis scales are taken over
_RESULT = 1 << 40  # what the text calls the result of a node: no id is as large


def op_names() -> list[str]:
    """The ops that a node can be of; Graph has a method of each name."""
    from . import _native
    return _native.op_names()


def next_inputs(outputs: dict) -> dict:
    """Of the outputs of a call those that the next call takes: "next:NAME" as NAME."""
    _checks.table("graph", "outputs", outputs, lambda name, array: array)
    return {name[len("next:"):]: array for name, array in (outputs or {}).items() if name.startswith("next:")}


class ScaledArray:
    """A value as an array of data and a power of two: data * scale. `numpy.asarray` gives the value, in float32.

    The scale of a matrix may be one a row, an array [R, 1], or one a column, [1, C]. Data on a GPU stay there; the scale is the CPU's.
    """

    __slots__ = ("data", "scale")

    def __init__(self, data, scale=1.0):
        self.data = data if is_on_cuda(data) else contiguous(adopt(data))
        if not is_on_cuda(data) and not _is_float(self.data):
            raise Error(f"[graph] data: expected floats, got {self.data.dtype}")
        scales = _scales_of(scale)
        fraction, exponent = np.frexp(scales)
        if not np.all((fraction == 0.5) & (exponent > -126) & (exponent <= 128)):
            raise Error(f"[graph] scale: expected a power of two that float32 has, got {_checks.shown(scale)}")
        shape = self.data.shape
        if scales.ndim and not (len(shape) == 2 and scales.shape in ((shape[0], 1), (1, shape[1]))):
            raise Error(f"[graph] scale: expected a number, or [R, 1] or [1, C] beside data [R, C], got {list(scales.shape)} beside {list(shape)}")
        self.scale = scales.astype(np.float32) if scales.ndim else float(scales)

    @classmethod
    def of(cls, array, dtype="float32", granularity: str = "tensor") -> ScaledArray:
        """At the power of two that is next to the RMS (of the tensor, of each row or channel); at 1 where that is 0 or not finite.

        Data are rounded to the dtype.
        """
        wide, dtype = adopt(array), _dtype(dtype)
        if wide.dtype.kind not in "biuf" and not _is_float(wide):
            raise Error(f"[graph] expected an array of numbers, got {_checks.shown(array)}")
        wide = wide.astype(np.float64)
        _checks.text("graph", granularity=granularity)
        if granularity not in _AXES or (granularity != "tensor" and wide.ndim != 2):
            raise Error(f"[graph] granularity: expected tensor, or row or channel of a matrix, got {granularity} of {list(wide.shape)}")
        square = np.mean(wide * wide, axis=_AXES[granularity], keepdims=granularity != "tensor") if wide.size else np.float64(0)
        is_finite = (square > 0) & (square < np.inf)
        log2 = np.clip(np.ceil(0.5 * np.log2(np.where(is_finite, square, 1)) - 0.5), -126, 127)
        return cls((wide / np.exp2(log2)).astype(dtype), np.exp2(log2))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def dtype(self):
        return self.data.dtype

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("[graph] copy: expected None or True, got False: the value of data and scale is made anew")
        value = np.asarray(adopt(self.data), dtype=np.float32) * np.float32(self.scale)
        return value if dtype is None else value.astype(dtype)

    def __repr__(self) -> str:
        if isinstance(self.scale, float):
            scale = f"2**{round(math.log2(self.scale))}"
        else:
            scale = f"{list(self.scale.shape)} from 2**{round(math.log2(self.scale.min()))} to 2**{round(math.log2(self.scale.max()))}"
        return f"ScaledArray({self.dtype}{list(self.shape)}, scale={scale})"


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
        try:
            number = float(other)
        except OverflowError:
            raise Error("[graph] expected a value of this graph or a number that float64 holds, got one beyond it") from None
        return self.graph.op("fill", shape=list(self.shape), value=number)

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

    def __bool__(self):
        raise Error("[graph] expected a number for True or False, got a value of a graph, which has none before the graph runs")

    def __repr__(self) -> str:
        return f"%{self.id} : {self.dtype}{list(self.shape)}"


def _whole(name: str, values) -> list[int]:
    try:
        whole = [operator.index(value) for value in values]
    except TypeError:
        whole = None
    if whole is None or any(abs(value) >= 2**63 for value in whole):
        raise Error(f"[graph] {name}: expected whole numbers, got {_checks.shown(values)}")
    return whole


def _scales_of(scale) -> np.ndarray:
    """As float64; NaN, which is no scale, for what is no number."""
    scales = np.asarray(scale.cpu() if is_torch(scale) else scale)
    return scales.astype(np.float64) if scales.dtype.kind in "iuf" else np.full(scales.shape, np.nan)


def _is_float(array) -> bool:
    """Of NumPy's types, or of ml_dtypes'."""
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16" or array.dtype.name.startswith("float8")


def _dtype(name) -> np.dtype:
    try:
        found = np.dtype(name)
    except TypeError:
        found = None
    if name is None or found is None or not (found.kind == "f" or found.name == "bfloat16" or found.name.startswith("float8")):
        raise Error(f"[graph] dtype: expected a type of floats that NumPy has, got {_checks.shown(name)}")
    return found


def _attribute(name: str, value) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (list, tuple, range, np.ndarray)) and np.ndim(value) == 1:
        return f"[{','.join(map(str, _whole(name, value)))}]"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    if isinstance(value, str) and re.fullmatch("[A-Za-z_][A-Za-z_0-9]*", value):
        return value
    raise Error(f"[graph] {name}: expected a number, True or False, a list of whole numbers or a word, got {_checks.shown(value)}")


def _of_node(name: str, error: Error, spans) -> Error:
    """What is wrong with a node, by the op's name and the attribute's in the place of positions in its text."""
    found = re.match(r"node:1:(\d+): ", str(error))
    if not found:
        return error
    at, rest = int(found[1]) - 1, str(error)[found.end():]
    key = next((key for key, begin, end in spans if begin <= at <= end), None)
    rest = rest.removeprefix(f"[{name}] ")
    return Error(f"[{name}] {key}: {rest}" if key else f"[{name}] {rest}", error.code)


class Graph:
    """A function of named arrays.

    Values are made by input(), parameter() and a method for each op: `g.gemm(x, w, trans_b=True)`. Operands come in the order of the
    op's slots, optional ones by name; numbers, lists and words by name are attributes. An op with several results gives a tuple. Types
    and shapes are inferred; a wrong operand is an octet.Error that names the op.

    scales: after scalify(), log2 of each value's scale.  scale_shapes: (), or (R, 1) or (1, C) where there is one a row or a column.
    scaled_inputs, scaled_outputs: the inputs that are taken, and the outputs that are given, as a ScaledArray.
    """

    def __init__(self, name: str = "graph"):
        from . import _native
        _checks.text("graph", name=name)
        self._native, self._tag, self.scales, self.scale_shapes = _native.Graph(name), "", None, None
        self.scaled_inputs, self.scaled_outputs = (), ()

    @classmethod
    def parse(cls, text: str, name: str = "graph") -> Graph:
        """A graph of its text, as `octet opt` prints it. Raises octet.Error with line and column."""
        from . import _native
        _checks.text("graph", text=text, name=name)
        return cls._of(_native.Graph.parse(text, name))

    @classmethod
    def _of(cls, native, scales=None, scaled_inputs=(), scaled_outputs=(), scale_shapes=None) -> Graph:
        graph = cls.__new__(cls)
        graph._native, graph._tag, graph.scales, graph.scale_shapes = native, "", scales, scale_shapes
        graph.scaled_inputs, graph.scaled_outputs = tuple(scaled_inputs), tuple(scaled_outputs)
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
        _checks.text("graph", name=name, dtype=dtype, kind=kind)
        return Value(self, self._native.add_input(kind, name, dtype, _whole(f"shape of '{name}'", shape)))

    def parameter(self, name: str, shape) -> Value:
        """An input that autodiff differentiates by: its gradient is the output "grad:NAME"."""
        return self.input(name, shape, kind="parameter")

    def output(self, name: str, value: Value) -> None:
        """autodiff differentiates "loss"."""
        _checks.text("graph", name=name)
        self._expect_own(name, value)
        self._native.add_output(name, value.id)

    def drop_output(self, name: str) -> None:
        _checks.text("graph", name=name)
        self._native.erase_output(name)

    def delayed_rescale(self, x: Value, site: str, norm: str = "l2", direction: str = "forward") -> Value:
        """x by the norm (l2, l1, max) that the call before measured of it, or backward of its gradient.

        The state is the input "rescale_factor:SITE", 0 at first, and "next:rescale_factor:SITE" the output that the next call takes
        (next_inputs).
        """
        self._expect_own("delayed_rescale", x)
        _checks.text("graph", site=site, norm=norm, direction=direction)
        return Value(self, self._native.delayed_rescale(x.id, site, norm, direction))

    def axis_rescale(self, x: Value, granularity: str, norm: str = "l2") -> Value:
        """x by the norm (l2, l1, max) that each of its rows (granularity "row") or columns ("channel") has in the call: a scale each."""
        self._expect_own("axis_rescale", x)
        _checks.text("graph", granularity=granularity, norm=norm)
        return Value(self, self._native.axis_rescale(x.id, granularity, norm))

    def periodic_rescale(self, x: Value, site: str, calls: int, norm: str = "l2") -> Value:
        """x by a norm that is measured at the first call and every `calls` after it. A second state is "rescale_factor:SITE.calls"."""
        self._expect_own("periodic_rescale", x)
        _checks.text("graph", site=site, norm=norm)
        return Value(self, self._native.periodic_rescale(x.id, site, _checks.integer("graph", "calls", calls, 1, 2**24), norm))

    def custom_scale(self, f, inputs, rule, gradients=()) -> Value:
        """f(*inputs) at the scale that rule(*scales) gives, scales and result numbers of this graph; the gradient of input i at the scale of
        the result's gradient times gradients[i](*scales). Without gradients the ops' own rules hold. Scales are rounded to powers of two."""
        for name, given in (("inputs", inputs), ("gradients", gradients)):
            if not isinstance(given, (list, tuple)) or (name == "inputs" and not given):
                _checks.refuse("graph", f"custom_scale: {name}", "a list" if name == "gradients" else "a list of values", given)
        for x in inputs:
            self._expect_own("custom_scale", x)
        _checks.function("graph", f=f, rule=rule, **{f"gradients[{i}]": g for i, g in enumerate(gradients)})

        def on_ids(function):
            def call(ids):
                value = function(*(Value(self, id) for id in ids))
                self._expect_own("custom_scale", value)
                return value.id
            return call
        return Value(self, self._native.custom_scale(on_ids(f), [x.id for x in inputs], on_ids(rule), [on_ids(g) for g in gradients]))

    def debug_print(self, name: str, value: Value) -> None:
        """Data and scale of the value go to the function's `debug` at every call, which prints them."""
        _checks.text("graph", name=name)
        self._expect_own("debug_print", value)
        self._native.debug(name, value.id)

    def at(self, layer: int, module: str = "") -> Graph:
        """The nodes that follow belong to this layer and module: recipes quantize the linears of layers. Gives the graph."""
        (layer,) = _whole("layer", [layer])
        _checks.integer("graph", "layer", layer, -1, 2**31 - 1)
        _checks.text("graph", module=module)
        if '"' in module or "\\" in module or "\n" in module:
            _checks.refuse("graph", "module", "a name in one line without quotes and backslashes", module)
        self._tag = f' @ layer {layer}, forward, "{module}"' if module else f" @ layer {layer}, forward"
        return self

    def op(self, name: str, *operands: Value, **named):
        """A node of this op. Gives its result, or a tuple of them with None for an absent one."""
        from . import _native
        _checks.text("graph", op=name)
        names, n_required = _native.op_slots(name)
        # An optional operand that comes in order is called by its name.
        slots = [(names[i] if n_required <= i < len(names) else None, operand) for i, operand in enumerate(operands)]
        slots += [(key, value) for key, value in named.items() if isinstance(value, Value)]
        for key, operand in slots:
            self._expect_own(key or name, operand)
        given = ", ".join((f"{key} = " if key else "") + f"%{operand.id}" for key, operand in slots)
        line, spans = f"%{_RESULT} = {name}({given}) {{", []
        for key, value in named.items():
            if not isinstance(value, Value):
                line += ", " if spans else ""
                spans.append((key, len(line), len(line := f"{line}{key} = {_attribute(key, value)}")))
        try:
            ids = self._native.append(f"{line}}}{self._tag}")
        except Error as error:
            raise _of_node(name, error, spans) from None
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
        names = _checks.texts("graph", "passes", names)
        return self._of(self._native.passes(names), None, self.scaled_inputs, self.scaled_outputs)

    def scalify(self, rounding: str = "predicted", input_rms: dict[str, float] | None = None,
                input_scales: dict[str, int] | None = None, scaled_inputs=(), scaled_outputs=(),
                granularities: dict[str, str] | None = None) -> Graph:
        """Every float value as data and a power-of-two scale that its op's rule chooses (docs/scalify.md). Outputs are values again.

        rounding: of scales, predicted, nearest, paper (down) or up.  input_rms: log2 of the RMS that an input has; 0 without.
        input_scales: log2 of the scale that an input's data come with.
        scaled_inputs: come as data and scale, a ScaledArray; "NAME.scale" is a further input.  scaled_outputs: leave so.
        granularities: of scaled inputs that are matrices: "row", a scale a row, or "channel", one a column.
        """
        def granularity(name, value):
            _checks.text("graph", **{name: value})
            return value
        _checks.text("graph", rounding=rounding)
        scaled_inputs, scaled_outputs = (_checks.texts("graph", name, given) for name, given in (("scaled_inputs", scaled_inputs),
                                                                                                 ("scaled_outputs", scaled_outputs)))
        rms = _checks.table("graph", "input_rms", input_rms, partial(_checks.number, "graph"))
        log2 = _checks.table("graph", "input_scales", input_scales, partial(_checks.integer, "graph", least=-126, most=126))
        granularities = _checks.table("graph", "granularities", granularities, granularity)
        native, scales, shapes = self._native.scalify(rounding, rms, log2, (scaled_inputs, scaled_outputs, granularities))
        return self._of(native, scales, scaled_inputs, scaled_outputs, [tuple(shape) for shape in shapes])

    def rescales(self) -> dict[str, int]:
        """How many nodes rescale by a norm that is measured for them, by other factors of run time and by constants; folded: into GEMMs and sums."""
        return self._native.rescales()

    def inspect(self) -> str:
        """After scalify(), a line for each value of floats: its type, log2 of its scale, and the scale's shape where it is not one number."""
        lines = []
        for value in (Value(self, id) for id in range(len(self.scales or ()))):
            if value.dtype == "real":
                shape = self.scale_shape_of(value)
                lines.append(f"{value}  2^{self.scale_of(value)}" + (f" x {list(shape)}" if shape else ""))
        return "\n".join(lines)

    def scale_of(self, value: Value | str) -> int:
        """log2 of the scale of a value, or of the output of this name, after scalify(): of the part that is known before the call."""
        return self.scales[self._scaled_id(value)]

    def scale_shape_of(self, value: Value | str) -> tuple[int, ...]:
        """The shape of that scale: (), or (R, 1) or (1, C) of a matrix with one a row or a column."""
        return self.scale_shapes[self._scaled_id(value)]

    def _scaled_id(self, value: Value | str) -> int:
        if self.scales is None:
            raise Error("[graph] expected a graph of scalify(), which has scales")
        if isinstance(value, str):
            if value not in self.outputs:
                raise Error(f"[graph] '{value}' is no output; the outputs are {', '.join(self.outputs) or 'none'}")
            value = self.outputs[value]
        self._expect_own("scale_of", value)
        if value.id >= len(self.scales):
            raise Error(f"[graph] %{value.id} was added after scalify() and has no scale")
        return value.id

    def compile(self, device: str = "cpu", threads: int = 0, isa: str = "auto", debug=print) -> Function:
        """The graph with a kernel for each node; values without types are f32. debug(name, ScaledArray) takes what debug_print() names."""
        return Function(self, device, threads, isa, debug)

    def run(self, arrays: dict | None = None, /, **named) -> dict[str, np.ndarray]:
        """The outputs by name, on the CPU: compile()() of these arrays."""
        return self.compile()(arrays, **named)


def _words(array: np.ndarray, dtype: str | None) -> tuple[str, np.ndarray]:
    """What a type is called, and the array where it lies as one that has a buffer: types of ml_dtypes have none. Float8 of the
    input's own format are its codes."""
    if array.dtype.name == "bfloat16":
        return "bf16", array.view(np.uint16)
    if array.dtype.name.startswith("float8"):
        return "|u1" if FLOAT8.get(array.dtype.name) == dtype else array.dtype.name, array.view(np.uint8)
    return array.dtype.str, array if array.dtype.kind in "biuf" else np.empty(0, np.uint8)


class Function:
    """A graph that runs: f(x=..., w=...) gives a dict of NumPy arrays. BF16 comes as float32, codes of 8-bit formats as uint8.

    Arrays are NumPy's, PyTorch's tensors, or others with DLPack. On the CPU what is contiguous, of the input's own type and aligned to 16
    bytes is read where it lies, and results are written where they are given; `copied_bytes` says what the last call copied or converted.
    Where one of the arrays is a tensor of PyTorch, results are tensors. A function on a GPU takes tensors on the GPU likewise, queued on
    PyTorch's current stream, and gives tensors of the graph's own types; arrays of the CPU are copied there. A graph that updates states
    takes arrays of the CPU alone.

    A ScaledArray may stand for any array of floats: scaled inputs take its data and scale (the scale of an array is 1), others its value.
    Scaled outputs come as ScaledArray. Calls of several threads are queued.
    """

    def __init__(self, graph: Graph, device: str = "cpu", threads: int = 0, isa: str = "auto", debug=print):
        from . import _native, _program
        _program.check_machine(device, isa, threads)
        if debug is not None:
            _checks.function("graph", debug=debug)
        self._lock, self._debug, self._device = threading.Lock(), debug, device
        self._scaled_inputs, self._scaled_outputs = graph.scaled_inputs, graph.scaled_outputs
        self._scale_shapes = {name: value.shape for name, value in graph.inputs.items() if name.removesuffix(".scale") in graph.scaled_inputs}
        self._run = _native.GraphRun(graph._native, _native.Machine(device, isa, threads, "" if device == "cpu" else str(module_path())))
        self._forms = self._run.output_forms()
        self._types = {name: value.dtype for name, value in self.graph.inputs.items()}
        self.copied_bytes = 0

    @property
    def graph(self) -> Graph:
        """As it runs: types chosen, ops fused."""
        return Graph._of(self._run.graph())

    def __call__(self, arrays: dict | None = None, /, **named) -> dict:
        arrays = _checks.table("graph", "arrays", arrays, lambda name, array: array)
        twice = set(arrays) & set(named)
        if twice:
            raise Error(f"[graph] given twice: {', '.join(sorted(twice))}")
        given = self._unscaled({**arrays, **named})
        if self._device == "cuda" and any(is_on_cuda(array) for array in given.values()):
            outputs, self.copied_bytes = run_on_cuda(self._run, given, self._lock)
        else:
            outputs = self._on_host(given)
        for name in [name for name in outputs if name.startswith("debug:") and name + ".scale" in outputs]:
            scale = float(outputs.pop(name + ".scale"))
            array = ScaledArray(outputs.pop(name), scale)
            if self._debug is not None:
                self._debug(name[len("debug:"):], array)
        for name in self._scaled_outputs:
            if name in outputs and name + ".scale" in outputs:
                outputs[name] = ScaledArray(outputs[name], outputs.pop(name + ".scale"))
        return outputs

    def _on_host(self, arrays: dict) -> dict:
        given, gathered = {}, 0
        for name, array in arrays.items():
            array = adopt(array)
            dense = contiguous(array)
            gathered += 0 if dense is array else dense.nbytes
            descr, words = _words(dense, self._types.get(name))
            given[name] = (descr, list(dense.shape), words)
        outputs = {name: np.empty(shape, np.dtype(descr)) for name, descr, shape in self._forms}
        with self._lock:
            self.copied_bytes = self._run(given, outputs) + gathered
        tensor = next((array for array in arrays.values() if is_torch(array)), None)
        return outputs if tensor is None else {name: result_like(tensor, array) for name, array in outputs.items()}

    def _unscaled(self, arrays: dict) -> dict:
        given = {}
        for name, array in arrays.items():
            if name in self._scaled_inputs:
                own = arrays.get(name + ".scale")
                if own is not None and isinstance(array, ScaledArray):
                    raise Error(f"[graph] given twice: the scale of '{name}', and '{name}.scale'")
                array = array if isinstance(array, ScaledArray) else ScaledArray(array)
                given[name + ".scale"] = self._scales(name, array.scale) if own is None else own
                given[name] = array.data
            elif name not in given:
                given[name] = np.asarray(array) if isinstance(array, ScaledArray) else array
        return given

    def _scales(self, name: str, scale):
        """As the input takes them: one number stands for that of each row or column."""
        shape = self._scale_shapes.get(name + ".scale", ())
        return np.full(shape, scale, np.float32) if np.ndim(scale) == 0 else scale
