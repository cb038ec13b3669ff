"""octet.optim.SGD and octet.optim.Muon against torch.optim's. Needs PyTorch."""

import copy
import io
import itertools

import octet
import pytest

torch = pytest.importorskip("torch", reason="octet.optim needs PyTorch")

STATES = ["f32", "bf16", "e4m3", "e4m3+x", "hif8", "de8+x"]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"))]
SWITCHES = [dict(zip(("momentum", "dampening", "nesterov", "weight_decay", "maximize"), row))
            for row in itertools.product((0.0, 0.9), (0.0, 0.1), (False, True), (0.0, 0.01), (False, True))
            if not (row[2] and (row[0] == 0 or row[1] != 0))]


def matrices(dtype=torch.float32, device="cpu"):
    generator = torch.Generator().manual_seed(1)
    shapes = [(16, 16), (24, 40), (40, 24), (1, 300)]
    return [torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype).to(device)) for shape in shapes]


def run(params, optimizer, steps, first=0):
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(100 + step)
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator).to(p.dtype).to(p.device)
        optimizer.step()


def distance(a, b, begin):
    """Of what both have gone."""
    gone = sum(float((y.detach().double() - z.double()).square().sum()) for y, z in zip(b, begin))
    apart = sum(float((x.detach().double() - y.detach().double()).square().sum()) for x, y in zip(a, b))
    return (apart / gone) ** 0.5


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_sgd_is_torchs(switches, device):
    ours, theirs = matrices(device=device), matrices(device=device)
    begin = [p.detach().clone() for p in ours]
    run(ours, octet.optim.SGD(ours, lr=0.05, **switches, state="f32"), 50)
    run(theirs, torch.optim.SGD(theirs, lr=0.05, **switches), 50)
    assert distance(ours, theirs, begin) < 1e-6


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="needs PyTorch 2.9 or later")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("adjust", [None, "original", "match_rms_adamw"])
def test_muon_is_torchs(adjust, nesterov, device):
    options = {"lr": 0.02, "weight_decay": 0.1, "momentum": 0.95, "nesterov": nesterov, "adjust_lr_fn": adjust}
    ours, theirs = matrices(device=device), matrices(device=device)
    begin = [p.detach().clone() for p in ours]
    run(ours, octet.optim.Muon(ours, **options, state="f32"), 10)
    run(theirs, torch.optim.Muon(theirs, **options), 10)
    assert distance(ours, theirs, begin) < 0.01  # both multiply in BF16, in another order


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["SGD", "Muon"])
@pytest.mark.parametrize("state", STATES)
def test_a_narrower_momentum_is_near(state, kind, device):
    make = {"SGD": lambda p, s: octet.optim.SGD(p, lr=0.05, momentum=0.9, state=s),
            "Muon": lambda p, s: octet.optim.Muon(p, lr=0.02, state=s)}[kind]
    ours, wide = matrices(device=device), matrices(device=device)
    begin = [p.detach().clone() for p in ours]
    optimizer = make(ours, state)
    run(ours, optimizer, 20)
    run(wide, make(wide, "f32"), 20)
    apart = distance(ours, wide, begin)
    assert apart == 0 if state == "f32" else 0 < apart < (0.01 if state == "bf16" else 0.1)
    stored = optimizer.state[ours[0]]["momentum_buffer"]
    assert stored.element_size() == {"f32": 4, "bf16": 2}.get(state, 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("master", ["bf16_remainder", "fp32"])
def test_narrow_weights_have_masters_in_f32(dtype, master):
    narrow = matrices(dtype)
    wide = [torch.nn.Parameter(p.detach().float()) for p in narrow]
    optimizer = octet.optim.SGD(narrow, lr=1e-3, momentum=0.9, state="f32", master=master)
    other = octet.optim.SGD(wide, lr=1e-3, momentum=0.9, state="f32")
    for step in range(30):
        generator = torch.Generator().manual_seed(step)
        for p, q in zip(narrow, wide):
            p.grad = torch.randn(p.shape, generator=generator).to(dtype)
            q.grad = p.grad.float()
        optimizer.step()
        other.step()
    for p, q in zip(narrow, wide):
        master_of = optimizer.state[p]["master"]
        if master_of.dtype == torch.int16:  # the halves of an f32, which round a tie away from zero
            bits = (p.detach().view(torch.int16).int() << 16) + master_of.int()
            assert torch.equal(bits.view(torch.float32), q.detach())
        else:
            assert torch.equal(master_of, q.detach())
            assert torch.equal(p.detach(), q.detach().to(dtype))


@pytest.mark.parametrize("kind", ["SGD", "Muon"])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_saved_state_goes_on_bit_by_bit(kind, state, dtype):
    make = {"SGD": lambda p, **o: octet.optim.SGD(p, lr=0.05, momentum=0.9, **o), "Muon": lambda p, **o: octet.optim.Muon(p, **o)}[kind]
    whole = matrices(dtype)
    optimizer = make(whole, state=state)
    run(whole, optimizer, 3)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    again = [torch.nn.Parameter(p.detach().clone()) for p in whole]
    resumed = make(again, state=state)
    resumed.load_state_dict(torch.load(file))
    run(whole, optimizer, 3, first=3)
    run(again, resumed, 3, first=3)
    assert all(torch.equal(p, q) for p, q in zip(whole, again))


def test_the_state_of_torchs_sgd_is_taken():
    theirs, ours = matrices(), matrices()
    optimizer = torch.optim.SGD(theirs, lr=0.05, momentum=0.9)
    run(theirs, optimizer, 5)
    for p, q in zip(ours, theirs):
        p.data.copy_(q.data)
    changed = octet.optim.SGD(ours, lr=0.05, momentum=0.9, state="e4m3+x")
    changed.load_state_dict(optimizer.state_dict())
    assert changed.param_groups[0]["format"] == "e4m3+x"
    begin = [p.detach().clone() for p in ours]
    run(ours, changed, 5, first=5)
    run(theirs, optimizer, 5, first=5)
    assert 0 < distance(ours, theirs, begin) < 0.1


@pytest.mark.parametrize("kind", ["SGD", "Muon"])
@pytest.mark.parametrize("first,second", [("bf16_remainder", "fp32"), ("fp32", "bf16_remainder")])
def test_masters_change_their_form_exactly(kind, first, second):
    make = {"SGD": lambda p, **o: octet.optim.SGD(p, lr=0.05, momentum=0.9, **o), "Muon": octet.optim.Muon}[kind]
    whole = matrices(torch.bfloat16)
    optimizer = make(whole, master=first)
    run(whole, optimizer, 3)
    again = [torch.nn.Parameter(p.detach().clone()) for p in whole]
    resumed = make(again, master=second)
    resumed.load_state_dict(optimizer.state_dict())
    run(whole, optimizer, 3, first=3)
    run(again, resumed, 3, first=3)
    assert all(torch.equal(p, q) for p, q in zip(whole, again))


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="needs PyTorch 2.9 or later")
def test_the_state_of_torchs_muon_is_taken():
    theirs, ours = matrices(), matrices()
    optimizer = torch.optim.Muon(theirs)
    run(theirs, optimizer, 5)
    for p, q in zip(ours, theirs):
        p.data.copy_(q.data)
    changed = octet.optim.Muon(ours, state="f32")
    changed.load_state_dict(optimizer.state_dict())
    begin = [p.detach().clone() for p in ours]
    run(ours, changed, 3, first=5)
    run(theirs, optimizer, 3, first=5)
    assert distance(ours, theirs, begin) < 0.05  # both multiply in BF16; a momentum of another size is at 0.3


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="needs PyTorch 2.9 or later")
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("state", ["f32", "e4m3+x"])
def test_schedules_of_muons_momentum_are_torchs(nesterov, state):
    ours, theirs = matrices(), matrices()
    begin = [p.detach().clone() for p in ours]
    optimizers = [octet.optim.Muon(ours, nesterov=nesterov, state=state), torch.optim.Muon(theirs, nesterov=nesterov)]
    for step in range(12):
        if step == 6:
            file = io.BytesIO()
            torch.save(optimizers[0].state_dict(), file)
            file.seek(0)
            optimizers[0] = octet.optim.Muon(ours, nesterov=nesterov, state=state)
            optimizers[0].load_state_dict(torch.load(file))
        for params, optimizer in zip((ours, theirs), optimizers):
            optimizer.param_groups[0]["momentum"] = 0.5 + 0.04 * step if step < 6 else 0.9 - 0.3 * (step % 2)
            without = step in (3, 7, 8)  # the last matrix goes without a gradient while the momentum changes
            run(params[:3] if without else params, optimizer, 1, first=step)
            params[3].grad = None
    assert distance(ours, theirs, begin) < (0.02 if state == "f32" else 0.05)  # 0.13 and more where the sums keep their size


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="needs PyTorch 2.9 or later")
def test_muon_fades_where_torchs_does():
    ours, theirs = matrices(), matrices()
    begin = [p.detach().clone() for p in ours]
    for params, optimizer in ((ours, octet.optim.Muon(ours, state="f32", weight_decay=0)), (theirs, torch.optim.Muon(theirs, weight_decay=0))):
        for step in range(4):
            for p in params:
                p.grad = torch.full_like(p, 1e-8) * torch.randn(p.shape, generator=torch.Generator().manual_seed(step))
            optimizer.step()
    assert distance(ours, theirs, begin) < 0.02


