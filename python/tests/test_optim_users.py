"""octet.optim.AdamW as users of torch.optim.AdamW treat it: their arguments, schedulers, scalers, and their mistakes. Needs
PyTorch."""

import copy
import io
import pickle
import warnings

import octet
import pytest

torch = pytest.importorskip("torch", reason="octet.optim needs PyTorch")

R = torch.optim.lr_scheduler


def parameter(*shape, dtype=torch.float32):
    return torch.nn.Parameter(torch.ones(*(shape or (3,)), dtype=dtype))


def pair(rate=float):
    """A parameter under ours with f32 states, and one under torch's."""
    p, q = parameter(300), parameter(300)
    return (p, octet.optim.AdamW([p], lr=rate(0.05), state="f32")), (q, torch.optim.AdamW([q], lr=rate(0.05)))


def close(p, q):
    """Ten steps of 0.05 to 0.1, each rounded a few times."""
    return torch.allclose(p, q, rtol=1e-5, atol=1e-5)


SCHEDULERS = {
    "OneCycleLR": lambda o: R.OneCycleLR(o, max_lr=0.1, total_steps=10),
    "CyclicLR": lambda o: R.CyclicLR(o, base_lr=0.01, max_lr=0.1),
    "ReduceLROnPlateau": lambda o: R.ReduceLROnPlateau(o, patience=0),
    "SequentialLR": lambda o: R.SequentialLR(o, [R.LinearLR(o), R.ExponentialLR(o, 0.9)], [2]),
    "CosineAnnealingWarmRestarts": lambda o: R.CosineAnnealingWarmRestarts(o, 3),
}


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("is_tensor", [False, True])
def test_schedulers_change_rates_and_betas_as_those_of_torch(name, is_tensor):
    both = pair(torch.tensor if is_tensor and name != "CyclicLR" else float)
    schedules = [SCHEDULERS[name](optimizer) for _, optimizer in both]
    for i in range(8):
        for (p, optimizer), schedule in zip(both, schedules):
            p.grad = torch.full_like(p, i + 1.0)
            optimizer.step()
            schedule.step(*([1.0] if name == "ReduceLROnPlateau" else []))
    (p, a), (q, b) = both
    assert float(a.param_groups[0]["lr"]) == float(b.param_groups[0]["lr"])
    assert a.param_groups[0]["betas"] == b.param_groups[0]["betas"]
    assert close(p, q)


def test_a_gradient_scaler_scales_and_skips():
    both = pair()
    for p, optimizer in both:
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for i in range(4):
            scaler.scale((p * (float("inf") if i == 1 else i + 1)).sum()).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    (p, a), (q, _) = both
    assert close(p, q) and a.counts == {"applied": 3, "skipped": 0}


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}, {"foreach": False, "fused": None}, {"capturable": True},
                                     {"amsgrad": False, "maximize": False, "differentiable": False}])
def test_arguments_of_torchs_that_change_no_result_are_taken(options):
    p = parameter()
    p.grad = torch.ones(3)
    octet.optim.AdamW([p], 1e-3, (0.9, 0.99), 1e-8, 0.1, **options).step()
    assert p[0] < 1


