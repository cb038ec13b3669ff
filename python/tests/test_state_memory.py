"""Memory of the optimizer's states: one buffer for all that begin together, each a tensor of its own. Needs PyTorch."""

import copy
import gc
import io

import octet
import pytest

torch = pytest.importorskip("torch", reason="octet.optim needs PyTorch")

from octet import _optimizer, _state_memory  # noqa: E402

HIDDEN, LAYERS = 768, 12
BLOCK = [(HIDDEN,), (HIDDEN,), (HIDDEN,), (HIDDEN,), (3 * HIDDEN, HIDDEN), (3 * HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,),
         (4 * HIDDEN, HIDDEN), (4 * HIDDEN,), (HIDDEN, 4 * HIDDEN), (HIDDEN,)]
GPT2 = [(50304, HIDDEN), (1024, HIDDEN), *BLOCK * LAYERS, (HIDDEN,), (HIDDEN,)]
MASTERS = [("bf16_sr", 2.0625), ("bf16_remainder", 4.0625), ("fp32", 6.0625)]  # 2 codes, 2 words for 128 of them, the master


def kernels_of(master, state="e4m3+x"):
    return _optimizer.Kernels(state, state, master, "fast", 128)


def make(shapes, **options):
    params = [torch.nn.Parameter(torch.ones(shape, dtype=torch.bfloat16)) for shape in shapes]
    return params, octet.optim.AdamW(params, **options)


def step(params, optimizer):
    for p in params:
        p.grad = torch.full_like(p, 0.5)
    optimizer.step()


def spans(optimizer, params):
    """(first byte, end) of every state in memory, in order."""
    tensors = [t for p in params for key, t in optimizer.state[p].items() if key != "step" and t.numel() > 0]
    return sorted((t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in tensors)


@pytest.mark.parametrize("master,each", MASTERS)
def test_states_of_gpt2_take_what_is_promised(master, each):
    weights = [torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in GPT2]
    n = sum(weight.numel() for weight in weights)
    assert n == 124_475_904
    fields = [field for weight in weights for field in _state_memory.fields_of(kernels_of(master), weight)]
    states = sum(field.n_bytes for field in fields)
    assert states == each * n  # every tensor is whole groups
    assert states <= _state_memory.buffer_bytes(fields) <= 1.001 * states


@pytest.mark.parametrize("master,each", MASTERS)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_memory_allocated_is_what_is_promised(master, each):
    params = [torch.nn.Parameter(torch.ones(shape, dtype=torch.bfloat16, device="cuda")) for shape in GPT2]
    for p in params:
        p.grad = torch.full_like(p, 0.5)
    before = torch.cuda.memory_allocated()
    optimizer = octet.optim.AdamW(params, master=master)
    optimizer.step()
    torch.cuda.synchronize()
    taken = (torch.cuda.memory_allocated() - before) / sum(p.numel() for p in params)
    assert abs(taken / each - 1) < 0.01, taken
    del optimizer
    gc.collect()
    assert torch.cuda.memory_allocated() - before < 1 << 20


def test_states_that_begin_together_lie_in_one_buffer():
    params, optimizer = make([(33, 47), (47,), (), (1000,), (5, 3, 2)], master="bf16_remainder")
    step(params, optimizer)
    taken = spans(optimizer, params)
    assert len(taken) == 5 * len(params)
    assert all(begin >= end and begin % 64 == taken[0][0] % 64 and begin - end < _state_memory.ALIGNMENT
               for (_, end), (begin, _) in zip(taken, taken[1:]))
    fields = [field for p in params for field in _state_memory.fields_of(optimizer._kernels, p)]
    assert (taken[-1][0] - taken[0][0]) % _state_memory.ALIGNMENT == 0
    assert taken[-1][1] - taken[0][0] <= _state_memory.buffer_bytes(fields)


def test_every_state_is_stored_and_copied_alone():
    params, optimizer = make([(512, 512), (64,)])
    step(params, optimizer)
    state = optimizer.state_dict()["state"]
    for key, tensor in state[1].items():
        assert tensor._base is None and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size(), key
    file = io.BytesIO()
    torch.save(state[1], file)
    assert len(file.getvalue()) < 1 << 14
    copied, before = copy.deepcopy(state[0]), state[0]["exp_avg"].clone()
    assert all(torch.equal(copied[key], state[0][key]) and copied[key].data_ptr() != state[0][key].data_ptr() for key in copied)
    state[0]["exp_avg"].zero_()
    assert torch.equal(copied["exp_avg"], before) and not torch.equal(before, state[0]["exp_avg"])


def test_a_state_outlives_its_optimizer():
    params, optimizer = make([(512, 512), (64,)])
    step(params, optimizer)
    kept = optimizer.state[params[1]]["exp_avg"]
    expected = kept.clone()
    del params, optimizer
    others = [torch.full((512, 512), 7, dtype=torch.uint8) for _ in range(8)]
    assert torch.equal(kept, expected) and others


def test_parameters_that_come_later_have_a_buffer_of_their_own():
    params, optimizer = make([(64, 64), (64,)])
    step(params, optimizer)
    before = spans(optimizer, params)
    later = torch.nn.Parameter(torch.ones(32, 32, dtype=torch.bfloat16))
    optimizer.add_param_group({"params": [later]})
    step([*params, later], optimizer)
    assert spans(optimizer, params) == before and int(optimizer.state[later]["step"]) == 1
    begin, end = spans(optimizer, [later])[0][0], spans(optimizer, [later])[-1][1]
    assert end <= before[0][0] or begin >= before[-1][1]


def test_loaded_states_lie_in_one_buffer_and_go_on():
    (params, first), (others, second) = make([(64, 64), (100,)]), make([(64, 64), (100,)])
    step(params, first)
    for p, q in zip(params, others):
        q.data.copy_(p.data)
    second.load_state_dict(first.state_dict())
    taken = spans(second, others)
    assert taken[-1][1] - taken[0][0] < sum(end - begin for begin, end in taken) + len(taken) * _state_memory.ALIGNMENT
    step(params, first)
    step(others, second)
    assert all(torch.equal(p, q) for p, q in zip(params, others))


def test_parameters_without_elements_and_in_another_order_have_states_like_them():
    empty = torch.nn.Parameter(torch.ones(0, 3, dtype=torch.bfloat16))
    image = torch.nn.Parameter(torch.ones(2, 3, 4, 5).to(torch.bfloat16, memory_format=torch.channels_last))
    optimizer = octet.optim.AdamW([empty, image], master="fp32")
    step([empty, image], optimizer)
    for p in (empty, image):
        for key in ("exp_avg", "exp_avg_sq", "master"):
            state = optimizer.state[p][key]
            assert state.shape == p.shape and state.stride() == p.stride()
    assert optimizer.state[empty]["exp_avg_meta"].shape == (0,)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    step([empty, image], optimizer)
