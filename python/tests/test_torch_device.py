"""octet.torch on a CUDA device: results are the CPU's where sums are exact and near them elsewhere, coat's steps those of a run, and
nothing waits for the device. Kernels of the module run emulated on the CPU where there is none. Needs PyTorch."""

import copy
import shutil
from collections import OrderedDict

import pytest

torch = pytest.importorskip("torch", reason="octet.torch needs PyTorch")
import octet  # noqa: E402
import octet.torch as ot  # noqa: E402
from octet import _native, _program  # noqa: E402
from octet.torch import _blocks  # noqa: E402
from test_device_formats import emulated_module  # noqa: E402

bf16 = torch.bfloat16
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
on_card = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Place:
    """Where tests compute: on the CPU as PyTorch sees it, with the CPU's kernels or the module's emulated ones; or on a card."""

    def __init__(self, kind):
        self.kind, self.device = kind, torch.device("cuda", 0) if kind == "cuda" else torch.device("cpu")
        self._machines, self._blocks = {}, OrderedDict()
        if kind == "emulated":
            machine = _native.Machine("cuda", "auto", 1, str(emulated_module()), "", 0, True)
            self._machines[self.device] = _native.BlockMachine(machine)

    def __enter__(self):
        self._before = _blocks._machines, _blocks._blocks
        _blocks._machines, _blocks._blocks = self._machines, self._blocks
        return self.device

    def __exit__(self, *error):
        _blocks._machines, _blocks._blocks = self._before


@pytest.fixture(scope="module", params=["emulated", "cuda"])
def place(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    if request.param == "emulated" and not emulated_module().exists():
        pytest.skip(f"the emulated CUDA module is not built: {emulated_module()}")
    return Place(request.param)


CPU = Place("cpu")


def values(seed, *shape, scale=1.0):
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale).to(bf16)


def integers(seed, rows, cols, most):
    """All of a size's sums of products are exact: integers, whose largest stands in every row, column and group."""
    x = torch.randint(-most, most + 1, (rows, cols), generator=torch.Generator().manual_seed(seed))
    x[(torch.arange(rows)[:, None] + torch.arange(cols)) % 8 == 0] = most
    return x.to(bf16)


def linear(recipe, x, w, b, dy, device):
    """y, dx, dw and db."""
    net = ot.Linear(w.shape[1], w.shape[0], dtype=bf16, recipe=recipe)
    with torch.no_grad():
        net.weight.copy_(w)
        net.bias.copy_(b)
    net, x = net.to(device), x.clone().to(device).requires_grad_()
    y = net(x)
    y.backward(dy.to(device))
    assert {t.device for t in (y, x.grad, net.weight.grad)} == {device}
    return [t.detach().cpu() for t in (y, x.grad, net.weight.grad, net.bias.grad)]


def distance(a, b):
    a, b = a.detach().float().cpu(), b.detach().float().cpu()
    return ((a - b).norm() / b.norm()).item()


@pytest.mark.parametrize("rows, n_in, n_out", [(64, 128, 48), (33, 129, 65)])
@pytest.mark.parametrize("recipe", ot.RECIPES)
def test_exact_products_have_the_cpus_bits(place, recipe, rows, n_in, n_out):
    most = 15 if recipe == "hif8" else 7
    no_bias = torch.zeros(n_out, dtype=bf16)  # a card adds it before it rounds
    given = integers(1, rows, n_in, most), integers(2, n_out, n_in, most), no_bias, integers(4, rows, n_out, 7)
    with CPU as cpu:
        expected = linear(recipe, *given, cpu)
    with place as device:
        got = linear(recipe, *given, device)
    assert torch.equal(expected[0], (given[0].float() @ given[1].float().t()).to(bf16))
    assert all(map(torch.equal, got, expected))


@pytest.mark.parametrize("recipe", ot.RECIPES)
def test_products_are_near_the_cpus(place, recipe):
    """Operands have the CPU's codes; sums differ by the order and the width of their additions."""
    given = values(1, 96, 160), values(2, 64, 160, scale=0.1), values(3, 64), values(4, 96, 64)
    with CPU as cpu:
        expected = linear(recipe, *given, cpu)
    with place as device:
        got = linear(recipe, *given, device)
    assert max(distance(a, b) for a, b in zip(got, expected)) < 2**-8  # a step of BF16, in some elements


