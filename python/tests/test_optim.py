"""octet.optim.AdamW against the program, torch.optim.AdamW and itself. Needs PyTorch."""

import copy
import io

import numpy as np
import octet
import pytest
from test_kernels import BETAS, DECAY, EPS, LR, read_safetensors

torch = pytest.importorskip("torch", reason="octet.optim needs PyTorch")

STEPS = 50
OPTIONS = {"lr": LR, "betas": BETAS, "eps": EPS, "weight_decay": DECAY}
STATES = ["e4m3+x", "e4m3", "hif8+x", "de8+x", "bf16", "f32", "e4m3_sr+x"]
MASTERS = ["bf16_remainder", "bf16_sr", "fp32"]
DTYPES = [torch.bfloat16, torch.float16, torch.float32]


def model(dtype=torch.float32, seed=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(33, 47), torch.nn.GELU(), torch.nn.Linear(47, 5)).to(dtype)


def set_gradients(net, step, scale=1.0):
    generator = torch.Generator().manual_seed(1000 + step)
    for p in net.parameters():
        p.grad = (torch.randn(p.shape, generator=generator) * scale).to(p.dtype)


def run(net, optimizer, steps, first=0):
    for step in range(first, first + steps):
        set_gradients(net, step)
        optimizer.step()


def bits_of(net):
    return [p.detach().clone().view(torch.uint8) for p in net.parameters()]


def equal(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b))


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("master", MASTERS)
def test_fifty_steps_are_the_programs_bits(program, tmp_path, state, master):
    generator = torch.Generator().manual_seed(3)
    dtype = torch.float32 if master == "fp32" else torch.bfloat16
    weights = (torch.randn(1000, generator=generator) * 0.02).to(dtype)
    gradients = (torch.randn(STEPS, 1000, generator=generator) * 0.01).to(dtype)
    weights.float().numpy().tofile(tmp_path / "w")
    gradients.float().numpy().tofile(tmp_path / "g")
    program("optim-step", "--state-m", state, "--state-v", state, "--master", master, "--steps", STEPS, "--grads",
            tmp_path / "g", "--weights", tmp_path / "w", "--out", tmp_path / "o", "--lr", LR, "--clip", 0.1, "--seed", 5)
    expected = read_safetensors(tmp_path / "o")
    p = torch.nn.Parameter(weights.clone())
    optimizer = octet.optim.AdamW([("weights", p)], **OPTIONS, state=state, master=master, clip=0.1, seed=5)
    for gradient in gradients:
        p.grad = gradient.clone()
        optimizer.step()
    assert optimizer.master_weights()["weights"].numpy().tobytes() == expected["weights"].tobytes()
    if master != "fp32":
        assert p.detach().view(torch.int16).numpy().tobytes() == expected["weight_hi"].tobytes()
    plain = optimizer.plain_state_dict()["state"][0]
    assert plain["exp_avg"].numpy().tobytes() == expected["m"].tobytes()
    assert plain["exp_avg_sq"].numpy().tobytes() == expected["v"].tobytes()


def test_f32_states_are_those_of_torch():
    ours, theirs = model(), model()
    a = octet.optim.AdamW(ours.named_parameters(), **OPTIONS, state="f32")
    b = torch.optim.AdamW(theirs.parameters(), **OPTIONS)
    for step in range(STEPS):
        set_gradients(ours, step)
        set_gradients(theirs, step)
        a.step()
        b.step()
    for p, q in zip(ours.parameters(), theirs.parameters()):
        assert torch.allclose(p, q, rtol=1e-6, atol=1e-6)


def test_clipping_inside_the_step_is_torchs():
    ours, theirs = model(), model()
    a = octet.optim.AdamW(ours.parameters(), **OPTIONS, state="f32", clip=1.0)
    b = torch.optim.AdamW(theirs.parameters(), **OPTIONS)
    for step in range(10):
        set_gradients(ours, step)
        set_gradients(theirs, step)
        norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        a.step()
        b.step()
        assert abs(a.grad_norm / float(norm) - 1) < 1e-5
    for p, q in zip(ours.parameters(), theirs.parameters()):
        assert torch.allclose(p, q, rtol=1e-6, atol=1e-6)


