"""octet.torch.Linear and convert(): against the program's own graphs, in bits; and in what a PyTorch module must bear. Needs PyTorch."""

import copy
import io
import os
import pickle
import warnings

import numpy as np
import octet
import pytest
from octet import graph

torch = pytest.importorskip("torch", reason="octet.torch needs PyTorch")
import octet.torch as ot  # noqa: E402

bf16 = torch.bfloat16


def values(seed, *shape, scale=1.0):
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale).to(bf16)


def layer(recipe, n_in=96, n_out=48, bias=True):
    net = ot.Linear(n_in, n_out, bias=bias, dtype=bf16, recipe=recipe)
    with torch.no_grad():
        net.weight.copy_(values(1, n_out, n_in, scale=0.1))
        if bias:
            net.bias.copy_(values(2, n_out))
    return net


def scale_of(w, target):
    g = graph.Graph()
    g.output("scale", g.quant_scale(g.amax(g.input("w", w.shape))[0], target=target))
    return g.run(w=w)["scale"]


def by_program(recipe, x, w, bias, dy):
    """y and dw of the recipe's own pass over a graph of one linear."""
    g = graph.Graph()
    a, b, c = g.input("x", x.shape), g.parameter("w", w.shape), g.parameter("b", bias.shape)
    y = g.bias_add(g.at(0, "proj").gemm(a, b, trans_b=True, role="forward"), c)
    g.output("y", y)
    g.output("loss", g.reduce_sum(y * g.input("dy", dy.shape), axes=[0, 1]))
    typed = g.passes("autodiff", "simplify", recipe)
    arrays = {name: t.float().numpy() for name, t in (("x", x), ("w", w), ("b", bias), ("dy", dy))}
    for name in typed.inputs:  # a run keeps the weight's scale between its steps
        if name.startswith("copy_scale:"):
            arrays[name] = scale_of(arrays["w"], 15 if recipe == "hif8" else 448)
    results = typed.run(arrays)
    return results["y"], results["grad:w"], results["grad:b"]


@pytest.mark.parametrize("recipe", ot.RECIPES)
@pytest.mark.parametrize("rows, n_in, n_out", [(40, 96, 48), (33, 129, 65), (1, 256, 16)])
def test_products_are_the_programs_bits(recipe, rows, n_in, n_out):
    net, x, dy = layer(recipe, n_in, n_out), values(3, rows, n_in), values(4, rows, n_out)
    y = net(x)
    y.backward(dy)
    for ours, own in zip((y, net.weight.grad, net.bias.grad), by_program(recipe, x, net.weight.detach(), net.bias.detach(), dy)):
        assert np.array_equal(ours.detach().float().numpy(), own)


def test_dx_reads_codes_of_dy_and_w():
    net, x, dy = layer("fp8_linear"), values(3, 40, 96).requires_grad_(), values(4, 40, 48)
    net(x).backward(dy)
    q_dy, q_w = (octet.formats.dequantize(octet.formats.quantize(t.detach().float().numpy(), format, "tensor"))
                 for t, format in ((dy, "e5m2"), (net.weight, "e4m3")))
    exact = q_dy.astype(np.float64) @ q_w
    assert np.allclose(x.grad.float().numpy(), exact, rtol=2**-8, atol=1e-6)


def test_kept_is_a_byte_an_element():
    net, x = torch.nn.Sequential(layer("fp8_linear", 256, 64)), values(3, 128, 256)
    told = ot.report(net, x)
    assert told.plain_bytes == 2 * 128 * 256 and told.bytes == 128 * 256 + 4  # codes of x and their scale
    assert [name for name, _ in told.rows[0].kept] == ["e4m3:tensor", "f32"] and "e4m3:tensor" in str(told)


@pytest.mark.parametrize("recipe, least", [("fp8_linear", 25), ("fp8_row", 25), ("fp8_block", 30), ("mxfp8", 30), ("hif8", 25)])
def test_accuracy_of_operands_is_told(recipe, least):
    net = torch.nn.Sequential(layer(recipe, 256, 64), layer(recipe, 64, 32))
    told = ot.report(net, values(3, 128, 256), accuracy=True)
    assert all(least < value < 45 for value in told.snr["0"]) and len(told.snr) == 2
    assert net[0].weight.grad is None and "signal to noise" in str(told)