@pytest.mark.parametrize("kind", ["SGD", "Muon"])
@pytest.mark.parametrize("types", [(torch.bfloat16, torch.float16), (torch.float16, torch.bfloat16), (torch.bfloat16, torch.float32)], ids=str)
def test_a_model_that_changes_its_type_is_refused(kind, types):
    first, second = types
    params = matrices(first)
    optimizer = getattr(octet.optim, kind)(params, momentum=0.9)
    run(params, optimizer, 2)
    for p in params:
        p.grad, p.data = None, p.data.to(second)
    before = [p.detach().clone() for p in params]
    with pytest.raises(octet.Error, match=f"expected the state master of a parameter {second}.*, got torch"):
        run(params, optimizer, 1)
    assert all(torch.equal(p, q) for p, q in zip(params, before))


@pytest.mark.parametrize("kind", ["SGD", "Muon"])
@pytest.mark.parametrize("change,text", [
    (lambda p, s: setattr(p, "grad", p.grad.to_sparse()), "expected a dense gradient"),
    (lambda p, s: s.update(momentum_buffer=s["momentum_buffer"][:, :7]), r"state momentum_buffer of .*, torch.uint8 \[1, 300\], got torch.uint8 \[1, 7\]"),
    (lambda p, s: s.update(momentum_buffer_meta=None), "state momentum_buffer_meta of .*, got NoneType"),
    (lambda p, s: setattr(p, "data", p.data.reshape(3, 100)) or setattr(p, "grad", p.data), "state momentum_buffer of a parameter .*3, 100"),
    (lambda p, s: setattr(p, "data", p.data.double()), "expected parameters in f32, bf16 or fp16, got torch.float64"),
])
def test_a_step_that_cannot_be_taken_changes_nothing(kind, change, text):
    params = matrices()
    optimizer = getattr(octet.optim, kind)(params, momentum=0.9)
    run(params, optimizer, 2)
    change(params[3], optimizer.state[params[3]])
    before = [p.detach().clone() for p in params]
    with pytest.raises(octet.Error, match=text):
        optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(params, before))


