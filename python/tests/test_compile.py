"""Steps inside compiled functions: no graph break, and the bits of the step as it stands. Needs PyTorch."""

import octet
import pytest
from test_device_step import Kernels, on_devices  # noqa: F401

torch = pytest.importorskip("torch", reason="octet.optim needs PyTorch")
dynamo = pytest.importorskip("torch._dynamo", reason="needs torch.compile")

OPTIONS = {"lr": 1e-2, "betas": (0.9, 0.95), "weight_decay": 0.1, "seed": 3}
STEPS = 4


def model(dtype=torch.bfloat16, seed=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(33, 47), torch.nn.GELU(), torch.nn.Linear(47, 5)).to(dtype)


def set_gradients(net, step):
    generator = torch.Generator().manual_seed(1000 + step)
    for p in net.parameters():
        p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)


def same_bits(a, b):
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters()))


def same_states(a, b):
    a, b = a.state_dict(), b.state_dict()
    return a["param_groups"][0]["attempt"] == b["param_groups"][0]["attempt"] and all(
        torch.equal(one[key], b["state"][i][key]) for i, one in a["state"].items() for key in one)


@pytest.fixture(autouse=True)
def fresh_compiler():
    dynamo.reset()
    dynamo.utils.counters.clear()
    yield
    dynamo.reset()


@pytest.fixture(params=["cpu", "planned"])
def make(request, on_devices):  # noqa: F811
    """Optimizers of the CPU's step, and of the devices' with kernels of the CPU."""
    return octet.optim.AdamW if request.param == "cpu" else on_devices


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("master,dtype", [("bf16_remainder", torch.bfloat16), ("bf16_sr", torch.bfloat16), ("fp32", torch.float16),
                                          ("fp32", torch.float32)])
def test_a_step_is_one_graph_with_the_same_bits(make, backend, master, dtype):
    nets = model(dtype), model(dtype)
    options = {**OPTIONS, "master": master, "clip": 1.0}
    plain = octet.optim.AdamW(nets[0].named_parameters(), **options)
    compiled = make(nets[1].named_parameters(), **options)
    step = torch.compile(compiled.step, backend=backend, fullgraph=True)
    for i in range(STEPS):
        for net, optimizer, run in zip(nets, (plain, compiled), (plain.step, step)):
            set_gradients(net, i)
            optimizer.param_groups[0]["lr"] = 1e-2 / (1 + i)
            if i == 2:
                net[0].bias.grad[1] = float("inf")
            run()
        assert plain.skipped == compiled.skipped == (i == 2)
    assert same_bits(*nets) and same_states(plain, compiled)
    assert dynamo.utils.counters["stats"]["unique_graphs"] == 1, "rates and counters compile nothing anew"


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_forward_backward_and_step_are_one_graph(backend):
    if not hasattr(dynamo.config, "trace_autograd_ops"):
        pytest.skip("this PyTorch does not trace backward()")
    nets = model(torch.float32), model(torch.float32)
    optimizers = [octet.optim.AdamW(net.named_parameters(), **OPTIONS, master="fp32") for net in nets]

    def train(net, optimizer, x):
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = torch.compile(train, backend=backend, fullgraph=True)
    for i in range(STEPS):
        x = torch.randn(16, 33, generator=torch.Generator().manual_seed(i))
        losses = []
        for net, optimizer, run in zip(nets, optimizers, (train, compiled)):
            with dynamo.config.patch(trace_autograd_ops=True):
                losses.append(run(net, optimizer, x))
            optimizer.zero_grad()
    assert optimizers[1].counts == {"applied": STEPS, "skipped": 0}
    if backend == "inductor":  # it fuses the model's own operations, which rounds otherwise
        assert torch.allclose(*losses, rtol=1e-3) and losses[1] < 1
        for p, q in zip(*(net.parameters() for net in nets)):
            assert torch.allclose(p, q, rtol=0.1, atol=1e-2)
    else:
        assert same_bits(*nets) and same_states(*optimizers)


def test_a_rate_that_is_a_tensor_is_read_when_the_graph_runs(make):
    rate = torch.tensor(1e-2)
    nets = model(), model()
    plain, compiled = octet.optim.AdamW(nets[0].named_parameters(), lr=rate), make(nets[1].named_parameters(), lr=rate)
    step = torch.compile(compiled.step, backend="aot_eager", fullgraph=True)
    for i in range(STEPS):
        rate.fill_(1e-2 / (1 + i))
        for net, run in zip(nets, (plain.step, step)):
            set_gradients(net, i)
            run()
    assert same_bits(*nets)


def test_loaded_states_and_new_groups_are_taken_up(make):
    nets = model(), model()
    optimizers = [octet.optim.AdamW(nets[0][0].named_parameters(prefix="0"), **OPTIONS),
                  make(nets[1][0].named_parameters(prefix="0"), **OPTIONS)]
    step = torch.compile(optimizers[1].step, backend="aot_eager", fullgraph=True)
    runs = optimizers[0].step, step
    stored = None
    for i in range(8):
        for k, (net, optimizer, run) in enumerate(zip(nets, optimizers, runs)):
            if i == 2:
                optimizer.add_param_group({"params": list(net[2].named_parameters(prefix="2")), "lr": 1e-3})
            if i == 6:
                optimizer.load_state_dict(stored)
            set_gradients(net, i)
            if i == 3:
                net[0].bias.grad = None
            run()
        if i == 4:
            import copy
            stored = copy.deepcopy(optimizers[0].state_dict())
    assert same_bits(*nets) and same_states(*optimizers)


def test_other_gradients_may_be_missing_in_every_step(make):
    nets = model(), model()
    plain, compiled = octet.optim.AdamW(nets[0].named_parameters(), **OPTIONS), make(nets[1].named_parameters(), **OPTIONS)
    step = torch.compile(compiled.step, backend="aot_eager", fullgraph=True)
    for i, missing in enumerate([0, 1, 3, 0]):
        for net, run in zip(nets, (plain.step, step)):
            set_gradients(net, i)
            list(net.parameters())[missing].grad = None
            run()
    assert same_bits(*nets)


def test_a_master_begins_as_the_weight_is_when_the_graph_runs():
    p, q = (torch.nn.Parameter(torch.ones(8, dtype=torch.float16)) for _ in range(2))
    a, b = (octet.optim.AdamW([("w", w)], lr=0.5) for w in (p, q))

    def doubled(w, optimizer):
        with torch.no_grad():
            w.mul_(2)
        optimizer.step()

    p.grad, q.grad = torch.ones_like(p), torch.ones_like(q)
    doubled(p, a)
    torch.compile(doubled, backend="aot_eager", fullgraph=True)(q, b)
    assert torch.equal(p, q) and torch.equal(a.state[p]["master"], b.state[q]["master"])


def test_masters_go_on_between_traced_steps_and_others():
    nets = model(torch.float16), model(torch.float16)
    a, b = (octet.optim.AdamW(net.named_parameters(), **OPTIONS) for net in nets)
    step = torch.compile(b.step, backend="eager", fullgraph=True)
    for i in range(6):
        for net, run in zip(nets, (a.step, step if i in (0, 3, 5) else b.step)):
            set_gradients(net, i)
            if i == 0:
                net[2].bias.grad = None  # its state begins while the step is traced
            run()
            if i == 0:
                net[2].bias.data.mul_(2)
    assert same_bits(*nets) and same_states(a, b)


def test_the_operator_says_what_it_changes():
    schema = str(torch.ops.octet.adamw_step.default._schema)
    assert "Tensor(a!)[] weights, Tensor[] gradients, Tensor(b!)[] states" in schema and schema.endswith("-> ()")