@pytest.mark.parametrize("where", ["x", "dy"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_hidden(place, value, where):
    x, dy = values(1, 40, 96), values(2, 40, 48)
    (x if where == "x" else dy)[3, 4] = value
    with place as device:
        y, dx, dw, _ = linear("fp8_linear", x, values(3, 48, 96), values(4, 48), dy, device)
    assert [bool(t.isnan().all()) for t in (y, dx, dw)] == ([True, False, False] if where == "x" else [False, True, True])


def test_views_that_are_not_aligned_are_read(place):
    whole = values(1, 41, 96)
    with place as device:
        net = ot.Linear(96, 48, dtype=bf16).to(device)
        x = whole.flatten()[1:1 + 40 * 96].view(40, 96).to(device)
        shifted = torch.cat([x.new_zeros(1), x.flatten()])[1:].view(40, 96)
        assert shifted.data_ptr() % 16 != 0 and torch.equal(net(shifted), net(x))
        assert torch.equal(net(x.t().contiguous().t()), net(x))


@pytest.fixture(scope="module")
def llama():
    transformers = pytest.importorskip("transformers", minversion="5.0", reason="needs transformers")
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=64, intermediate_size=176, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=20,
        vocab_size=256, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2)).to(bf16)


IDS = torch.randint(0, 256, (2, 32), generator=torch.Generator().manual_seed(1))


def step(model, device):
    """The loss and all gradients."""
    ids = IDS.to(device)
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters())]


def coated(llama, device):
    return ot.coat(copy.deepcopy(llama)).to(device)


def test_coat_learns_as_on_the_cpu(place, llama):
    with CPU as cpu:
        expected = step(coated(llama, cpu), cpu)
    with place as device:
        model = coated(llama, device)
        got = step(model, device)
        told = ot.report(model, input_ids=IDS.to(device), labels=IDS.to(device), accuracy=True)
    assert abs(got[0].cpu() - expected[0]) < 2e-3 and len(got) == len(expected)
    # Codes of values between two steps differ; 0.25 is what they cost beside the plain model's gradients (test_torch_coat.py).
    assert max(distance(a, b) for a, b in zip(got[1:], expected[1:]) if b.norm() > 1e-3) < 0.15
    assert "e4m3:1x16" in str(told) and all(value > 20 for values in told.snr.values() for value in values)


def program_beside(module, folder):
    """The program as its CUDA module lies beside it."""
    shutil.copy(_program.path(), folder / "octet")
    (folder / "liboctet_cuda.so").symlink_to(module)
    return folder / "octet"


def test_three_steps_have_the_losses_of_a_run_on_the_device(place, llama, tmp_path, monkeypatch):
    """With attention, embedding, head and loss by the program's ops, too."""
    import octet_parts
    llama.save_pretrained(tmp_path / "model")
    text = bytes(torch.randint(97, 123, (300,), generator=torch.Generator().manual_seed(5)).tolist())
    (tmp_path / "text").write_bytes(text)
    if place.kind == "emulated":
        program = program_beside(emulated_module(), tmp_path)
        monkeypatch.setattr(_program, "path", lambda: program)
    run = list(octet.train({
        "model": {"path": str(tmp_path / "model"), "seq": 32}, "recipe": "coat", "out": str(tmp_path / "run"),
        "data": {"train": [str(tmp_path / "text")], "tokenizer": "bytes", "shuffle": False},
        "optim": {"lr": 1e-3, "schedule": "constant", "warmup": 0, "betas": [0.9, 0.95], "weight_decay": 0.1},
        "train": {"steps": 3, "batch": 2, "seed": 1, "deterministic": True}}, device="cuda"))
    with place as device:
        model = copy.deepcopy(llama).to(device)
        octet_parts.give_parts(model, monkeypatch)
        ot.coat(model)
        groups = octet.optim.parameter_groups(model, weight_decay=0.1)
        optimizer = octet.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), clip=1.0, seed=1)
        for i, theirs in enumerate(run):
            rows = torch.tensor([list(text[32 * n: 32 * n + 33]) for n in (2 * i, 2 * i + 1)], device=device)
            loss = octet_parts.loss(model(input_ids=rows[:, :-1]).logits.view(-1, 256), rows[:, 1:].reshape(-1))
            loss.backward()
            assert abs(loss.item() - theirs["loss"]) <= (1e-5 if place.kind == "cuda" else 0)
            optimizer.step()
            optimizer.zero_grad()