@pytest.mark.parametrize("kind", ["SGD", "Muon"])
def test_every_nan_stays_one(kind):
    """Of a GPU's arithmetic all bits but the sign are set; rounded as a number to BF16 it would be -0."""
    params = matrices(torch.bfloat16)
    optimizer = getattr(octet.optim, kind)(params)
    p, state = params[0], {"master": torch.zeros(16, 16, dtype=torch.int16)}
    for word in (0x7FFFFFFF, -1, 0x7FC00000, 0x7F800000, 0x7F7FFFFF):  # NaN, NaN, NaN, infinity, the largest number
        w = torch.full((16, 16), word, dtype=torch.int32).view(torch.float32)
        optimizer._write_weight(p, state, w)
        assert torch.equal(p.detach(), w.bfloat16()) or p.isnan().all() and w.isnan().all()
        assert optimizer._weight(p, state).isnan().all() == w.isnan().all()


@pytest.mark.parametrize("kind", ["SGD", "Muon"])
@pytest.mark.parametrize("state", STATES)
def test_matrices_without_elements_go_along(kind, state):
    params = [torch.nn.Parameter(torch.zeros(shape)) for shape in ((4, 0), (0, 4), (2, 2))]
    optimizer = getattr(octet.optim, kind)(params, momentum=0.9, state=state)
    run(params, optimizer, 2)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    run(params, optimizer, 1)
    assert params[2].abs().max() > 0


