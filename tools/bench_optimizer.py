#!/usr/bin/env python3
"""octet.optim.AdamW on one GPU: checks it, and times it beside other optimizers.

    tools/bench_optimizer.py                       checks, then the table
    tools/bench_optimizer.py --only check|time|many [--seconds 140] [--out FILE]

Wants PyTorch, the package octet on the path and the CUDA module (OCTET_CUDA_MODULE). Times are medians by CUDA events.
"""

import argparse
import copy
import gc
import io
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

import octet
from octet.optim import AdamW

DEVICE = "cuda"
NUMBERS = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
START = time.monotonic()


# ---- shapes

def one_tensor():
    return [(1 << 28,)]


def llama_7b():
    """The 291 tensors of Llama-2-7B."""
    hidden, inner, vocabulary = 4096, 11008, 32000
    layer = [(hidden, hidden)] * 4 + [(inner, hidden)] * 2 + [(hidden, inner), (hidden,), (hidden,)]
    return [(vocabulary, hidden), *layer * 32, (hidden,), (vocabulary, hidden)]


SHAPES = {"one tensor, 2^28": one_tensor, "291 of 7B": llama_7b}


def parameters(shapes, dtype=torch.bfloat16, seed=1):
    generator = torch.Generator(DEVICE).manual_seed(seed)
    result = []
    for shape in shapes:
        p = torch.nn.Parameter(torch.empty(shape, dtype=dtype, device=DEVICE).normal_(0, 0.02, generator=generator))
        p.grad = torch.empty(shape, dtype=dtype, device=DEVICE).normal_(0, 1e-3, generator=generator)
        result.append(p)
    return result


# ---- checks

SIZES = [1, 3, 127, 128, 129, 511, 512, 513, 4096, 5000, 70001, 300000]


def small(dtype, device=DEVICE, scale=0.02):
    generator = torch.Generator().manual_seed(7)
    return [torch.nn.Parameter((torch.randn(n, generator=generator) * scale).to(dtype).to(device)) for n in SIZES]


def give_gradients(params, step, offset=0):
    """offset: elements by which every gradient misses the alignment of its memory."""
    generator = torch.Generator().manual_seed(100 + step)
    for i, p in enumerate(params):
        values = torch.randn(p.numel() + offset, generator=generator) * 10.0 ** -(i % 5)
        if i % 4 == 3:
            values[::3] = 0
        p.grad = values.to(p.dtype).to(p.device)[offset:]


def stepped(params, steps=5, offset=0, joint=True, **options):
    optimizer = AdamW([(f"p{i}", p) for i, p in enumerate(params)], **NUMBERS, **options)
    optimizer._device.is_joint = joint
    for step in range(steps):
        give_gradients(params, step, offset)
        optimizer.step()
    return optimizer


def differences(one, other):
    """How many elements of weights and states differ in a bit."""
    n = 0
    for group in ("weights", "states"):
        for a, b in zip(one[group], other[group]):
            a, b = (x.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for x in (a, b))
            n += int((a != b).sum())
    return n


def everything(optimizer, params):
    states = [optimizer.state[p][key] for p in params for key in sorted(optimizer.state[p])]
    return {"weights": params, "states": [x for x in states if torch.is_tensor(x) and x.dim() > 0]}


def check_cpu_bits():
    for dtype in (torch.bfloat16, torch.float32, torch.float16):
        for state in ("f32", "bf16", "e4m3+x", "e4m3", "e5m2+x", "hif8+x", "de8+x", "e4m3_sr+x"):
            for master in ("bf16_remainder", "bf16_sr", "fp32") if dtype == torch.bfloat16 else ("fp32",):
                options = {"state": state, "master": master, "math": "exact", "seed": 5, "skip_nonfinite": False}
                there, here = small(dtype), small(dtype, "cpu")
                a, b = stepped(there, **options), stepped(here, **options)
                n = differences(everything(a, there), everything(b, here))
                assert n == 0, f"{dtype} {state} {master}: {n} bytes differ from the CPU"
    return "every state and master, exact powers: the CPU's bits"


def check_near_cpu():
    worst = 0.0
    for master in ("bf16_remainder", "bf16_sr"):
        there, here = small(torch.bfloat16), small(torch.bfloat16, "cpu")
        a, b = stepped(there, master=master, seed=5), stepped(here, master=master, seed=5)
        total = sum(p.numel() for p in here)
        codes = sum(int((a.state[p]["exp_avg"].cpu() != b.state[q]["exp_avg"]).sum()) for p, q in zip(there, here))
        worst = max(worst, codes / total)
        for p, q in zip(there, here):
            assert torch.allclose(p.detach().cpu().float(), q.detach().float(), rtol=0.02, atol=1e-4)
    assert worst < 0.02, worst
    return f"e4m3+x, fast powers: {worst:.2e} of the first moment's codes differ from the CPU's after 5 steps"