@pytest.mark.parametrize("output, is_differentiated", [
    (lambda y: {"logits": y}, True), (lambda y: [(y,)], True), (lambda y: None, False), (lambda y: (y > 0,), False), (lambda y: {}, False),
])
def test_accuracy_is_told_of_any_output(output, is_differentiated):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = layer("fp8_linear")

        def forward(self, x):
            return output(self.linear(x).square())
    model, x = Model(), values(3, 40, 96)
    for_x, for_w, for_dy = ot.report(model, x, accuracy=True).snr["linear"]
    assert for_x > 25 and for_w > 25 and (for_dy > 20) == is_differentiated
    with torch.inference_mode():
        assert ot.report(model, x).bytes == ot.report(model, x).rows[0].bytes + (40 * 48 * 2)
    assert np.isnan(ot.report(model.requires_grad_(False), x, accuracy=True).snr["linear"][2])


def test_shapes_of_any_kind():
    net = layer("fp8_linear", 17, 5)
    whole = net(values(3, 6, 17))
    assert torch.equal(net(values(3, 6, 17).reshape(2, 3, 17)), whole.reshape(2, 3, 5))
    assert torch.equal(net(values(3, 6, 17).t().contiguous().t()), whole)  # columns one after another
    assert torch.equal(net(torch.cat([torch.zeros(1, dtype=bf16), values(3, 6, 17).flatten()])[1:].view(6, 17)), whole)
    x = torch.empty(0, 17, dtype=bf16, requires_grad=True)
    net(x).sum().backward()
    assert x.grad.shape == (0, 17) and not net.weight.grad.any()
    assert net(values(3, 17)).shape == (5,)


def test_nothing_is_differentiated_that_nobody_wants():
    net = layer("fp8_linear")
    net.weight.requires_grad_(False)
    x = values(3, 40, 96).requires_grad_()
    assert ot.report(torch.nn.Sequential(net), x).bytes == 4  # the weight's scale
    net(x).sum().backward()
    assert net.weight.grad is None and net.bias.grad is not None and x.grad is not None
    with torch.no_grad():
        assert not net(x).requires_grad


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_hidden(value):
    net, x, dy = layer("fp8_linear"), values(3, 40, 96), values(4, 40, 48)
    broken = x.clone()
    broken[3, 4] = value
    assert net(broken).isnan().all()
    dy[5, 6] = value
    net(x).backward(dy)
    assert net.weight.grad.isnan().all()


def test_float32_is_rounded_and_comes_back():
    net, x = layer("mxfp8").float(), values(3, 40, 96).float()
    y = net(x)
    y.sum().backward()
    assert y.dtype == net.weight.grad.dtype == torch.float32 and torch.equal(y.to(bf16), layer("mxfp8")(x.to(bf16)))
    with torch.autocast("cpu", bf16):
        assert net(x).dtype == bf16


def test_double_backward_is_refused():
    net, x = layer("fp8_linear"), values(3, 4, 96).requires_grad_()
    (dx,) = torch.autograd.grad(net(x).float().square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dx.sum().backward()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.middle = torch.nn.Linear(64, 48), torch.nn.ModuleDict({"a": torch.nn.Linear(48, 48, bias=False)})
        self.attention = torch.nn.MultiheadAttention(48, 4)  # its projection is a subclass of nn.Linear
        self.last = torch.nn.Linear(48, 8)
        self.to(bf16)

    def forward(self, x):
        return self.last(torch.nn.functional.gelu(self.middle["a"](self.first(x))))


def classes(net):
    return [type(module) for module in net.modules()]


def test_convert_is_in_place_and_saves_as_before():
    net = Net()
    plain, weights = copy.deepcopy(net), {name: t.clone() for name, t in net.state_dict().items()}
    assert ot.convert(net, "fp8_row") is net
    assert {name for name, module in net.named_modules() if isinstance(module, ot.Linear)} == {"first", "middle.a", "last"}
    assert [*net.state_dict()] == [*weights] and all(torch.equal(net.state_dict()[name], t) for name, t in weights.items())
    plain.load_state_dict(net.state_dict())
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    x = values(3, 10, 64)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), torch.load(file, weights_only=False)):
        assert torch.equal(other(x), net(x)) and classes(other) == classes(net)
    assert "recipe=fp8_row" in repr(net)


def test_convert_takes_names_patterns_and_functions():
    for filter, names in (("first", ["first"]), (["*.a", "last"], ["middle.a", "last"]),
                          (lambda name, module: module.out_features == 8, ["last"])):
        net = ot.convert(Net(), filter=filter)
        assert [name for name, module in net.named_modules() if isinstance(module, ot.Linear)] == names