def stored(make, change):
    params = matrices()
    optimizer = make(params)
    run(params, optimizer, 1)
    state = copy.deepcopy(optimizer.state_dict())
    change(state)
    return state


@pytest.mark.parametrize("change,text", [
    (lambda s: s["state"].update({9: s["state"][0]}), "expected states of 4 parameters, got one of 9"),
    (lambda s: s["state"][0].update(exp_avg=torch.ones(1)), "expected the state of SGD, got one with exp_avg"),
    (lambda s: s["state"][0].pop("momentum_buffer_meta"), "expected the state of SGD, got one without momentum_buffer_meta"),
    (lambda s: s["state"][0].update(momentum_buffer=s["state"][1]["momentum_buffer"]), "momentum_buffer: expected shape"),
    (lambda s: s["state"][0].update(momentum_buffer=s["state"][0]["momentum_buffer"].double()), "momentum_buffer: expected torch.uint8, got"),
    (lambda s: s["state"][0].update(momentum_buffer_meta=[1, 2]), "momentum_buffer_meta: expected torch.int32, got list"),
    (lambda s: s["state"][0].update(momentum_buffer_meta=torch.zeros(1, dtype=torch.int32)), r"momentum_buffer_meta: expected shape \[2\], got"),
    (lambda s: s["param_groups"][0].update(format=["f32", "f32", "exact", 128]), "expected the state of SGD, got one whose format is"),
    (lambda s: s["param_groups"][0]["params"].pop(), "expected groups of"),
    (lambda s: s["param_groups"][0].update(lr=-1.0), "lr: expected a number, 0 or more, got -1.0"),
])
def test_stored_states_that_do_not_fit_change_nothing(change, text):
    make = lambda p: octet.optim.SGD(p, lr=0.05, momentum=0.9)  # noqa: E731
    ours = make(matrices())
    with pytest.raises(octet.Error, match=text):
        ours.load_state_dict(stored(make, change))
    assert not ours.state and ours.param_groups[0]["lr"] == 0.05


@pytest.mark.parametrize("kind,options,text", [
    ("SGD", {"dampening": "x"}, "dampening: expected a number"),
    ("SGD", {"momentum": None}, "momentum: expected a number"),
    ("SGD", {"nesterov": 2, "momentum": 0.9}, "nesterov: expected True or False, got 2"),
    ("SGD", {"state": None}, "state: expected one of f32"),
    ("SGD", {"ns_steps": 3}, "ns_steps: expected none in a group, got 3"),
    ("SGD", {"master": "fp32"}, "master: expected it for the whole optimizer"),
    ("SGD", {"differentiable": True}, "differentiable: expected False"),
    ("Muon", {"ns_steps": 0}, "ns_steps: expected an integer from 1 to 99, got 0"),
    ("Muon", {"ns_coefficients": (1, 2)}, "ns_coefficients: expected three numbers"),
    ("Muon", {"adjust_lr_fn": "x"}, "adjust_lr_fn: expected original"),
    ("Muon", {"maximize": True}, "maximize: expected False, got True"),
])
def test_groups_that_say_another_update_are_refused(kind, options, text):
    make = getattr(octet.optim, kind)
    if not {"master", "maximize", "differentiable"} & options.keys() and kind == "Muon" or "state" in options:
        with pytest.raises(octet.Error, match=text):
            make(matrices(), **options)
    if "state" in options:
        return
    optimizer = make(matrices()[:1])
    with pytest.raises(octet.Error, match=text):
        optimizer.add_param_group({"params": matrices()[1:], **options})
    assert len(optimizer.param_groups) == 1