@pytest.mark.parametrize("call,text", [
    (lambda: octet.optim.AdamW([parameter()], amsgrad=True), "amsgrad: expected False, got True"),
    (lambda: octet.optim.AdamW([parameter()], 1e-3, (0.9, 0.99), 1e-8, 0.1, True), "amsgrad: expected False, got True"),
    (lambda: octet.optim.AdamW([parameter()], maximize=True), "maximize: expected False, got True"),
    (lambda: octet.optim.AdamW([parameter()], lr=torch.ones(2)), r"lr: expected a number, 0 or more, got a tensor \[2\]"),
    (lambda: octet.optim.AdamW([parameter()], lr="1e-3"), "lr: expected a number, 0 or more, got '1e-3'"),
    (lambda: octet.optim.AdamW([parameter()], lr=float("nan")), "lr: expected a number, 0 or more, got nan"),
    (lambda: octet.optim.AdamW([parameter()], betas=0.9), "betas: expected two numbers"),
    (lambda: octet.optim.AdamW([parameter()], betas=(0.9, 0.99999999)), "betas: expected numbers below 1 in f32, got 0.99999999"),
    (lambda: octet.optim.parameter_groups([parameter()]), "expected a torch.nn.Module, got list"),
    (lambda: octet.optim.AdamW([{"params": [parameter()], "lr": -1.0}]), "lr: expected a number, 0 or more, got -1.0"),
    (lambda: octet.optim.AdamW([{"params": [parameter()], "betas": (0.9, 1.0)}]), "betas: expected two numbers"),
    (lambda: octet.optim.AdamW(parameter()), "expected a list of parameters, got a tensor alone"),
    (lambda: octet.optim.AdamW({parameter()}), "expected parameters in an order, got a set"),
    (lambda: octet.optim.AdamW(["weight"]), "param.0: expected a parameter, got str"),
    (lambda: octet.optim.AdamW([parameter()], seed=-1), "seed: expected an integer from 0 to 4294967295, got -1"),
    (lambda: octet.optim.AdamW([parameter()], threads=-1), "threads: expected an integer from 0 to 4096, got -1"),
    (lambda: octet.optim.AdamW([parameter()], skip_nonfinite="no"), "skip_nonfinite: expected True or False, got 'no'"),
    (lambda: octet.optim.parameter_groups(torch.nn.Linear(2, 2), -1), "weight_decay: expected a number, 0 or more, got -1"),
    (lambda: octet.optim.AdamW([{"params": [parameter()], "state": "f32"}]), "state: expected it for the whole optimizer, got it in a group"),
    (lambda: octet.optim.AdamW([{"params": [parameter()], "maximize": True}]), "maximize: expected False, got True"),
    (lambda: octet.optim.AdamW([{"params": [parameter()], "momentum": 0.9}]), "momentum: expected none in a group, got 0.9"),
    (lambda: octet.optim.AdamW([{"params": [parameter()], "decoupled_weight_decay": False}]), "decoupled_weight_decay: expected True"),
    (lambda: octet.optim.AdamW([parameter(dtype=torch.complex64)]), "param.0: expected float32, bfloat16 or float16, got torch.complex64"),
    (lambda: octet.optim.AdamW([parameter(dtype=torch.float8_e4m3fn)]), "param.0: expected float32, bfloat16 or float16"),
])
def test_mistakes_are_errors_of_one_line(call, text):
    with pytest.raises(octet.Error, match=text) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("beta,is_told", [(0.999, False), (0.99999, False), (0.999999, True), (0.9999999, True)])
def test_a_beta_that_f32_rounds_by_much_is_told(beta, is_told):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        octet.optim.AdamW([parameter()], betas=(0.9, beta))
    assert [("is off by" in str(one.message)) for one in said] == [True] * is_told


class Decoder(torch.nn.Module):
    """The parameters of a small decoder, as Octet's models have them."""

    def __init__(self, tied):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(10, 4), torch.nn.Embedding(8, 4)
        self.table = torch.nn.Parameter(torch.zeros(8, 4))
        self.up, self.down, self.norm = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4, bias=False), torch.nn.LayerNorm(4)
        self.head = torch.nn.Linear(4, 10, bias=False)
        if tied:
            self.head.weight = self.wte.weight


@pytest.mark.parametrize("tied", [False, True])
def test_parameter_groups_let_linears_and_an_untied_head_decay(tied):
    decays, rest = octet.optim.parameter_groups(Decoder(tied), weight_decay=0.3)
    assert [name for name, _ in decays["params"]] == ["up.weight", "down.weight"] + ["head.weight"] * (not tied)
    assert [name for name, _ in rest["params"]] == ["table", "wte.weight", "wpe.weight", "up.bias", "norm.weight", "norm.bias"]
    assert (decays["weight_decay"], rest["weight_decay"]) == (0.3, 0.0)


def test_parameter_groups_are_taken_by_the_optimizer():
    model = Decoder(tied=True)
    model.wpe.weight.requires_grad_(False)
    optimizer = octet.optim.AdamW(octet.optim.parameter_groups(model), lr=0.5)
    assert "wpe.weight" not in sum((group["names"] for group in optimizer.param_groups), [])
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for name, p in model.named_parameters():
        factor = 0.95 if name in ("up.weight", "down.weight") else 1
        assert torch.allclose(p, before[name] * factor), name


def test_a_parameter_that_is_given_twice_is_refused():
    p = parameter()
    with pytest.raises(octet.Error, match="expected every parameter once"):
        octet.optim.AdamW([p, p])
    with pytest.raises(ValueError, match="more than one parameter group"):
        octet.optim.AdamW([{"params": [p]}, {"params": [p]}])


def test_tied_weights_are_stepped_once():
    embedding, head = torch.nn.Embedding(10, 8), torch.nn.Linear(8, 10, bias=False)
    head.weight = embedding.weight
    optimizer = octet.optim.AdamW(torch.nn.ModuleList([embedding, head]).named_parameters())
    head(embedding(torch.tensor([1, 2]))).sum().backward()
    optimizer.step()
    assert len(optimizer.state) == 1 and optimizer.state[head.weight]["step"] == 1


