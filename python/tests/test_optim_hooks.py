"""Hooks of load_state_dict: they see, and may replace, the state, as those of torch.optim.AdamW do. Needs PyTorch."""

import octet
import pytest

torch = pytest.importorskip("torch", reason="octet.optim needs PyTorch")


def swap_ids(optimizer, state):
    return {**state, "state": {0: state["state"][1], 1: state["state"][0]}}


def change_in_place(optimizer, state):
    state["state"] = {0: state["state"][1], 1: state["state"][0]}


def test_hooks_of_load_state_dict_see_and_replace_the_state():
    for hook in (swap_ids, change_in_place):
        rows = []
        for make_one in (lambda params: octet.optim.AdamW(params, lr=0.1, state="f32"), lambda params: torch.optim.AdamW(params, lr=0.1)):
            params = [torch.nn.Parameter(torch.ones(4)) for _ in range(2)]
            optimizer, seen = make_one(params), []
            params[0].grad, params[1].grad = torch.full((4,), 0.1), torch.full((4,), 0.2)
            optimizer.step()
            optimizer.register_load_state_dict_pre_hook(lambda _, state, seen=seen: seen.append(len(state["state"])))
            optimizer.register_load_state_dict_pre_hook(hook)
            optimizer.register_load_state_dict_post_hook(
                lambda o, seen=seen: seen.append([float(s["exp_avg"][0]) for s in o.state.values()]))
            optimizer.load_state_dict(optimizer.state_dict())
            rows.append(([round(float(optimizer.state[p]["exp_avg"][0]), 6) for p in params], seen[0], len(seen[1])))
            optimizer.step()
            rows[-1] += ([round(float(p[0]), 5) for p in params],)
        assert rows[0] == rows[1] and rows[0][0] == [0.02, 0.01] and rows[0][1:3] == (2, 2)


def test_a_hook_that_gives_a_state_that_does_not_fit_changes_nothing():
    p = torch.nn.Parameter(torch.ones(4))
    optimizer = octet.optim.AdamW([p])
    p.grad = torch.ones(4)
    optimizer.step()
    kept = {key: value.clone() for key, value in optimizer.state[p].items()}
    optimizer.register_load_state_dict_pre_hook(lambda _, state: {**state, "state": {0: {"step": 1, "exp_avg": torch.ones(3),
                                                                                          "exp_avg_sq": torch.ones(3)}}})
    with pytest.raises(octet.Error, match="exp_avg: expected shape"):
        optimizer.load_state_dict(optimizer.state_dict())
    assert all(torch.equal(kept[key], value) for key, value in optimizer.state[p].items())
    with pytest.raises(octet.Error, match="expected a dict with state and param_groups"):
        octet.optim.AdamW([p]).load_state_dict({})