def test_remainders_complete_bf16_weights_alone():
    params, others = matrices(torch.bfloat16), matrices(torch.float16)
    optimizer, other = octet.optim.SGD(params, momentum=0.9), octet.optim.SGD(others, momentum=0.9)
    run(params, optimizer, 2)
    with pytest.raises(octet.Error, match="master: expected one of torch.float16 weights, got what completes bfloat16 ones"):
        other.load_state_dict(optimizer.state_dict())


def test_what_cannot_be_is_refused():
    with pytest.raises(octet.Error, match="expected matrices alone"):
        octet.optim.Muon([torch.nn.Parameter(torch.zeros(3))])
    with pytest.raises(octet.Error, match="state: expected one of f32, bf16"):
        octet.optim.SGD(matrices(), state="f32+x")
    with pytest.raises(octet.Error, match="momentum: expected a number"):
        octet.optim.SGD(matrices(), momentum=1.5)
    with pytest.raises(octet.Error, match="nesterov"):
        octet.optim.SGD(matrices(), nesterov=True)
    with pytest.raises(octet.Error, match="dense gradient"):
        table = torch.nn.Embedding(8, 4, sparse=True)
        optimizer = octet.optim.SGD(table.parameters())
        table(torch.tensor([1])).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("kind,change,text", [
    ("SGD", {"momentum": 5}, r"momentum: expected a number in \[0, 1\), got 5"),
    ("SGD", {"dampening": None}, "dampening: expected a number, got None"),
    ("SGD", {"nesterov": 1}, "nesterov: expected True or False, got 1"),
    ("SGD", {"nesterov": True, "dampening": 0.5}, "nesterov: expected a momentum and no dampening with it"),
    ("SGD", {"momentum": torch.tensor(0.5)}, "momentum: expected a number"),
    ("SGD", {"ns_steps": 5}, "ns_steps: expected none in a group, got 5"),
    ("SGD", {"state": "f32"}, "state: expected it for the whole optimizer"),
    ("Muon", {"momentum": 5}, r"momentum: expected a number in \[0, 1\), got 5"),
    ("Muon", {"ns_steps": 0}, "ns_steps: expected an integer from 1 to 99, got 0"),
    ("Muon", {"ns_coefficients": (1, 2)}, "ns_coefficients: expected three numbers"),
    ("Muon", {"adjust_lr_fn": "x"}, "adjust_lr_fn: expected original"),
    ("Muon", {"dampening": 0.1}, "dampening: expected none in a group, got 0.1"),
    ("Muon", {"master": "fp32"}, "master: expected it for the whole optimizer"),
])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_groups_that_change_between_steps_are_checked(kind, change, text, steps):
    params = matrices()
    optimizer = getattr(octet.optim, kind)(params, momentum=0.9)
    run(params, optimizer, steps)
    optimizer.param_groups[0].update(change)
    before = [p.detach().clone() for p in params]
    with pytest.raises(octet.Error, match=text):
        run(params, optimizer, 1)
    assert all(torch.equal(p, q) for p, q in zip(params, before))


def test_a_list_that_changes_where_it_stands_is_checked():
    params = matrices()
    optimizer = octet.optim.Muon(params, ns_coefficients=[3.4445, -4.775, 2.0315])
    run(params, optimizer, 1)
    optimizer.param_groups[0]["ns_coefficients"].pop()
    with pytest.raises(octet.Error, match="ns_coefficients: expected three numbers"):
        run(params, optimizer, 1)