@pytest.mark.parametrize("prepare, given, words", [
    (None, {"recipe": "fp9"}, "recipe: expected one of fp8_linear, fp8_row, fp8_block, hif8, mxfp8, got 'fp9'"),
    (None, {"filter": ["first", "head"]}, "got 'head', which matches no module"),
    (None, {"filter": "attention.*"}, "got 'attention.*', which matches NonDynamicallyQuantizableLinear alone"),
    (None, {"filter": 3}, "filter: expected names, patterns or a function, got 3"),
    (None, {"filter": lambda name, module: False}, "nn.Linear modules that the filter names, got none"),
    (lambda net: net.last.double(), {}, "last.weight: expected bfloat16 or float32, got float64"),
    (lambda net: net.last.half(), {}, "last.weight: expected bfloat16 or float32, got float16"),
    (lambda net: net.last.to("meta"), {}, "last.weight: expected a tensor on the CPU or a CUDA device, got one on meta"),
    (lambda net: setattr(net.last, "weight", torch.nn.Parameter(net.last.weight.detach().to_sparse())), {},
     "last.weight: expected a dense tensor"),
])
def test_convert_refuses_and_changes_nothing(prepare, given, words):
    net = Net()
    if prepare:
        prepare(net)
    before = classes(net)
    with pytest.raises(octet.Error) as caught:
        ot.convert(net, **given)
    assert words in str(caught.value) and classes(net) == before


@pytest.mark.parametrize("change", [
    lambda linear: setattr(linear, "forward", linear.forward),
    lambda linear: pytest.importorskip("accelerate").hooks.add_hook_to_module(linear, pytest.importorskip("accelerate").hooks.ModelHook()),
])
def test_linears_whose_forward_pass_is_replaced_are_refused(change):
    net = Net()
    change(net.last)
    before = classes(net)
    with pytest.raises(octet.Error, match="last: expected the forward pass of its class"):
        ot.convert(net)
    assert classes(net) == before
    ot.convert(net, filter="first")
    with pytest.raises(octet.Error, match="got 'first', which matches converted Linear alone"):
        ot.convert(net, filter="first")
    with pytest.raises(octet.Error, match="got none that is not converted already"):
        ot.convert(ot.convert(torch.nn.Sequential(torch.nn.Linear(4, 4))))


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("filter", [None, "layers.1.linear2"])
def test_encoder_layers_multiply_in_8_bits_without_gradients_too(padded, filter):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    net, x = torch.nn.TransformerEncoder(layer, 2).to(bf16), values(3, 2, 5, 32)
    mask = torch.tensor([[False] * 5, [False] * 3 + [True] * 2]) if padded else None
    ot.convert(net, filter=filter)
    expected = net.train()(x, src_key_padding_mask=mask)
    for other in (net, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        torch.backends.mha.set_fastpath_enabled(True)
        with torch.no_grad():
            got = other.eval()(x, src_key_padding_mask=mask)
            torch.backends.mha.set_fastpath_enabled(False)  # attention's alone is left
            try:
                slow = other(x, src_key_padding_mask=mask)
            finally:
                torch.backends.mha.set_fastpath_enabled(True)
        kept = ~mask if padded else torch.ones(2, 5, dtype=bool)
        assert torch.equal(slow[kept], expected[kept]) and (got - slow)[kept].float().norm() < 0.01 * slow[kept].float().norm()


def test_output_embeddings_of_a_model_inside_are_left():
    class Inside(Net):
        def get_output_embeddings(self):
            return self.last

    class Without(torch.nn.Module):
        def get_output_embeddings(self):
            raise NotImplementedError

    class Lost(torch.nn.Module):
        def get_output_embeddings(self):
            return self.lm_head

    net = ot.convert(torch.nn.ModuleList([Inside(), Without(), Lost()]))
    assert type(net[0].last) is torch.nn.Linear and type(net[0].first) is ot.Linear


def test_transforms_and_tracers_are_refused_by_name():
    net, x = layer("fp8_linear"), values(3, 4, 96)
    frozen = copy.deepcopy(net).requires_grad_(False)
    for module in (net, frozen):
        for call in (lambda m: torch.func.grad(lambda x: m(x).float().sum())(x), lambda m: torch.vmap(m)(x[None]),
                     lambda m: torch.func.jvp(m, (x,), (x,))):
            with pytest.raises(octet.Error, match="expected plain tensors, got one of a transform of torch.func"):
                call(module)
        with torch.autograd.forward_ad.dual_level(), pytest.raises(octet.Error, match="got one of forward-mode differentiation"):
            module(torch.autograd.forward_ad.make_dual(x, x))
        with pytest.raises(octet.Error, match="weight: expected a tensor, got Proxy"):
            torch.fx.symbolic_trace(torch.nn.Sequential(module))
        with warnings.catch_warnings(), pytest.raises(octet.Error, match="outside of torch.jit.trace"):
            warnings.simplefilter("ignore")
            torch.jit.trace(module, x)
    y = net(x.requires_grad_())
    with pytest.raises(octet.Error, match="or of batched gradients"):
        torch.autograd.grad(y, x, torch.ones(2, *y.shape, dtype=bf16), is_grads_batched=True)
    other = {"weight": torch.zeros_like(net.weight), "bias": torch.ones_like(net.bias)}
    assert (torch.func.functional_call(net, other, (x,)) == 1).all()


def test_a_negative_view_is_read_as_what_it_says():
    net, x = layer("fp8_linear"), values(3, 4, 96)
    assert torch.equal(net(torch._neg_view(x)), net(-x))


def test_a_linear_of_pytorchs_usual_type_is_checked(monkeypatch):
    monkeypatch.setattr(torch, "get_default_dtype", lambda: torch.float64)
    with pytest.raises(octet.Error, match="dtype: expected torch.bfloat16 or torch.float32, got None, which is torch.float64"):
        ot.Linear(4, 4)


@pytest.mark.parametrize("x, words", [
    (torch.zeros(3, 95, dtype=bf16), "x: expected 96 columns, got [[3, 95]]"),
    (torch.zeros(3, 96, dtype=torch.float16), "x: expected bfloat16 or float32, got float16"),
    (torch.zeros(3, 96, dtype=bf16, device="meta"), "x: expected a tensor on the CPU or a CUDA device, got one on meta"),
    (torch.zeros(3, 96, dtype=bf16).to_sparse(), "x: expected a dense tensor"),
])
def test_calls_are_refused_by_name(x, words):
    with pytest.raises(octet.Error) as caught:
        layer("fp8_linear")(x)
    assert words in str(caught.value)


def test_threads_wait_for_one_another():
    from concurrent.futures import ThreadPoolExecutor
    nets, x = [layer("fp8_linear", 96, n) for n in (48, 64)], values(3, 40, 96)
    expected = [net(x) for net in nets]

    def run(i):
        return all(torch.equal(nets[i](x), expected[i]) for _ in range(30))
    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(run, (0, 1)))