def check_joint_bits():
    n_cases = 0
    for dtype in (torch.bfloat16, torch.float32, torch.float16):
        for state in ("e4m3+x", "e4m3", "e5m2+x", "f32", "bf16", "hif8+x"):
            for master in ("bf16_remainder", "bf16_sr", "fp32") if dtype == torch.bfloat16 else ("fp32",):
                for offset in (0, 1):
                    options = {"state": state, "master": master, "seed": 5, "clip": 1.0, "offset": offset}
                    joint, alone = small(dtype), small(dtype)
                    a, b = stepped(joint, **options), stepped(alone, joint=False, **options)
                    n = differences(everything(a, joint), everything(b, alone))
                    assert n == 0, f"{dtype} {state} {master} offset {offset}: {n} bytes differ from one by one"
                    n_cases += 1
    return f"many in one launch: the bits of one by one, {n_cases} cases"


def check_skip():
    params = small(torch.bfloat16)
    optimizer = stepped(params, steps=2)
    before = copy.deepcopy({k: [x.detach().clone() for x in v] for k, v in everything(optimizer, params).items()})
    give_gradients(params, 2)
    params[9].grad[77] = float("inf")
    optimizer.step()
    assert optimizer.skipped and differences(before, everything(optimizer, params)) == 0
    give_gradients(params, 3)
    optimizer.step()
    assert not optimizer.skipped and optimizer.counts == {"applied": 3, "skipped": 1}
    assert int(optimizer.state[params[0]]["step"]) == 3
    return "NaN and Inf skip the step, on the device"


def check_graph():
    rate = torch.tensor(1e-3, device=DEVICE)
    eager, graphed = small(torch.bfloat16), small(torch.bfloat16)
    options = {**NUMBERS, "lr": rate, "master": "bf16_sr", "clip": 1.0}
    optimizers = [AdamW([(f"p{i}", p) for i, p in enumerate(params)], **options) for params in (eager, graphed)]
    give_gradients(eager, 0)
    give_gradients(graphed, 0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        optimizers[1].step()
    torch.cuda.current_stream().wait_stream(side)
    optimizers[0].step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizers[1].step()
    for i in range(4):
        rate.fill_(1e-3 / (i + 1))
        optimizers[0].step()
        graph.replay()
    torch.cuda.synchronize()
    n = differences(everything(optimizers[0], eager), everything(optimizers[1], graphed))
    assert n == 0 and optimizers[1].counts["applied"] == 5, (n, optimizers[1].counts)
    numbered = small(torch.bfloat16)
    optimizer = stepped(numbered, steps=1, skip_nonfinite=False)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    before = numbered[8].detach().clone()
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.write_rates()
    graph.replay()
    assert torch.equal(before, numbered[8])
    return "a CUDA graph replays steps: rates, counters and random bits go on"


def check_state_dict():
    for dtype, master in ((torch.bfloat16, "bf16_remainder"), (torch.bfloat16, "bf16_sr"), (torch.float16, "fp32")):
        whole, half = small(dtype), small(dtype)
        a = stepped(whole, steps=6, master=master)
        b = stepped(half, steps=3, master=master)
        file = io.BytesIO()
        torch.save(b.state_dict(), file)
        file.seek(0)
        fresh = [torch.nn.Parameter(p.detach().clone()) for p in half]
        c = AdamW([(f"p{i}", p) for i, p in enumerate(fresh)], **NUMBERS, master=master)
        c.load_state_dict(torch.load(file, weights_only=True, map_location=DEVICE))
        for step in range(3, 6):
            give_gradients(fresh, step)
            c.step()
        assert differences(everything(a, whole), everything(c, fresh)) == 0
    plain = torch.optim.AdamW(small(torch.float32), **NUMBERS)
    plain.load_state_dict(stepped(small(torch.float32), steps=2).plain_state_dict())
    return "state_dict round trips go on bit by bit"


def check_torch():
    ours, theirs = small(torch.float32), small(torch.float32)
    a = AdamW(ours, **NUMBERS, state="f32", clip=1.0)
    b = torch.optim.AdamW(theirs, **NUMBERS, fused=True)
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20) for optimizer in (a, b)]
    for step in range(10):
        give_gradients(ours, step)
        give_gradients(theirs, step)
        norm = torch.nn.utils.clip_grad_norm_(theirs, 1.0)
        a.step()
        b.step()
        assert abs(a.grad_norm / float(norm) - 1) < 1e-5
        for schedule in schedules:
            schedule.step()
    worst = max(float((p - q).detach().abs().max()) for p, q in zip(ours, theirs))
    assert worst < 1e-6, worst
    return f"f32 states, clip, scheduler: torch.optim.AdamW's weights within {worst:.1e}"


