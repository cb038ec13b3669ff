"""Groups and states that the caller edits, beside torch.optim.AdamW: a step takes what stands there. Needs PyTorch."""

import threading
import time
import weakref

import octet
import pytest
from test_device_step import on_devices  # noqa: F401

torch = pytest.importorskip("torch", reason="octet.optim needs PyTorch")

OPTIONS = {"lr": 0.1, "weight_decay": 0.1}
SIZE = 1024
MOMENTS = ("exp_avg", "exp_avg_sq")


class Case:
    """Four parameters, three of them in two groups of an optimizer."""

    def __init__(self, make, **options):
        generator = torch.Generator().manual_seed(1)
        self.params = [torch.nn.Parameter(torch.randn(16, SIZE // 16, generator=generator)) for _ in range(4)]
        a, b, c, self.spare = self.params
        self.optimizer = make([{"params": [a, b]}, {"params": [c], "lr": 0.01}], **OPTIONS, **options)

    def give(self, step):
        generator = torch.Generator().manual_seed(100 + step)
        for p in self.params:
            p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)


@pytest.fixture(params=["cpu", "planned"])
def make(request, on_devices):  # noqa: F811
    """Optimizers of the CPU's step, and of the devices' with kernels of the CPU."""
    return octet.optim.AdamW if request.param == "cpu" else on_devices


def groups_of(case):
    return case.optimizer.param_groups


def exchange_with_state(case):
    old = groups_of(case)[0]["params"][0]
    groups_of(case)[0]["params"][0] = case.spare
    case.optimizer.state[case.spare] = case.optimizer.state.pop(old)


def add_raw_group(case):
    group = {**groups_of(case)[0], "params": [case.spare], "lr": 0.2}
    group.pop("names", None)
    groups_of(case).append(group)


def swap_between_groups(case):
    one, other = (group["params"] for group in groups_of(case))
    one[0], other[0] = other[0], one[0]


def move_to_other_group(case):
    groups_of(case)[1]["params"].insert(0, groups_of(case)[0]["params"].pop())


def transpose_in_place(case):
    p = case.params[0]
    p.data = torch.randn(16, SIZE // 16, generator=torch.Generator().manual_seed(5)).t().contiguous().t()


GROUPS = {
    "exchange": lambda case: groups_of(case)[0]["params"].__setitem__(0, case.spare),
    "exchange_the_list": lambda case: groups_of(case)[0].update(params=[case.spare]),
    "exchange_for_a_tuple": lambda case: groups_of(case)[0].update(params=(case.spare, case.params[0])),
    "exchange_with_state": exchange_with_state,
    "append": lambda case: groups_of(case)[0]["params"].append(case.spare),
    "insert": lambda case: groups_of(case)[0]["params"].insert(0, case.spare),
    "remove": lambda case: groups_of(case)[0]["params"].pop(0),
    "reorder": lambda case: groups_of(case)[0]["params"].reverse(),
    "reverse_groups": lambda case: groups_of(case).reverse(),
    "delete_group": lambda case: groups_of(case).pop(1),
    "delete_all_groups": lambda case: groups_of(case).clear(),
    "empty_group": lambda case: groups_of(case)[0].update(params=[]),
    "add_raw_group": add_raw_group,
    "new_dict_of_a_group": lambda case: groups_of(case).__setitem__(0, {**groups_of(case)[0], "lr": 0.3}),
    "new_list_of_groups": lambda case: setattr(case.optimizer, "param_groups", [dict(group) for group in groups_of(case)]),
    "swap_between_groups": swap_between_groups,
    "move_to_other_group": move_to_other_group,
    "other_order_in_memory": transpose_in_place,
}


def state_of(case):
    return case.optimizer.state[case.params[0]]


def swap_states(case):
    a, b = case.params[:2]
    case.optimizer.state[a], case.optimizer.state[b] = case.optimizer.state[b], case.optimizer.state[a]


def swap_moments_in_new_order(case):
    """The same tensors in the same order under other keys."""
    state = state_of(case)
    m, v = (state.pop(key) for key in MOMENTS)
    state["exp_avg_sq"], state["exp_avg"] = m.abs().contiguous(), v
    m, v = state.pop("exp_avg_sq"), state.pop("exp_avg")
    state["exp_avg_sq"], state["exp_avg"] = m, v


def as_data(change):
    def edit(case):
        for state in case.optimizer.state.values():
            for value in state.values():
                value.data = change(value.data)
    return edit


def reset(case):
    """As ReLoRA does: zeros in new tensors, the counter too."""
    for key, value in state_of(case).items():
        state_of(case)[key] = torch.zeros_like(value)


STATES = {
    "clones": lambda case: [state.update({key: value.clone() for key, value in state.items()})
                            for state in case.optimizer.state.values()],
    "zeros": reset,
    "one_moment": lambda case: state_of(case).update(exp_avg=torch.full((16, SIZE // 16), 0.5)),
    "both_moments": lambda case: state_of(case).update({key: torch.full((16, SIZE // 16), 0.5) for key in MOMENTS}),
    "counter": lambda case: state_of(case).update(step=torch.tensor(7.0)),
    "new_dict": lambda case: case.optimizer.state.__setitem__(case.params[0], dict(state_of(case))),
    "clear": lambda case: state_of(case).clear(),
    "clear_all": lambda case: case.optimizer.state.clear(),
    "swap": swap_states,
    "swap_under_keys": swap_moments_in_new_order,
    "data": as_data(torch.clone),
    "set_": lambda case: state_of(case)["exp_avg"].set_(torch.full((16, SIZE // 16), 0.25)),
    "other_order_in_memory": lambda case: state_of(case).update(
        {key: state_of(case)[key].t().contiguous().t() for key in MOMENTS}),
    "part_of_a_buffer": lambda case: state_of(case).update(
        {key: torch.full((16, SIZE), 0.5)[:, :SIZE // 16] for key in MOMENTS}),
    "own_keys": lambda case: [state.update(note="mine", more=torch.ones(2)) for state in case.optimizer.state.values()],
    "other_keys_of_all": lambda case: case.optimizer.state.__setitem__("global", {"count": 3}),
    "moved_and_back": lambda case: [state.update({key: value.double().to(value.dtype) for key, value in state.items()})
                                    for state in case.optimizer.state.values()],
}
EDITS = {**{f"groups.{name}": edit for name, edit in GROUPS.items()}, **{f"states.{name}": edit for name, edit in STATES.items()}}


def disturb_memory(kept):
    """What was freed is taken by others."""
    kept.extend(torch.full((16, SIZE // 16), 1e9) for _ in range(40))


@pytest.mark.parametrize("edit", EDITS)
def test_a_step_takes_what_stands_in_groups_and_states(make, edit):
    cases, kept = (Case(make, state="f32"), Case(torch.optim.AdamW)), []
    for step in range(6):
        if step == 2 or (step == 4 and edit.startswith("states.")):
            for case in cases:
                EDITS[edit](case)
            disturb_memory(kept)
        for case in cases:
            case.give(step)
            case.optimizer.step()
        for p, q in zip(*(case.params for case in cases)):
            assert torch.allclose(p, q, rtol=1e-5, atol=1e-5), step
    assert all((tensor == 1e9).all() for tensor in kept)
    a, b = ([len(group["params"]) for group in groups_of(case)] for case in cases)
    assert a == b
    ours, theirs = ({p: case.optimizer.state[q] for p, q in enumerate(case.params) if q in case.optimizer.state} for case in cases)
    assert ours.keys() == theirs.keys()
    for i, state in theirs.items():
        if state:
            assert int(ours[i]["step"]) == int(state["step"]), i
            assert all(torch.allclose(ours[i][key], state[key], rtol=1e-4, atol=1e-6) for key in MOMENTS), i


@pytest.mark.parametrize("edit", [edit for edit in EDITS if edit not in ("states.one_moment", "states.both_moments", "states.set_",
                                                                         "states.part_of_a_buffer", "states.swap_under_keys")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_edits_of_8_bit_states_are_those_of_an_optimizer_that_plans_anew(make, edit, dtype):
    """Beside one that is made to forget everything before every step."""
    cases, kept = [], []
    for is_fresh in (False, True):
        case = Case(make)
        for p in case.params:
            p.data = p.data.to(dtype)
        cases.append((case, is_fresh))
    for step in range(6):
        if step == 2 or (step == 4 and edit.startswith("states.")):
            for case, _ in cases:
                EDITS[edit](case)
                for p in case.params:
                    p.data = p.data.to(dtype)
            disturb_memory(kept)
        for case, is_fresh in cases:
            case.give(step)
            if is_fresh:
                case.optimizer._forget()
            case.optimizer.step()
    for p, q in zip(*(case.params for case, _ in cases)):
        assert torch.equal(p, q)
    assert all((tensor == 1e9).all() for tensor in kept)


@pytest.mark.parametrize("change,text", [
    (lambda state: state.update(exp_avg=torch.zeros(3, dtype=torch.uint8)), r"the state exp_avg of .*, got torch.uint8 \[3\] on cpu"),
    (lambda state: state.update(exp_avg=torch.zeros(16, SIZE // 16)), "the state exp_avg of .*, got torch.float32"),
    (lambda state: state.update(exp_avg_sq_meta=torch.zeros(1, dtype=torch.int32)), r"the state exp_avg_sq_meta of .*, got torch.int32 \[1\]"),
    (lambda state: state.update(master=None), "the state master of .*, got none"),
    (lambda state: state.pop("exp_avg_meta"), "the state exp_avg_meta of .*, got none"),
    (lambda state: state.update(step="3"), "the state step, a number of updates, got '3'"),
    (lambda state: state.update(step=-1), "the state step, a number of updates, got -1"),
    (lambda state: state.update(step=torch.ones(2)), r"the state step, .*, got torch.float32 \[2\]"),
    (lambda state: state.update(exp_avg=state["exp_avg"].to("meta")), "the state exp_avg of .* on meta"),
    (lambda state: setattr(state["exp_avg"], "data", state["exp_avg"].data[:8].clone()), r"the state exp_avg of .*, got .* \[8, 64\]"),
    (lambda state: setattr(state["exp_avg"], "data", state["exp_avg"].data[:8]), r"the state exp_avg of .*, got .* \[8, 64\]"),
    (lambda state: (state.update(exp_avg=state["exp_avg"].clone()), state["exp_avg"].untyped_storage().resize_(0)), "the state exp_avg with memory, got one whose storage is freed"),
])
def test_a_state_that_cannot_be_taken_is_named(make, change, text):
    case = Case(make)
    for p in case.params:
        p.data = p.data.bfloat16()
    for step in range(2):
        case.give(step)
        case.optimizer.step()
    before = [p.detach().clone() for p in case.params]
    change(case.optimizer.state[case.params[1]])
    for call in (case.optimizer.step, case.optimizer.master_weights, case.optimizer.plain_state_dict):
        with pytest.raises(octet.Error, match=r"param\.1: expected " + text) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert all(torch.equal(p, q) for p, q in zip(case.params, before))


@pytest.mark.parametrize("change,text", [
    (lambda case: groups_of(case)[0]["params"].append(case.params[0]), "param.0: expected every parameter once"),
    (lambda case: groups_of(case)[0]["params"].append(("w", case.spare)), "param.3: expected a parameter, got tuple"),
    (lambda case: groups_of(case)[0].update(params=case.spare), "group 0: expected a list of parameters, got Parameter"),
    (lambda case: groups_of(case)[0].pop("params"), "group 0: expected a dict with params"),
])
def test_groups_that_cannot_be_taken_are_errors_of_one_line(make, change, text):
    case = Case(make)
    case.give(0)
    case.optimizer.step()
    change(case)
    for call in (case.optimizer.step, case.optimizer.state_dict):
        with pytest.raises(octet.Error, match=text) as caught:
            call()
        assert "\n" not in str(caught.value)


def least_time(call):
    times = []
    for _ in range(20):
        start = time.thread_time()
        call()
        times.append(time.thread_time() - start)
    return min(times)


def test_comparing_all_tensors_of_a_step_takes_less_than_asking_each_for_its_address():
    params = [torch.nn.Parameter(torch.ones(8, dtype=torch.bfloat16)) for _ in range(1000)]
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer = octet.optim.AdamW(params)
    optimizer.step()
    tensors = [*params, *(p.grad for p in params), *(value for state in optimizer.state.values() for value in state.values())]
    plan = optimizer._host._plan
    compared = least_time(lambda: plan.find(optimizer._present(), optimizer.state))
    assert compared < least_time(lambda: [*map(torch.Tensor.data_ptr, tensors)])


def test_states_that_were_moved_away_are_freed(make):
    case = Case(make)
    for step in range(3):
        case.give(step)
        case.optimizer.step()
    references = [weakref.ref(value) for state in case.optimizer.state.values() for value in state.values()]
    for state in case.optimizer.state.values():
        for key in list(state):
            state[key] = state[key].clone()
    assert not any(reference() is not None for reference in references)


def test_names_and_stored_states_follow_what_stands_in_the_groups(make):
    case = Case(make)
    case.give(0)
    case.optimizer.step()
    groups = groups_of(case)
    groups[0]["params"][0] = case.spare  # takes the name of its place
    groups[1]["params"].append(case.params[0])  # keeps its own
    groups[0].pop("names")
    stored = case.optimizer.state_dict()
    assert [group["names"] for group in stored["param_groups"]] == [["param.3", "param.1"], ["param.2", "param.0"]]
    assert sorted(stored["state"]) == [1, 2, 3]
    del groups[1]
    stored = case.optimizer.state_dict()
    assert [group["names"] for group in stored["param_groups"]] == [["param.3", "param.1"]] and sorted(stored["state"]) == [1]
    assert len(case.optimizer.state) == 3  # what stands in no group is kept, as torch does
    case.give(1)
    case.optimizer.step()
    case.optimizer.load_state_dict(case.optimizer.state_dict())
    assert sorted(case.optimizer.master_weights()) == ["param.1", "param.3"]


def test_an_exchanged_parameter_takes_the_name_of_its_place(make):
    """Random bits are keyed by it: those of a sharded parameter are the whole one's."""
    results = []
    for is_exchanged in (False, True):
        p = torch.nn.Parameter(torch.ones(SIZE, dtype=torch.bfloat16))
        q = torch.nn.Parameter(p.detach().clone())
        optimizer = make([("w", p if is_exchanged else q)], lr=0.01, master="bf16_sr", seed=4)
        optimizer.param_groups[0]["params"] = [q]
        for _ in range(3):
            q.grad = torch.linspace(-1, 1, SIZE).bfloat16()
            optimizer.step()
        results.append(q.detach())
    assert torch.equal(*results)


def test_a_compiled_step_takes_replaced_states_and_exchanged_parameters(make):
    dynamo = pytest.importorskip("torch._dynamo", reason="needs torch.compile")
    for backend in ("eager", "aot_eager"):
        for edit in ("states.clones", "groups.exchange_with_state", "groups.reverse_groups"):
            dynamo.reset()
            cases = Case(octet.optim.AdamW), Case(make)
            steps = cases[0].optimizer.step, torch.compile(cases[1].optimizer.step, backend=backend, fullgraph=True)
            for step in range(6):
                for case, run in zip(cases, steps):
                    if step == 2 or (step == 4 and edit.startswith("states.")):
                        EDITS[edit](case)
                    case.give(step)
                    run()
                for p, q in zip(*(case.params for case in cases)):
                    assert torch.equal(p, q), (backend, edit, step)
    dynamo.reset()


def test_a_step_during_another_one_is_refused(monkeypatch):
    p = torch.nn.Parameter(torch.ones(4))
    optimizer = octet.optim.AdamW([p])
    p.grad = torch.ones(4)
    began, go_on = threading.Event(), threading.Event()
    step = optimizer._kernels.step

    def slow(*arguments):
        began.set()
        go_on.wait(20)
        return step(*arguments)

    monkeypatch.setattr(optimizer._kernels, "step", slow)
    thread = threading.Thread(target=optimizer.step)
    thread.start()
    began.wait(20)
    with pytest.raises(octet.Error, match="expected one step at a time"):
        optimizer.step()
    go_on.set()
    thread.join()
    optimizer.step()
    assert optimizer.counts["applied"] == 2


def test_relora_with_peft_trains_as_with_torch():
    """Adapters are merged, begun anew and their states set to zero in new tensors, as ReLoRA does; then another adapter joins."""
    peft = pytest.importorskip("peft", reason="needs PEFT")
    losses = []
    for make_one in (lambda params: octet.optim.AdamW(params, lr=0.01, state="f32"), lambda params: torch.optim.AdamW(params, lr=0.01)):
        torch.manual_seed(3)
        base = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
        config = peft.LoraConfig(r=4, target_modules=["0", "2"], init_lora_weights="gaussian")
        net = peft.get_peft_model(base, config)
        optimizer = make_one([p for p in net.parameters() if p.requires_grad])
        x, y = torch.randn(32, 16), torch.randn(32, 4)
        for step in range(12):
            if step in (4, 8):
                for name, p in net.named_parameters():
                    if "lora_B" in name:
                        p.data = torch.zeros_like(p)
                for state in optimizer.state.values():
                    state.update({key: torch.zeros_like(value) for key, value in state.items()})
            if step == 8:
                net.add_adapter("more", config)
                net.set_adapter("more")
                optimizer.param_groups[0]["params"] = [p for name, p in net.named_parameters() if "more" in name]
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    assert all(abs(a - b) < 1e-5 for a, b in zip(losses[:12], losses[12:])), losses
    assert losses[11] < losses[8] < losses[7] + 1
