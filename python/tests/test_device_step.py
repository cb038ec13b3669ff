"""How a step on devices is planned, with kernels of the CPU in the place of the CUDA module's, and the module where a GPU is.
Needs PyTorch."""

import ctypes
import sys
import weakref

import octet
import pytest
from test_kernels import BETAS, DECAY, EPS, LR

torch = pytest.importorskip("torch", reason="octet.optim needs PyTorch")

from octet import _cuda_optimizer, _device_step, _optimizer  # noqa: E402

OPTIONS = {"lr": LR, "betas": BETAS, "eps": EPS, "weight_decay": DECAY, "seed": 3}
WIDE = {1: (_optimizer.F32, 4), 2: (_optimizer.BF16, 2), 3: (_optimizer.FP16, 2)}


class Kernels:
    """The interface of the module's optimizer, by the library for the CPU: it reads the same rows and control."""

    made = []

    def __init__(self, options):
        self.plans = self.number_writes = self.gradient_writes = 0
        Kernels.made.append(self)

    def plan(self, weights, count):
        self.plans += 1
        self.weights = [_cuda_optimizer.Weight.from_buffer_copy(weights[i]) for i in range(count)]
        return 1000

    def one_by_one(self, is_wanted):
        assert not is_wanted

    def place(self, table, control, stream):
        self.control = ctypes.cast(control, ctypes.POINTER(ctypes.c_double))
        self.words = ctypes.cast(control, ctypes.POINTER(ctypes.c_uint32))
        self.longs = ctypes.cast(control, ctypes.POINTER(ctypes.c_int64))

    def write_numbers(self, numbers, count, stream):
        self.number_writes += 1
        self.numbers = [_cuda_optimizer.Numbers.from_buffer_copy(numbers[i]) for i in range(count)]

    def write_gradients(self, addresses, count, stream):
        self.gradient_writes += 1
        self.gradients = list((ctypes.c_uint64 * count).from_address(addresses))

    def squares(self, stream):
        self.control[0] = self.cpu.squares(self.rows(), len(self.weights))

    def rows(self):
        rows = (_optimizer.Tensor * len(self.weights))()
        for row, w, gradient in zip(rows, self.weights, self.gradients):
            numbers = self.numbers[w.numbers]
            for field in ("weight", "master", "m", "v", "m_meta", "v_meta", "n", "name", "t"):
                setattr(row, field, getattr(w, field))
            row.gradient = gradient
            row.dtype, row.gradient_dtype = WIDE[w.dtype][0], WIDE[w.gradient_dtype][0]
            row.lr = ctypes.c_float.from_address(numbers.lr_at).value if numbers.lr_at else numbers.lr
            row.beta1, row.beta2, row.eps, row.weight_decay = numbers.beta1, numbers.beta2, numbers.eps, numbers.weight_decay
        return rows

    def step(self, clip, has_squares, stream):
        self.words[6] += 1
        squares = self.control[0] if has_squares else None
        done = self.cpu.step(self.rows(), len(self.weights), clip, self.words[6], has_squares, squares)
        self.control[1], self.words[5] = done.grad_norm, done.skipped
        self.longs[5 if done.skipped else 4] += 1


@pytest.fixture
def on_devices(monkeypatch):
    """Optimizers step tensors of the CPU as if they lay on a device."""
    monkeypatch.setattr(_device_step, "_KIND", "cpu")
    monkeypatch.setattr(_device_step, "_stream", lambda device: 0)
    monkeypatch.setattr(_cuda_optimizer, "DeviceKernels", Kernels)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    Kernels.made = []

    def make(*arguments, **options):
        optimizer = octet.optim.AdamW(*arguments, **options)
        Kernels.cpu = optimizer._kernels
        optimizer._steps = lambda: optimizer._device
        return optimizer

    return make


def model(dtype=torch.float32, seed=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(33, 47), torch.nn.GELU(), torch.nn.Linear(47, 5)).to(dtype)


def set_gradients(net, step, skip=()):
    generator = torch.Generator().manual_seed(1000 + step)
    for i, p in enumerate(net.parameters()):
        gradient = torch.randn(p.shape, generator=generator).to(p.dtype)
        p.grad = None if i in skip else gradient