def test_sparse_gradients_are_refused():
    embedding = torch.nn.Embedding(10, 8, sparse=True)
    optimizer = octet.optim.AdamW(embedding.named_parameters())
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(octet.Error, match="weight: expected a dense gradient of .*, got torch.float32 torch.sparse_coo"):
        optimizer.step()


@pytest.mark.parametrize("change,text", [
    (lambda net: net.to(torch.bfloat16), "expected the state master of a parameter torch.bfloat16"),
    (lambda net: net.to(torch.float16), "expected the state master of a parameter torch.float16"),
    (lambda net: net.double(), "weight: expected float32, bfloat16 or float16, got torch.float64"),
    (lambda net: (setattr(net.weight, "data", torch.ones(8, 4)), setattr(net.bias, "data", torch.ones(8))),
     r"expected the state exp_avg of a parameter torch.float32 \[8, 4\] .* got torch.uint8 \[4, 4\]"),
])
def test_a_model_that_changes_after_a_step_is_refused(change, text):
    net = torch.nn.Linear(4, 4)
    optimizer = octet.optim.AdamW(net.named_parameters())
    for is_changed in (False, True):
        if is_changed:
            change(net)
        optimizer.zero_grad()
        net(torch.ones(1, 4, dtype=net.weight.dtype)).sum().backward()
        if not is_changed:
            optimizer.step()
    before = net.weight.detach().clone()
    with pytest.raises(octet.Error, match=text) as caught:
        optimizer.step()
    assert torch.equal(before, net.weight) and "\n" not in str(caught.value)


def test_a_narrow_model_that_becomes_float32_keeps_its_masters_or_is_refused():
    net = torch.nn.Linear(4, 4).bfloat16()
    optimizer = octet.optim.AdamW(net.named_parameters(), lr=1e-3, state="f32")
    for is_exact in (False, True):
        net.to(torch.bfloat16)
        optimizer.state.clear()
        for p in net.parameters():
            p.grad = torch.ones_like(p)
        optimizer.step()
        masters = optimizer.master_weights()
        net.float()
        for name, p in net.named_parameters():
            if is_exact:
                p.data.copy_(masters[name])
            p.grad = torch.ones_like(p)
        if is_exact:
            optimizer.step()
            assert all("master" not in state for state in optimizer.state.values())
        else:
            with pytest.raises(octet.Error, match="weight: the state master: expected one whose values the float32 weights have"):
                optimizer.step()


def test_autograd_knows_that_weights_have_changed():
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    optimizer = octet.optim.AdamW(net.named_parameters())
    loss = net(torch.ones(1, 4)).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("make,text", [
    (lambda p: torch.optim.SGD([p], lr=0.1, momentum=0.9), "expected the state of an AdamW, got one without exp_avg"),
    (lambda p: torch.optim.AdamW([p], maximize=True), "expected the state of an AdamW without maximize"),
    (lambda p: torch.optim.AdamW([p], amsgrad=True), "expected the state of an AdamW without amsgrad"),
    (lambda p: torch.optim.Adam([p], weight_decay=0.1), "expected the state of an AdamW, got an Adam's"),
])
def test_states_of_other_optimizers_are_refused(make, text):
    p = parameter()
    theirs, ours = make(p), octet.optim.AdamW([p])
    p.grad = torch.ones(3)
    theirs.step()
    with pytest.raises(octet.Error, match=text):
        ours.load_state_dict(theirs.state_dict())
    ours.step()


@pytest.mark.parametrize("change,text", [({"maximize": True}, "maximize: expected False"), ({"lr": -1.0}, "lr: expected a number"),
                                         ({"betas": (2, 0)}, "betas: expected two numbers"), ({"eps": None}, "eps: expected a number"),
                                         ({"momentum": 0.9}, "momentum: expected none in a group, got 0.9"),
                                         ({"master": "fp32"}, "master: expected it for the whole optimizer"),
                                         ({"clip": 1.0}, "clip: expected it for the whole optimizer")])
@pytest.mark.parametrize("steps", [0, 1])
def test_groups_that_change_between_steps_are_checked(change, text, steps):
    p = parameter()
    p.grad = torch.ones(3)
    optimizer = octet.optim.AdamW([p])
    for _ in range(steps):
        optimizer.step()
    optimizer.param_groups[0].update(change)
    before = p.detach().clone()
    with pytest.raises(octet.Error, match=text):
        optimizer.step()
    assert torch.equal(p, before)