def test_pytorch_keeps_its_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        layer("fp8_linear", 96, 80)(values(3, 200, 96))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_children_go_on():
    net, x = layer("fp8_linear"), values(3, 40, 96)
    expected = net(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads and forks
        child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(net(x), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_compiled_bits_are_the_same():
    net, x = ot.convert(Net(), "fp8_block"), values(3, 10, 64)
    net.last.bias.requires_grad_(False)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    for rows in (10, 7):
        results = []
        for f in (net, compiled):
            net.zero_grad()
            y = f(x[:rows])
            y.sum().backward()
            results.append([y, *(p.grad.clone() for p in net.parameters() if p.grad is not None)])
        assert len(results[0]) == 5 and all(torch.equal(a, b) for a, b in zip(*results))


def test_operators_keep_their_promises():
    """Fakes, schema and autograd registration, as torch.library checks them."""
    from octet.torch._functions import linear_text
    x, w = values(3, 10, 64), values(1, 8, 64)
    torch.library.opcheck(torch.ops.octet.block_forward, ([x, w], linear_text("fp8_linear", 64, 8, False), ["x", "linear.weight"]),
                          test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("call, text", [
    (lambda: ot.Linear(0, 4), "in_features: expected an integer of 1 or more, got 0"),
    (lambda: ot.Linear(4, -1), "out_features: expected an integer of 1 or more, got -1"),
    (lambda: ot.Linear(4.0, 4), "in_features: expected an integer of 1 or more, got 4.0"),
    (lambda: ot.Linear(4, 4, dtype=torch.float16), "dtype: expected torch.bfloat16 or torch.float32, got torch.float16"),
    (lambda: ot.Linear(4, 4)([1.0]), "x: expected a tensor, got list"),
    (lambda: ot.Linear(4, 4)(np.ones((1, 4), np.float32)), "x: expected a tensor, got ndarray"),
    (lambda: ot.convert(torch.nn.Sequential(torch.nn.Linear(4, 0))), "0.weight: expected one element or more, got shape"),
    (lambda: ot.report(None), "expected a torch.nn.Module, got NoneType"),
    (lambda: ot.report(torch.nn.ReLU(), accuracy="x"), "accuracy: expected True or False, got 'x'"),
])
def test_what_is_no_layer_and_no_input_is_named(call, text):
    with warnings.catch_warnings(), pytest.raises(octet.Error, match=text):
        warnings.simplefilter("ignore")  # PyTorch's of a weight without elements
        call()