@on_card
def test_nothing_waits_for_the_device(llama):
    device = torch.device("cuda", 0)
    model, ids = coated(llama, device), IDS.to(device)
    linears = [ot.Linear(96, 48, dtype=bf16, recipe=recipe).to(device) for recipe in ot.RECIPES]
    x = values(1, 40, 96).to(device).requires_grad_()
    for is_compiled in (False, True):
        torch.cuda.set_sync_debug_mode("error" if is_compiled else "default")
        try:
            hidden = model.model.embed_tokens(ids)
            layer, position = model.model.layers[0], model.model.rotary_emb(hidden, torch.arange(32, device=device)[None])
            layer(hidden, position_embeddings=position).float().sum().backward()
            for net in linears:
                net(x).float().sum().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")


@on_card
def test_work_is_queued_behind_the_callers(llama):
    """On the current stream: what it reads is written by slow work before, and the result is read by work behind."""
    device = torch.device("cuda", 0)
    net, x = ot.Linear(4096, 4096, bias=False, dtype=bf16).to(device), values(1, 4096, 4096).to(device)
    with torch.no_grad():
        expected, stream, late = net(x), torch.cuda.Stream(), torch.zeros_like(x)
        stream.wait_stream(torch.cuda.current_stream())
        for _ in range(3):
            with torch.cuda.stream(stream):
                late.zero_()
                torch.cuda._sleep(20_000_000)
                late.copy_(x)
                y = net(late) * 1
            stream.synchronize()
            assert torch.equal(y, expected)


@on_card
def test_a_cuda_graph_holds_both_passes():
    device = torch.device("cuda", 0)
    net, x = ot.Linear(128, 64, dtype=bf16).to(device), values(1, 48, 128).to(device)

    def both():
        net.zero_grad(set_to_none=False)
        y = net(x)
        y.float().square().sum().backward()
        return y
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            both()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = both()
    for seed in (5, 6):
        x.copy_(values(seed, 48, 128))
        graph.replay()
        got = [y.clone(), net.weight.grad.clone()]
        assert torch.equal(both(), got[0]) and torch.equal(net.weight.grad, got[1])
    other = ot.Linear(128, 64, dtype=bf16, recipe="fp8_row").to(device)
    with pytest.raises(octet.Error, match="before a CUDA graph captures one"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        other(x)


@on_card
def test_compiled_models_have_the_same_bits(llama):
    device = torch.device("cuda", 0)
    net = torch.nn.Sequential(ot.Linear(64, 96, dtype=bf16), ot.Linear(96, 64, dtype=bf16, recipe="fp8_block")).to(device)
    x, results = values(1, 48, 64).to(device), []
    for f in (net, torch.compile(net, fullgraph=True)):
        net.zero_grad()
        y = f(x)
        y.float().sum().backward()
        results.append([y.detach(), *(p.grad.clone() for p in net.parameters())])
    assert all(map(torch.equal, *results))
    model = coated(llama, device)
    compiled = torch.compile(model, fullgraph=True)
    assert abs(step(compiled, device)[0] - step(coated(llama, device), device)[0]) < 5e-3


@on_card
def test_devices_that_differ_are_named():
    net = ot.Linear(96, 48, dtype=bf16).to("cuda")
    with pytest.raises(octet.Error, match="expected tensors on one device, got .'cpu', 'cuda:0', 'cuda:0'."):
        net(values(1, 40, 96))


def test_a_module_that_is_not_there_is_named(tmp_path, monkeypatch):
    """Where a CUDA tensor comes, not before."""
    monkeypatch.setenv("OCTET_CUDA_MODULE", str(tmp_path / "none.so"))
    monkeypatch.setattr(_blocks, "_machines", {})
    with pytest.raises(octet.Error, match="expected the CUDA module .*none.so"):
        _blocks._machine(torch.device("cuda", 0))