@pytest.mark.parametrize("change,text", [
    (lambda s: s["state"].update({7: s["state"][0]}), "expected states of 2 parameters, got one of 7"),
    (lambda s: s["state"][0].update(max_exp_avg_sq=torch.ones(3)), "expected the state of an AdamW, got one with max_exp_avg_sq"),
    (lambda s: s["param_groups"][0]["names"].reverse(), "expected states in the order of the parameters, got b at another place"),
])
def test_states_of_other_parameters_are_refused(change, text):
    params = [("a", parameter()), ("b", parameter())]
    optimizer = octet.optim.AdamW(params)
    for _, p in params:
        p.grad = torch.ones(3)
    optimizer.step()
    state = copy.deepcopy(optimizer.state_dict())
    change(state)
    with pytest.raises(octet.Error, match=text):
        optimizer.load_state_dict(state)


def test_states_of_torch_with_names_are_taken():
    net = torch.nn.Linear(4, 4)
    theirs = torch.optim.AdamW(net.named_parameters(), foreach=True)
    net(torch.ones(1, 4)).sum().backward()
    theirs.step()
    ours = octet.optim.AdamW(net.named_parameters())
    ours.load_state_dict(theirs.state_dict())
    ours.step()
    assert ours.param_groups[0]["names"] == ["weight", "bias"] and ours.state[net.bias]["step"] == 2


def test_a_stored_state_is_copied_and_read_safely():
    p = parameter(300, dtype=torch.bfloat16)
    optimizer = octet.optim.AdamW([p])
    p.grad = torch.ones_like(p)
    optimizer.step()
    file = io.BytesIO()
    torch.save(pickle.loads(pickle.dumps(copy.deepcopy(optimizer.state_dict()))), file)
    file.seek(0)
    stored = torch.load(file, weights_only=True)
    kept = copy.deepcopy(stored)
    optimizer.load_state_dict(stored)
    optimizer.step()
    assert optimizer.state[p]["step"] == 2
    assert all(torch.equal(kept["state"][0][key], stored["state"][0][key]) for key in kept["state"][0])
    for one in (optimizer, octet.optim.SGD([parameter()], lr=0.1)):
        for copied in (copy.deepcopy, pickle.dumps):
            with pytest.raises(octet.Error, match=r"expected state_dict\(\) to be stored"):
                copied(one)


def test_a_number_that_is_a_tensor_of_the_host_is_looked_at_each_step():
    p = parameter()
    optimizer = octet.optim.AdamW([p], lr=torch.tensor(1e-3))
    p.grad = torch.ones_like(p)
    optimizer.step()
    optimizer.param_groups[0]["lr"].fill_(-1.0)
    with pytest.raises(octet.Error, match="lr: expected"):
        optimizer.step()


def test_parameters_without_elements_go_along():
    p, q = torch.nn.Parameter(torch.ones(0)), parameter()
    optimizer = octet.optim.AdamW([p, q])
    p.grad, q.grad = torch.ones(0), torch.ones(3)
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.step()
    assert optimizer.plain_state_dict()["state"][0]["exp_avg"].shape == (0,) and optimizer.state[p]["step"] == 2


def test_hooks_around_step_and_state_run():
    p, calls = parameter(), []
    optimizer = octet.optim.AdamW([p])
    optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
    optimizer.register_step_post_hook(lambda *_: calls.append("post"))
    optimizer.register_load_state_dict_post_hook(lambda *_: calls.append("loaded"))
    p.grad = torch.ones(3)
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == ["pre", "post", "loaded"]


