"""The adapters and the command of octet.prove: stacks that are installed, healthy ones without an alarm; what is absent skips."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import planted
import pytest

import octet
from octet import prove
from octet.prove import __main__ as command
from octet.prove import stacks

ADAPTERS = sorted(Path(stacks.__file__).parent.glob("[a-z]*_.py"))

# Proofs of releases without a difference, by stack: parts of their names. What the others show is in docs/prove.md.
HEALTHY = {
    "torch": ["float8_e4m3fn", "float8_e5m2", "to bfloat16", "to float16", "by tensor"],
    "ml_dtypes": ["float8_e4m3fn", "float8_e5m2", "to bfloat16"],
    "jax": ["float8_e4m3fn", "float8_e5m2", "to bfloat16", "to float16"],
    "en_dtypes": ["hifloat8"],
    "gfloat": ["gfloat"],
    "torchao.float8": ["e4m3 tensor", "e5m2 tensor", "bf16 to e4m3 row"],
    "torchao.mx": ["FLOOR", "CEIL", "EVEN"],
    "torchao.optim": ["Fp8"],
    "onnxruntime": ["saturate=1"],
    "compressed_tensors": ["tensor", "channel", "group"],
    "transformers.fp8": ["bf16 blocks UE8M0"],
}


def installed(name):
    (stack,) = stacks.find([name])
    if stack.missing:
        pytest.skip(f"not installed: {', '.join(stack.missing)}")
    return stack


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_stack_gives_no_alarm(name):
    stack, words, n = installed(name), HEALTHY[name], 0
    for what, proof in stack.proofs("cpu"):
        if any(word in what for word in words) and not any(word in what for word in ("RCEIL", "MXFP8")):
            result = proof()
            assert result.first is None and not result.skipped, str(result)
            assert result.equal == result.cases > 1000
            n += 1
    assert n >= len(words)


def test_adapters_are_small():
    assert {path.stem[:-1] for path in ADAPTERS} == {name.replace(".", "_") for name in stacks.NAMES}
    for path in ADAPTERS:
        assert len(path.read_text().splitlines()) <= 60, path.name


def test_adapters_say_what_they_need_and_cover():
    for stack in stacks.find([]):
        assert stack.covers and set(stack.devices) <= {"cpu", "cuda"}


def test_command_proves_ml_dtypes(capsys):
    installed("ml_dtypes")
    assert command.main(["ml_dtypes"]) == 1  # E8M0 of subnormal numbers, findings/e8m0_subnormals.sh
    text = capsys.readouterr().out
    assert "ml_dtypes f32 to float8_e4m3fn" in text and "first difference" in text and "overflow: nan" in text
    block = text.split("```")[1]
    assert "ml_dtypes " in block and "device: cpu" in block and "0x00500000 = 7.34683969e-39" in block


def test_command_lists_and_names_strangers(capsys):
    assert command.main(["--list"]) == 0
    assert "torchao.mx" in capsys.readouterr().out
    assert command.main(["nobody"]) == 2
    assert "got nobody" in capsys.readouterr().err


def test_command_ends_in_time(capsys):
    installed("ml_dtypes")
    assert command.main(["ml_dtypes", "--seconds", "0"]) == 0
    assert "11 proofs not begun within 0 seconds" in capsys.readouterr().out


def test_command_names_what_does_not_run_there(capsys):
    installed("ml_dtypes")
    assert command.main(["ml_dtypes", "--device", "cuda"]) == 2
    assert capsys.readouterr().err == "[prove] --device cuda: expected stacks that run there, got ml_dtypes\n"


@pytest.mark.parametrize("flags", [["--seconds", "-1"], ["--seconds", "nan"], ["--seconds", "inf"], ["--sec", "1"]])
def test_command_refuses_flags_that_mean_nothing(flags):
    with pytest.raises(SystemExit) as ended:
        command.main(["ml_dtypes", *flags])
    assert ended.value.code == 2


def test_command_proves_a_stack_once(capsys):
    installed("ml_dtypes")
    command.main(["ml_dtypes", "ml_dtypes", "--seconds", "0"])
    assert capsys.readouterr().out.count("not begun within 0 seconds") == 1


def test_an_adapter_that_does_not_fit_is_told(capsys, monkeypatch):
    installed("ml_dtypes")

    def proofs(self, device):
        raise AttributeError("no such function")
        yield
    monkeypatch.setattr(stacks.Stack, "proofs", proofs)
    assert command.main(["ml_dtypes"]) == 0
    assert "the adapter does not fit this version: AttributeError: no such function" in capsys.readouterr().out


def test_an_exception_skips_its_proof_alone(capsys, monkeypatch):
    installed("ml_dtypes")

    def proofs(self, device):
        yield "first", lambda: 1 // 0
        yield "second", lambda: prove.cast(planted.own_e4m3, "e4m3", "fp16", what="second")
    monkeypatch.setattr(stacks.Stack, "proofs", proofs)
    assert command.main(["ml_dtypes"]) == 0
    text = capsys.readouterr().out
    assert "ZeroDivisionError" in text and "\nsecond " in text and "2 proofs, 0 with" in text


def test_a_named_stack_that_is_not_installed_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr(stacks.Stack, "missing", ["gfloat"])
    assert command.main(["gfloat"]) == 1
    told = capsys.readouterr()
    assert told.err == "[prove] not installed: gfloat of gfloat\n" and told.out == ""


def test_cuda_without_a_device_is_one_line(capsys, monkeypatch):
    torch = torch_or_skip()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command.main(["torch", "--device", "cuda"]) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1 and "expected a CUDA device" in told.err and told.out == ""


def test_module_runs():
    done = subprocess.run([sys.executable, "-m", "octet.prove", "--list", "gfloat"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith("gfloat"), done.stderr


def torch_or_skip():
    return pytest.importorskip("torch", reason="torch is not installed")


def dense(o, p):
    return o.state[p]["exp_avg"], o.state[p]["exp_avg_sq"]


def test_views_keep_strides_and_addresses_on_a_device():
    torch = torch_or_skip()
    from octet.prove._libraries import on_device
    x = torch.arange(200, dtype=torch.int32)
    for view in (x[1:].reshape(-1)[:120].view(10, 12), x[:200].view(10, 20)[:, 3:9], x[:64].view(8, 8).t()):
        copy = on_device(view, "cpu")
        assert torch.equal(copy, view) and copy.stride() == view.stride() and copy.data_ptr() % 16 == view.data_ptr() % 16


def test_torch_adamw_is_its_definition():
    torch = torch_or_skip()
    result = prove.optimizer(torch.optim.AdamW, moments=dense)
    assert result and result.equal == result.cases == 163840, str(result)


def test_octet_adamw_keeps_what_optimizers_must_keep():
    torch_or_skip()
    result = prove.optimizer(octet.optim.AdamW, shards=False)  # random bits are keyed by names and places of the whole
    assert result and result.cases > 0, str(result)


def faulty(torch, kind):
    """AdamW with one fault."""
    class Faulty(torch.optim.AdamW):
        def step(self, closure=None):
            super().step()
            with torch.no_grad():
                for p in self.param_groups[0]["params"]:
                    state = self.state[p]
                    if kind == "moves at rest":
                        p += 1e-4
                    elif kind == "moment lost":
                        state["exp_avg_sq"][0, :4] = 0
                    elif kind == "depends on rows":
                        if p.grad.any():
                            p[0] *= 1 + 1e-3
        def load_state_dict(self, saved):
            super().load_state_dict(saved)
            if kind == "resume":
                for state in self.state.values():
                    state["step"] *= 0
    return Faulty


@pytest.mark.parametrize("kind, words, given", [
    ("moves at rest", "zero gradient at rest", {}), ("moment lost", "v after step 1", {"moments": dense, "stored": ("e4m3", "e4m3")}),
    ("resume", "resumed after step 3", {}), ("depends on rows", "two shards", {})])
def test_faults_of_optimizers_are_found(kind, words, given):
    torch = torch_or_skip()
    assert words in prove.optimizer(faulty(torch, kind), **given).first.case


def test_views_of_torch_are_proved():
    """The same fault in PyTorch's tensors: a transposed matrix is read as its memory lies."""
    torch = torch_or_skip()

    def f(x):
        return tuple(torch.from_numpy(np.ascontiguousarray(y)) for y in planted.as_memory_lies(x.numpy()))
    result = prove.quantizer(f, "e4m3", "1x32", like="torch", multiple=32)
    assert "transposed" in result.first.case