def check_compile():
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64)).to(DEVICE, torch.bfloat16)
    twin = copy.deepcopy(net)
    a, b = AdamW(net.named_parameters(), **NUMBERS), AdamW(twin.named_parameters(), **NUMBERS)
    fast, compiled = torch.compile(net, backend="aot_eager"), torch.compile(b.step, backend="aot_eager", fullgraph=True)
    x = torch.randn(32, 64, device=DEVICE, dtype=torch.bfloat16)
    for _ in range(3):
        for one, step in ((fast, a.step), (twin, compiled)):
            one(x).square().mean().backward()
            step()
        a.zero_grad()
        b.zero_grad()
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), twin.parameters()))
    return "compiled models, and a compiled step without a graph break"


def check_streams():
    on_side, here = small(torch.bfloat16), small(torch.bfloat16)
    a = stepped(here, steps=3)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        b = stepped(on_side, steps=3)
    side.synchronize()
    assert differences(everything(a, here), everything(b, on_side)) == 0
    return "steps run on the current stream"


CHECKS = [check_torch, check_skip, check_graph, check_state_dict, check_streams, check_joint_bits, check_near_cpu,
          check_cpu_bits, check_compile]


def run_checks():
    failed = 0
    for check in CHECKS:
        start = time.monotonic()
        try:
            text = "ok   " + check()
        except Exception as error:  # every check is run
            failed += 1
            lines = (str(error) or type(error).__name__).splitlines()
            text = f"FAIL {check.__name__}: {type(error).__name__}: {lines[0] if lines else ''}"
            if not isinstance(error, (AssertionError, octet.Error)):
                import traceback
                traceback.print_exc()
        print(f"{text}  ({time.monotonic() - start:.1f} s)", flush=True)
    return failed


# ---- times

CYCLES_A_SECOND = 2e9  # at least those of the clock that _sleep counts


def median_ms(step, warm=5, most=20, seconds=4.0):
    """Of steps queued behind other work, as a step is behind the backward pass: the host's part shows only where it takes longer."""
    host = 0.0
    for _ in range(warm):
        torch.cuda.synchronize()
        start = time.monotonic()
        step()
        host = time.monotonic() - start
    times, begin = [], time.monotonic()
    while len(times) < most and (len(times) < 5 or time.monotonic() - begin < seconds):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(int((2 * host + 2e-4) * CYCLES_A_SECOND))
        a.record()
        step()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b))
    return statistics.median(times)


def ours(**options):
    return torch.bfloat16, lambda params: AdamW([(f"p{i}", p) for i, p in enumerate(params)], **NUMBERS, **options)


def fused(params):
    return torch.optim.AdamW(params, **NUMBERS, fused=True)


def bitsandbytes_8bit(params):
    import bitsandbytes
    return bitsandbytes.optim.AdamW8bit(params, **NUMBERS)


def torchao_optimizer(name):
    def make(params):
        import torchao.optim
        return getattr(torchao.optim, name)(params, **NUMBERS, bf16_stochastic_round=True)
    return make


def flash(bits):
    def make(params):
        import flashoptim
        return flashoptim.FlashAdamW(params, **NUMBERS, master_weight_bits=bits)
    return make


OURS = {f"octet {master}, {label}": ours(master=master, **options)
        for master in ("bf16_remainder", "bf16_sr")
        for label, options in (("clip off", {"skip_nonfinite": False}), ("clip off, skips NaN", {}), ("clip 1", {"clip": 1.0}))}
OTHERS = {"torch fused, f32": (torch.float32, fused), "torch fused, BF16": (torch.bfloat16, fused),
          "bitsandbytes AdamW8bit": (torch.bfloat16, bitsandbytes_8bit),
          "torchao AdamW8bit": (torch.bfloat16, torchao_optimizer("AdamW8bit")),
          "torchao AdamWFp8": (torch.bfloat16, torchao_optimizer("AdamWFp8")),
          "FlashAdamW 24 bits": (torch.bfloat16, flash(24)), "FlashAdamW 16 bits": (torch.bfloat16, flash(None))}
MODULES = {"bitsandbytes": "bitsandbytes", "torchao": "torchao", "FlashAdamW": "flashoptim"}


def measure(label, shape):
    """One optimizer on one shape, in a process that may be ended."""
    dtype, make = {**OURS, **OTHERS}[label]
    params = parameters(SHAPES[shape](), dtype)
    n = sum(p.numel() for p in params)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    optimizer = make(params)
    optimizer.step()
    torch.cuda.synchronize()
    state = (torch.cuda.memory_allocated() - before) / n
    ms = median_ms(optimizer.step)
    start = time.perf_counter()
    optimizer.step()
    host = (time.perf_counter() - start) * 1e6 / len(params)
    torch.cuda.synchronize()
    return {"shape": shape, "optimizer": label, "ms": ms, "G/s": n / ms / 1e6, "state": state, "host us": host}