def test_groups_have_their_own_numbers_and_schedulers_change_them():
    ours, theirs = model(), model()
    groups = [lambda net: {"params": list(net[0].parameters()), "lr": 1e-2},
              lambda net: {"params": list(net[2].parameters()), "weight_decay": 0.0, "betas": (0.8, 0.9)}]
    a = octet.optim.AdamW([group(ours) for group in groups], **OPTIONS, state="f32")
    b = torch.optim.AdamW([group(theirs) for group in groups], **OPTIONS)
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20) for optimizer in (a, b)]
    for step in range(20):
        for net, optimizer, schedule in ((ours, a, schedules[0]), (theirs, b, schedules[1])):
            set_gradients(net, step)
            optimizer.step()
            schedule.step()
    assert a.param_groups[0]["lr"] == b.param_groups[0]["lr"]
    for p, q in zip(ours.parameters(), theirs.parameters()):
        assert torch.allclose(p, q, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("master", MASTERS)
def test_a_stored_state_goes_on_as_if_nothing_had_happened(dtype, state, master):
    options = {**OPTIONS, "state": state, "master": master, "seed": 9}
    whole, half = model(dtype), model(dtype)
    optimizer = octet.optim.AdamW(whole.named_parameters(), **options)
    run(whole, optimizer, 10)
    first = octet.optim.AdamW(half.named_parameters(), **options)
    run(half, first, 6)
    file = io.BytesIO()
    torch.save({"model": half.state_dict(), "optimizer": first.state_dict()}, file)
    file.seek(0)
    stored = torch.load(file, weights_only=True)
    fresh = model(dtype, seed=2)
    fresh.load_state_dict(stored["model"])
    second = octet.optim.AdamW(fresh.named_parameters(), **options)
    second.load_state_dict(stored["optimizer"])
    run(fresh, second, 4, first=6)
    assert equal(bits_of(whole), bits_of(fresh))
    masters = [o.master_weights() for o in (optimizer, second)]
    assert all(torch.equal(masters[0][name], masters[1][name]) for name in masters[0])


def test_states_of_torch_are_taken_and_given_back():
    net = model()
    theirs = torch.optim.AdamW(net.parameters(), **OPTIONS)
    run(net, theirs, 5)
    ours = octet.optim.AdamW(net.parameters(), **OPTIONS, state="f32")
    ours.load_state_dict(theirs.state_dict())
    twin = copy.deepcopy(net)
    back = torch.optim.AdamW(twin.parameters(), **OPTIONS)
    back.load_state_dict(ours.plain_state_dict())
    for a, b in zip(theirs.state_dict()["state"].values(), back.state_dict()["state"].values()):
        assert torch.equal(a["exp_avg"], b["exp_avg"]) and torch.equal(a["exp_avg_sq"], b["exp_avg_sq"])
        assert float(a["step"]) == float(b["step"])
    run(net, ours, 5, first=5)
    run(twin, back, 5, first=5)
    for p, q in zip(net.parameters(), twin.parameters()):
        assert torch.allclose(p, q, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("first,second", [("f32", "e4m3+x"), ("e4m3+x", "f32"), ("hif8+x", "e4m3+x"), ("bf16", "de8+x")])
def test_states_change_their_format(first, second):
    net = model()
    a = octet.optim.AdamW(net.named_parameters(), **OPTIONS, state=first)
    run(net, a, 5)
    b = octet.optim.AdamW(net.named_parameters(), **OPTIONS, state=second)
    b.load_state_dict(a.state_dict())
    for key in ("exp_avg", "exp_avg_sq"):
        for one, other in zip(a.plain_state_dict()["state"].values(), b.plain_state_dict()["state"].values()):
            # Eight bits hold a value within a 16th; a group's decoded maximum may move.
            assert torch.linalg.norm(one[key] - other[key]) <= 0.06 * torch.linalg.norm(one[key])
            assert float(one["step"]) == float(other["step"]) == 5
    run(net, b, 1, first=5)


@pytest.mark.parametrize("first,second", [("fp32", "bf16_remainder"), ("bf16_remainder", "fp32")])
def test_masters_change_their_form_exactly(first, second):
    net = model(torch.bfloat16)
    a = octet.optim.AdamW(net.named_parameters(), **OPTIONS, state="f32", master=first)
    run(net, a, 5)
    b = octet.optim.AdamW(net.named_parameters(), **OPTIONS, state="f32", master=second)
    b.load_state_dict(a.state_dict())
    for name, master in a.master_weights().items():
        assert torch.equal(master.to(torch.bfloat16), dict(net.named_parameters())[name].detach()) or first != "fp32"
        # A weight that was rounded to even at a tie is half a step further than a remainder reaches.
        assert (master.view(torch.int32) - b.master_weights()[name].view(torch.int32)).abs().max() <= 1


def test_masters_of_other_weights_are_refused():
    net, other = model(torch.bfloat16), model(torch.bfloat16, seed=2)
    a = octet.optim.AdamW(net.parameters(), **OPTIONS, master="fp32")
    run(net, a, 1)
    b = octet.optim.AdamW(other.parameters(), **OPTIONS)
    with pytest.raises(octet.Error, match="load the model first"):
        b.load_state_dict(a.state_dict())


@pytest.mark.parametrize("make", [octet.optim.AdamW, octet.optim.SGD])
@pytest.mark.parametrize("master", ["bf16_remainder", "fp32"])
def test_masters_of_narrow_weights_are_the_float32_weights_or_refused(make, master):
    """A float32 weight is its own master: one that is more exact than the weight would be lost."""
    options = {"lr": 1e-3, "momentum": 0.9} if make is octet.optim.SGD else OPTIONS
    net, whole = model(torch.bfloat16), model()
    first = make(net.parameters(), **options, state="f32", master=master)
    run(net, first, 2)
    stored = first.state_dict()
    whole.load_state_dict(net.state_dict())
    second = make(whole.parameters(), **options, state="f32")
    with pytest.raises(octet.Error, match="master: expected one whose values the float32 weights have"):
        second.load_state_dict(stored)
    assert not second.state
    with torch.no_grad():
        for p, q in zip(net.parameters(), whole.parameters()):
            rest = first.state[p]["master"]
            q.copy_(((p.view(torch.int16).int() << 16) + rest.int()).view(torch.float32) if rest.dtype == torch.int16 else rest)
    second.load_state_dict(stored)
    assert all("master" not in state for state in second.state.values())
    run(whole, second, 1, first=2)


@pytest.mark.parametrize("state,bytes_each", [("e4m3+x", 2), ("bf16", 4), ("f32", 8)])
@pytest.mark.parametrize("master,more", [("bf16_remainder", 2), ("bf16_sr", 0), ("fp32", 4)])
def test_states_take_the_bytes_that_are_promised(state, bytes_each, master, more):
    p = torch.nn.Parameter(torch.zeros(1 << 16, dtype=torch.bfloat16))
    optimizer = octet.optim.AdamW([p], state=state, master=master)
    p.grad = torch.ones_like(p)
    optimizer.step()
    total = sum(t.numel() * t.element_size() for t in optimizer.state[p].values() if t.dim() > 0)
    metadata = 2 * 4 / 128 if state == "e4m3+x" else 0
    assert total / p.numel() == bytes_each + more + metadata


def test_random_bits_are_keyed_by_names():
    results = []
    for named in ("named", "named", "plain", "other"):
        net = model(torch.bfloat16)
        params = {"named": list(net.named_parameters()), "plain": list(net.parameters()),
                  "other": [("x." + name, p) for name, p in net.named_parameters()]}[named]
        optimizer = octet.optim.AdamW(params, **OPTIONS, master="bf16_sr")
        run(net, optimizer, 3)
        results.append(bits_of(net))
    assert equal(results[0], results[1])
    assert not equal(results[0], results[2]) and not equal(results[0], results[3])
    net = model()
    assert octet.optim.AdamW(net.parameters()).param_groups[0]["names"] == ["param.0", "param.1", "param.2", "param.3"]


@pytest.mark.parametrize("flaw", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_changes_nothing(flaw):
    net = model(torch.bfloat16)
    optimizer = octet.optim.AdamW(net.named_parameters(), **OPTIONS, clip=1.0)
    run(net, optimizer, 2)
    before = bits_of(net), copy.deepcopy(optimizer.state_dict()["state"])
    set_gradients(net, 2)
    net[2].bias.grad[3] = flaw
    optimizer.step()
    assert optimizer.skipped
    assert equal(before[0], bits_of(net))
    after = optimizer.state_dict()["state"]
    assert all(torch.equal(torch.as_tensor(before[1][i][key]), torch.as_tensor(after[i][key]))
               for i in after for key in after[i])
    run(net, optimizer, 1, first=3)
    assert not optimizer.skipped and optimizer.state[net[2].bias]["step"] == 3


def test_parameters_without_gradients_are_left_alone():
    net = model()
    optimizer = octet.optim.AdamW(net.parameters(), **OPTIONS)
    set_gradients(net, 0)
    net[0].weight.grad = None
    before = net[0].weight.detach().clone()
    optimizer.step()
    assert torch.equal(before, net[0].weight) and net[0].weight not in optimizer.state
    optimizer.zero_grad()
    optimizer.step()


def test_memory_of_any_order_gives_the_same_weights():
    generator = torch.Generator().manual_seed(1)
    values, gradient = torch.randn(2, 8, 6, 4, 4, generator=generator).unbind(0)
    results = []
    for order in (torch.contiguous_format, torch.channels_last):
        for gradient_order in (torch.contiguous_format, torch.channels_last):
            p = torch.nn.Parameter(values.clone(memory_format=order))
            p.grad = gradient.clone(memory_format=gradient_order)
            octet.optim.AdamW([p], **OPTIONS, state="f32").step()
            results.append(p.detach().contiguous())
    assert all(torch.equal(results[0], other) for other in results)


def test_a_closure_is_called_with_gradients():
    net = model()
    optimizer = octet.optim.AdamW(net.parameters(), **OPTIONS)

    def closure():
        optimizer.zero_grad()
        loss = net(torch.ones(4, 33)).square().mean()
        loss.backward()
        return loss

    losses = [float(optimizer.step(closure)) for _ in range(20)]
    assert losses[-1] < losses[0]


def test_sharded_parameters_step_again_and_again(tmp_path):
    tensors = pytest.importorskip("torch.distributed.tensor")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        whole = torch.nn.Parameter(torch.linspace(-1, 1, 512).reshape(4, 128))
        sharded = torch.nn.Parameter(tensors.distribute_tensor(whole.detach().clone(), mesh, [tensors.Shard(0)]))
        for p in (whole, sharded):
            optimizer = octet.optim.AdamW([("w", p)], lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                (p * p).sum().backward()
                optimizer.step()
        assert torch.equal(sharded.to_local(), whole.detach())
    finally:
        torch.distributed.destroy_process_group()


def test_a_group_can_be_added_later_and_weights_can_move():
    net = model()
    optimizer = octet.optim.AdamW(net[0].named_parameters(prefix="0"), **OPTIONS)
    run(net, optimizer, 1)
    optimizer.add_param_group({"params": list(net[2].named_parameters(prefix="2")), "lr": 1e-4})
    assert optimizer.param_groups[1]["names"] == ["2.weight", "2.bias"]
    before = net[2].weight.detach().clone()
    run(net, optimizer, 1, first=1)
    assert not torch.equal(before, net[2].weight)
    net[0].weight.data = net[0].weight.detach().clone()
    moved = net[0].weight.detach().clone()
    run(net, optimizer, 1, first=2)
    assert not torch.equal(moved, net[0].weight)


def test_a_compiled_step_is_the_same():
    net, twin = model(), model()
    a = octet.optim.AdamW(net.named_parameters(), **OPTIONS)
    b = octet.optim.AdamW(twin.named_parameters(), **OPTIONS)
    compiled = torch.compile(b.step, backend="eager")
    for step in range(3):
        set_gradients(net, step)
        set_gradients(twin, step)
        a.step()
        compiled()
    assert equal(bits_of(net), bits_of(twin))


def test_without_clip_and_skip_nothing_is_summed():
    nets = model(), model()
    for net, skip in zip(nets, (True, False)):
        optimizer = octet.optim.AdamW(net.named_parameters(), **OPTIONS, skip_nonfinite=skip)
        run(net, optimizer, 3)
        assert np.isnan(optimizer.grad_norm) == (not skip) and optimizer.counts == {"applied": 3, "skipped": 0}
    assert equal(bits_of(nets[0]), bits_of(nets[1]))


def test_one_line_is_all_that_changes_and_it_learns():
    losses = []
    for make in (lambda net: torch.optim.AdamW(net.parameters(), lr=1e-2),
                 lambda net: octet.optim.AdamW(net.parameters(), lr=1e-2)):
        net = model()
        x = torch.randn(256, 33, generator=torch.Generator().manual_seed(5))
        y = x[:, :5].sin()
        optimizer = make(net)
        for _ in range(100):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
        losses.append(float(loss))
    assert losses[1] < 1.1 * losses[0] + 1e-3


def parameter(**options):
    return torch.nn.Parameter(torch.zeros(4, 4, **options))


@pytest.mark.parametrize("call,text", [
    (lambda: octet.optim.AdamW([parameter()], lr=-1), "lr: expected a number, 0 or more, got -1"),
    (lambda: octet.optim.AdamW([parameter()], betas=(1.0, 0.9)), "betas: expected two numbers in"),
    (lambda: octet.optim.AdamW([parameter()], clip=-1), "clip: expected"),
    (lambda: octet.optim.AdamW([parameter()], state="e9m9"), "state format"),
    (lambda: octet.optim.AdamW([parameter()], master="half"), "master"),
    (lambda: octet.optim.AdamW([parameter(dtype=torch.float64)]), "param.0: expected float32, bfloat16 or float16"),
    (lambda: octet.optim.AdamW([parameter(device="meta")]), "param.0: expected a parameter on the CPU or a CUDA device, got one on meta"),
    (lambda: octet.optim.AdamW([torch.nn.Parameter(torch.zeros(8, 8)[:, ::2])]), "without gaps and overlaps"),
    (lambda: octet.optim.AdamW([torch.nn.Parameter(torch.zeros(1).expand(8))]), "without gaps and overlaps"),
    (lambda: octet.optim.AdamW([("a", parameter()), parameter()]), "with names or none"),
    (lambda: octet.optim.AdamW([("a", parameter()), ("a", parameter())]), "every name once, got a again"),
])
def test_mistakes_are_errors_of_one_line(call, text):
    with pytest.raises(octet.Error, match=text) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_gradients_that_do_not_fit_are_refused():
    p = torch.nn.Parameter(torch.zeros(4, 4))
    optimizer = octet.optim.AdamW([("w", p)])
    p.grad = torch.zeros(4, 4).to_sparse()
    with pytest.raises(octet.Error, match="w: expected a dense gradient"):
        optimizer.step()
    p.grad = torch.ones(4, 4)
    p.grad.untyped_storage().resize_(0)
    with pytest.raises(octet.Error, match="w: expected a gradient with memory"):
        optimizer.step()


def test_stored_states_that_do_not_fit_change_nothing():
    net = model()
    optimizer = octet.optim.AdamW(net.parameters(), **OPTIONS)
    run(net, optimizer, 2)
    good = copy.deepcopy(optimizer.state_dict())
    for change, text in ((lambda d: d["state"][0].update(exp_avg=torch.zeros(3, dtype=torch.uint8)), "expected shape"),
                         (lambda d: d["state"][0].update(exp_avg_meta=torch.zeros(1, dtype=torch.int32)), "expected shape"),
                         (lambda d: d["state"][0].update(exp_avg_meta=[1]), "exp_avg_meta: expected shape .*, got list"),
                         (lambda d: d["state"][0].update(exp_avg=d["state"][0]["exp_avg"].float()), "exp_avg: expected codes of e4m3"),
                         (lambda d: d["state"][0].update(exp_avg=d["state"][0]["exp_avg"].long()), "exp_avg: expected codes of e4m3"),
                         (lambda d: d["param_groups"][0].update(params=[0, 1]), "expected groups of")):
        bad = copy.deepcopy(good)
        change(bad)
        with pytest.raises(octet.Error, match=text):
            optimizer.load_state_dict(bad)
        after = optimizer.state_dict()["state"]
        assert all(torch.equal(torch.as_tensor(good["state"][i][k]), torch.as_tensor(after[i][k]))
                   for i in after for k in after[i])


def test_remainders_complete_bf16_weights_alone():
    net, half = model().bfloat16(), model().half()
    optimizers = [octet.optim.AdamW(one.parameters(), **OPTIONS) for one in (net, half)]
    run(net, optimizers[0], 2)
    with pytest.raises(octet.Error, match="master: expected one of torch.float16 weights, got what completes bfloat16 ones"):
        optimizers[1].load_state_dict(optimizers[0].state_dict())
    state = optimizers[0].state_dict()
    state["state"][0] = {**state["state"][0], "master": [1]}
    with pytest.raises(octet.Error, match="master: expected float32, or int16 of bfloat16 weights, got list"):
        optimizers[0].load_state_dict(state)


@pytest.mark.parametrize("negative", [(0, 1, 2), (1, 2), (0, 2)])
def test_a_gradient_that_is_a_negative_view_is_read_as_what_it_says(negative):
    weights = [torch.nn.Parameter(torch.ones(4, 128)) for _ in range(2)]
    optimizers = [octet.optim.AdamW([p], lr=0.1) for p in weights]
    for step in range(3):
        g = torch.randn(4, 128, generator=torch.Generator().manual_seed(step))
        weights[0].grad, weights[1].grad = torch._neg_view(g) if step in negative else g.neg(), -g
        for optimizer in optimizers:
            optimizer.step()
    assert torch.equal(*weights)


def test_states_that_are_negative_views_are_read_as_what_they_say():
    weights = [torch.nn.Parameter(torch.ones(4, 128)) for _ in range(2)]
    optimizers = [octet.optim.AdamW([p], lr=0.1, state="f32") for p in weights]
    for step in range(2):
        for p, optimizer in zip(weights, optimizers):
            p.grad = torch.ones(4, 128)
            optimizer.step()
        state = optimizers[0].state[weights[0]]
        state["exp_avg"] = torch._neg_view(-state["exp_avg"])
    assert torch.equal(*weights)
    negative = torch.nn.Parameter(torch._neg_view(torch.ones(4)))
    with pytest.raises(octet.Error, match="expected a parameter, got a negative view of one"):
        octet.optim.AdamW([negative])


def test_formats_read_tensors_of_torch():
    x = torch.randn(37, 5, generator=torch.Generator().manual_seed(2))
    formats = octet.formats
    codes = formats.encode(x, "e4m3")
    assert isinstance(codes, torch.Tensor) and codes.dtype == torch.uint8
    assert codes.numpy().tobytes() == formats.encode(x.numpy(), "e4m3").tobytes()
    half = x.to(torch.bfloat16)
    assert torch.equal(formats.encode(half, "hif8"), formats.encode(half.float(), "hif8"))
    theirs = x.clamp(-448, 448).to(torch.float8_e4m3fn)
    assert torch.equal(formats.encode(x, "e4m3"), theirs.view(torch.uint8))
    assert torch.equal(formats.decode(theirs), theirs.float())
    out = torch.empty(37, 5)
    assert formats.decode(codes, "e4m3", out=out) is out and torch.equal(out, theirs.float())
    q = formats.quantize(x.requires_grad_(), granularity="row")
    assert torch.allclose(formats.dequantize(q), x, rtol=0.07, atol=0.02)
    freed = torch.ones(8)
    freed.untyped_storage().resize_(0)
    for call, text in ((lambda: formats.encode(torch.zeros(2, device="meta"), "e4m3"), "on the CPU, got one on meta"),
                       (lambda: formats.encode(freed, "e4m3"), "storage is freed"),
                       (lambda: formats.encode(torch.zeros(2, dtype=torch.float64), "e4m3"), "expected values of float32")):
        with pytest.raises(octet.Error, match=text):
            call()
    assert np.asarray(codes).dtype == np.uint8