def test_steps_in_the_hooks_of_gradients_work():
    net = torch.nn.Linear(4, 4)
    optimizers = {p: octet.optim.AdamW([(name, p)]) for name, p in net.named_parameters()}

    def step(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(step)
    for _ in range(2):
        net(torch.ones(1, 4)).sum().backward()
    assert all(optimizer.counts["applied"] == 2 for optimizer in optimizers.values()) and net.weight.grad is None


def test_accelerate_wraps_it():
    accelerate = pytest.importorskip("accelerate", reason="needs accelerate")
    net = torch.nn.Linear(4, 4)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    optimizer = octet.optim.AdamW(net.named_parameters(), lr=0.1)
    schedule = R.LambdaLR(optimizer, lambda i: 1 / (1 + i))
    wrapped_net, wrapped, schedule = accelerator.prepare(net, optimizer, schedule)
    for _ in range(4):
        with accelerator.accumulate(wrapped_net):
            accelerator.backward(wrapped_net(torch.ones(1, 4)).square().sum())
            accelerator.clip_grad_norm_(wrapped_net.parameters(), 1.0)
            wrapped.step()
            schedule.step()
            wrapped.zero_grad()
    assert optimizer.counts["applied"] == 2 and optimizer.param_groups[0]["lr"] < 0.1
    wrapped.load_state_dict(wrapped.state_dict())
    assert optimizer.state[net.weight]["step"] == 2


@pytest.mark.parametrize("options, text", [
    ({"lr": float("inf")}, "lr: expected a number, 0 or more, got inf"),
    ({"lr": 10**400}, "lr: expected a number, 0 or more, got int 1000"),
    ({"lr": True}, "lr: expected a number, 0 or more, got True"),
    ({"eps": 1e300}, r"eps: expected a number, 0 or more, got 1e\+300"),
    ({"clip": 10**400}, "clip: expected a number"),
    ({"betas": (0.9, 10**400)}, "betas: expected two numbers"),
    ({"state_m": ""}, "expected one of f32"),
    ({"state_v": False}, "state_v: expected a text, got bool"),
    ({"params": 3}, "params: expected a list of parameters, .*, got 3"),
    ({"params": [{"parms": []}]}, "params: expected it in every group, got one with parms"),
    ({"params": [("a",)]}, r"expected pairs of a name and a parameter, got \('a',\)"),
    ({"params": [(3, parameter())]}, "expected pairs of a name and a parameter"),
    ({"params": [{"params": [parameter()]}, parameter()]}, "expected groups or parameters, got both in one list"),
    ({"params": [{"params": [parameter()], "weigth_decay": 0.1}]}, "weigth_decay: expected a key of this optimizer or one of yours, got a name beside weight_decay"),
])
def test_arguments_are_honoured_or_named(options, text):
    with pytest.raises(octet.Error, match=text) as caught:
        octet.optim.AdamW(**{"params": [parameter()], **options})
    assert "\n" not in str(caught.value)
    assert octet.optim.AdamW([{"params": [parameter()], "lr_scale": 2}], clip=float("inf")).param_groups[0]["lr_scale"] == 2


def saved(**changes):
    state = {"step": torch.tensor(1.0), "exp_avg": torch.zeros(3), "exp_avg_sq": torch.zeros(3)}
    return {"state": {0: {**state, **changes}}, "param_groups": [{"params": [0]}]}


@pytest.mark.parametrize("state, text", [
    (None, "expected a dict with state and param_groups"),
    ({"state": {}, "param_groups": None}, "expected a dict with state and param_groups"),
    ({"state": {0: 3}, "param_groups": [{"params": [0]}]}, "expected a dict with state and param_groups"),
    ({"state": {}, "param_groups": [{}]}, "expected a dict with state and param_groups"),
    ({"state": {}, "param_groups": [{"params": [0], "lr": "x"}]}, "lr: expected a number, 0 or more, got 'x'"),
    (saved(step="x"), "step: expected how many steps there were, got 'x'"),
    (saved(step=torch.tensor(-1)), "step: expected how many steps there were"),
    (saved(step=torch.tensor(float("nan"))), "step: expected how many steps there were"),
    (saved(exp_avg=3), "exp_avg: expected a tensor, got int"),
    ({**saved(), "param_groups": [{"params": [0], "format": 3}]}, "format: expected two state formats, powers and a group, got 3"),
])
def test_states_that_are_none_are_named_and_change_nothing(state, text):
    optimizer = octet.optim.AdamW([parameter()])
    before = optimizer.state_dict()
    with pytest.raises(octet.Error, match=text) as caught:
        optimizer.load_state_dict(state)
    assert caught.value.exit_code in (2, 3) and optimizer.state_dict()["param_groups"] == before["param_groups"]
    for other in (octet.optim.SGD, octet.optim.Muon):
        with pytest.raises(octet.Error):
            other([parameter(3, 3)]).load_state_dict(state if text.startswith("expected") else {})


@pytest.mark.parametrize("make, options, text", [
    (octet.optim.SGD, {"lr": 1e300}, "lr: expected a number"),
    (octet.optim.SGD, {"weight_decay": True}, "weight_decay: expected a number"),
    (octet.optim.SGD, {"dampening": 10**400}, "dampening: expected a number"),
    (octet.optim.Muon, {"ns_coefficients": None}, "ns_coefficients: expected three numbers, got None"),
    (octet.optim.Muon, {"eps": 1e300}, "eps: expected a number"),
])
def test_arguments_of_other_rules_are_honoured_or_named(make, options, text):
    with pytest.raises(octet.Error, match=text):
        make([parameter(3, 3)], **options)