def line(result):
    if "error" in result:
        return f"{result['shape']:18} {result['optimizer']:38} {result['error']}"
    return (f"{result['shape']:18} {result['optimizer']:38} {result['ms']:8.3f} ms {result['G/s']:7.1f} G/s "
            f"{result['state']:7.4f} B/parameter  host {result['host us']:6.2f} us a tensor")


def in_a_process(label, shape, seconds):
    command = [sys.executable, __file__, "--one", label, shape]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(1.0, seconds))
    except subprocess.TimeoutExpired:
        return {"shape": shape, "optimizer": label, "error": f"not done in {seconds:.0f} s"}
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    return {"shape": shape, "optimizer": label, "error": (done.stderr.strip().splitlines() or ["failed"])[-1][:150]}


def is_there(label):
    module = next((module for name, module in MODULES.items() if label.startswith(name)), None)
    import importlib.util
    return module is None or importlib.util.find_spec(module) is not None


def run_times(deadline):
    results = []
    for shape in SHAPES:
        for label in OURS:
            try:
                results.append(measure(label, shape))
            except (octet.Error, torch.cuda.OutOfMemoryError) as error:
                results.append({"shape": shape, "optimizer": label, "error": str(error).splitlines()[0]})
            print(line(results[-1]), flush=True)
            gc.collect()
            torch.cuda.empty_cache()
    for shape in SHAPES:
        for label in OTHERS:
            if not is_there(label):
                print(f"{shape:18} {label:38} not installed")
            elif time.monotonic() > deadline:
                print(f"{shape:18} {label:38} no time left")
            else:
                results.append(in_a_process(label, shape, min(60.0, deadline + 15 - time.monotonic())))
                print(line(results[-1]), flush=True)
    return results


def graphed(params, **options):
    """GPU time of a step in a CUDA graph, and host time of a step outside."""
    optimizer = AdamW([(f"p{i}", p) for i, p in enumerate(params)], **NUMBERS, **options)
    optimizer.step()
    torch.cuda.synchronize()
    host = []
    for _ in range(20):
        start = time.perf_counter()
        optimizer.step()
        host.append((time.perf_counter() - start) * 1e6)
        torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    return median_ms(graph.replay, warm=10, most=50) * 1e3, statistics.median(host)


def run_many():
    results = []
    for master in ("bf16_remainder", "bf16_sr"):
        for label, options in (("clip off", {"skip_nonfinite": False}), ("clip 1", {"clip": 1.0})):
            many, host = graphed(parameters([(4096,)] * 1000), master=master, **options)
            one, host_one = graphed(parameters([(4096 * 1000,)]), master=master, **options)
            results.append({"master": master, "options": label, "many us": many, "one us": one, "host us": host / 1000})
            print(f"1000 x 4096, {master}, {label}: {many:.1f} us, one tensor {one:.1f} us ({many / one:.2f} x); host "
                  f"{host / 1000:.3f} us a tensor (one tensor: {host_one:.0f} us a step)", flush=True)
    params = parameters([(4096,)] * 1000)
    optimizer = AdamW(params, **NUMBERS, skip_nonfinite=False)
    host = []
    for step in range(12):
        for p in params:
            p.grad = p.grad.clone()
        torch.cuda.synchronize()
        start = time.perf_counter()
        optimizer.step()
        host.append((time.perf_counter() - start) * 1e3)
    print(f"1000 x 4096, new gradients in every step: host {statistics.median(host[2:]):.3f} us a tensor", flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["check", "time", "many"], action="append")
    parser.add_argument("--seconds", type=float, default=140, help="after these no measurement is begun")
    parser.add_argument("--one", nargs=2, metavar=("OPTIMIZER", "SHAPE"), help="one measurement, as JSON")
    parser.add_argument("--out", help="results as JSON")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench_optimizer: expected a GPU that PyTorch can use, got none")
    if args.one:
        return print(json.dumps(measure(*args.one)))
    parts, results = args.only or ["check", "many", "time"], {}
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}", flush=True)
    failed = run_checks() if "check" in parts else 0
    if "many" in parts:
        results["many"] = run_many()
    if "time" in parts:
        results["time"] = run_times(START + args.seconds - 20)
    if args.out:
        Path(args.out).write_text(json.dumps(results, indent=1))
    print(f"{time.monotonic() - START:.0f} s")
    if failed:
        sys.exit(f"bench_optimizer: {failed} checks failed")


if __name__ == "__main__":
    main()