def same(a, b):
    return all(torch.equal(torch.nan_to_num(p), torch.nan_to_num(q)) for p, q in zip(a.parameters(), b.parameters()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("master", ["bf16_remainder", "bf16_sr", "fp32"])
def test_a_planned_step_is_the_cpus(on_devices, dtype, master):
    nets = model(dtype), model(dtype)
    options = {**OPTIONS, "master": master, "clip": 0.5}
    plain = octet.optim.AdamW(nets[0].named_parameters(), **options)
    planned = on_devices(nets[1].named_parameters(), **options)
    for step in range(12):
        for net, optimizer in zip(nets, (plain, planned)):
            set_gradients(net, step, skip=(1,) if step in (3, 4) else ())
            if step == 7:
                net[0].bias.grad[2] = float("nan")
            optimizer.param_groups[0]["lr"] = LR * (1 - step / 20)
            optimizer.step()
        assert plain.skipped == planned.skipped == (step == 7)
    assert same(*nets)
    assert planned.counts == plain.counts == {"applied": 11, "skipped": 1}
    states = [optimizer.state_dict() for optimizer in (plain, planned)]
    for a, b in zip(states[0]["state"].values(), states[1]["state"].values()):
        assert a.keys() == b.keys() and all(torch.equal(torch.as_tensor(a[key]), b[key]) for key in a)
    assert states[0]["param_groups"][0]["attempt"] == states[1]["param_groups"][0]["attempt"] == 12


def test_nothing_is_written_again_that_has_not_changed(on_devices):
    net = model()
    optimizer = on_devices(net.named_parameters(), **OPTIONS)
    set_gradients(net, 0)
    for _ in range(5):
        optimizer.step()
    assert len(Kernels.made) == 1
    assert (Kernels.made[0].plans, Kernels.made[0].number_writes, Kernels.made[0].gradient_writes) == (1, 1, 1)
    kept = [p.grad for p in net.parameters()]
    set_gradients(net, 1)
    optimizer.step()
    assert len(Kernels.made) == 1 and Kernels.made[0].gradient_writes == 2
    del kept
    set_gradients(net, 2, skip=(0,))
    optimizer.step()
    assert len(Kernels.made) == 2
    net[2].weight.data = net[2].weight.detach().clone()
    optimizer.step()
    assert len(Kernels.made) == 3


def test_a_learning_rate_on_the_device_is_read_there(on_devices):
    nets = model(), model()
    plain = octet.optim.AdamW(nets[0].named_parameters(), **OPTIONS)
    planned = on_devices(nets[1].named_parameters(), **OPTIONS)
    for step in range(3):
        for net, optimizer in zip(nets, (plain, planned)):
            set_gradients(net, step)
            optimizer.param_groups[0]["lr"] = torch.tensor(LR / (step + 1)) if optimizer is planned else LR / (step + 1)
            optimizer.step()
    assert same(*nets)


def test_a_stored_state_goes_on_between_planned_and_plain_steps(on_devices):
    nets = model(torch.bfloat16), model(torch.bfloat16), model(torch.bfloat16)
    whole = octet.optim.AdamW(nets[0].named_parameters(), **OPTIONS, master="bf16_sr")
    first = on_devices(nets[1].named_parameters(), **OPTIONS, master="bf16_sr")
    for step in range(6):
        for net, optimizer in zip(nets, (whole, first)):
            set_gradients(net, step)
            optimizer.step()
    nets[2].load_state_dict(nets[1].state_dict())
    second = on_devices(nets[2].named_parameters(), **OPTIONS, master="bf16_sr")
    second.load_state_dict(first.state_dict())
    for step in range(6, 9):
        for net, optimizer in zip((nets[0], nets[2]), (whole, second)):
            set_gradients(net, step)
            optimizer.step()
    assert same(nets[0], nets[2])


def test_gradients_that_do_not_fit_are_refused(on_devices):
    p = torch.nn.Parameter(torch.zeros(4, 4))
    optimizer = on_devices([("w", p)])
    p.grad = torch.ones(4, 4)
    optimizer.step()
    p.grad = torch.zeros(4, 4).to_sparse()
    with pytest.raises(octet.Error, match="w: expected a dense gradient"):
        optimizer.step()
    p.grad = torch.ones(4, 4)
    p.grad.untyped_storage().resize_(0)
    with pytest.raises(octet.Error, match="w: expected a gradient with memory"):
        optimizer.step()


def test_capturing_needs_a_step_before(on_devices, monkeypatch):
    p = torch.nn.Parameter(torch.zeros(4, 4))
    p.grad = torch.ones(4, 4)
    optimizer = on_devices([("w", p)])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(octet.Error, match="expected one step with these gradients before a CUDA graph"):
        optimizer.step()


def test_a_plan_that_a_graph_knows_stays(on_devices, monkeypatch):
    net = model()
    optimizer = on_devices(net.named_parameters(), **OPTIONS)
    set_gradients(net, 0)
    optimizer.step()
    kept = [p.grad for p in net.parameters()]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    optimizer.param_groups[0]["lr"] = 0.5
    optimizer.step()
    assert Kernels.made[0].gradient_writes == 2 and Kernels.made[0].number_writes == 1
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    optimizer.write_rates()
    assert Kernels.made[0].numbers[0].lr == 0.5
    set_gradients(net, 1, skip=(0,))
    optimizer.step()
    assert len(Kernels.made) == 2 and len(optimizer._device._captured) == 1 and kept


def test_a_module_that_is_not_there_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("OCTET_CUDA_MODULE", str(tmp_path / "none.so"))
    monkeypatch.setattr(_cuda_optimizer, "_loaded", None)
    with pytest.raises(octet.Error, match="expected the CUDA module .*none.so") as caught:
        _cuda_optimizer.api()
    assert "\n" not in str(caught.value) and caught.value.code == "device"


def python_calls(run):
    """Functions of Python that a call enters, those of the language itself aside."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("is_new", [False, True])
def test_no_function_is_entered_for_every_tensor(on_devices, monkeypatch, is_new):
    counts = []
    for n in (10, 100):
        params = [torch.nn.Parameter(torch.zeros(16)) for _ in range(n)]
        optimizer = on_devices(params, **OPTIONS)
        kept = []

        def give():
            kept.append([p.grad for p in params])
            for p in params:
                p.grad = torch.ones(16)

        give()
        for _ in range(5):
            optimizer.step()
            give() if is_new else None
        for name in ("squares", "step", "write_gradients"):
            monkeypatch.setattr(Kernels.made[-1], name, lambda *arguments: None)
        counts.append(python_calls(optimizer.step))
    assert counts[1] == counts[0] < 80


def test_what_becomes_of_gradients_between_steps_is_seen(on_devices):
    """Others at the same addresses, of other types and orders, the same objects with other memory, and none."""
    changes = [
        lambda p: setattr(p, "grad", None),
        lambda p: setattr(p, "grad", p.grad.clone()),
        lambda p: setattr(p.grad, "data", p.grad.data.view(torch.int16).view(torch.float16)),
        lambda p: setattr(p.grad, "data", p.grad.data.t().contiguous().t()),
        lambda p: setattr(p, "grad", p.grad.clone().t().contiguous().t()),
        lambda p: p.grad.fill_(2.0),
    ]
    nets = [torch.nn.ParameterList([torch.nn.Parameter(torch.ones(8, 8, dtype=torch.bfloat16)) for _ in range(3)])
            for _ in range(2)]
    plain = octet.optim.AdamW(nets[0].named_parameters(), **OPTIONS)
    planned = on_devices(nets[1].named_parameters(), **OPTIONS)
    for i, change in enumerate(changes):
        for net, optimizer in zip(nets, (plain, planned)):
            for k, p in enumerate(net):
                p.grad = (torch.arange(64).reshape(8, 8) * (k + i + 1) / 64).to(torch.bfloat16)
            for _ in range(5):  # long enough to be taken for steady
                optimizer.step()
            change(net[1])
            optimizer.step()
            optimizer.step()
        masters = [optimizer.master_weights() for optimizer in (plain, planned)]
        assert all(torch.equal(masters[0][name], masters[1][name]) for name in masters[0]), i
    wrong = nets[1][0]
    wrong.grad.data = wrong.grad.data[:4].clone()
    with pytest.raises(octet.Error, match=r"0: expected a gradient \[8, 8\], got \[4, 8\]"):
        planned.step()


def test_gradients_are_not_kept_alive(on_devices):
    net = model()
    optimizer = on_devices(net.named_parameters(), **OPTIONS)
    set_gradients(net, 0)
    for _ in range(5):
        optimizer.step()
    references = [weakref.ref(p.grad) for p in net.parameters()]
    optimizer.zero_grad(set_to_none=True)
    assert [reference() for reference in references] == [None] * 4
