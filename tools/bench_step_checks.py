#!/usr/bin/env python3
"""What octet.optim.AdamW's comparing of parameters, gradients and states costs a step.

    tools/bench_step_checks.py [--device cpu|cuda] [--tensors 1000] [--elements 4096] [--steps 60]

Steps with and without the comparing alternate in one process: medians of the time that the call takes (host) and of the time until
its work is done (step). `new`: every step has gradients at other addresses. Wants PyTorch, the package octet on the path and, for
CUDA, the module (OCTET_CUDA_MODULE).
"""

import argparse
import statistics
import time

import torch

from octet import optim


def nothing():
    pass


class Bench:
    def __init__(self, args):
        make = {"dtype": torch.bfloat16, "device": args.device}
        self.params = [torch.nn.Parameter(torch.randn(args.elements, **make) * 0.02) for _ in range(args.tensors)]
        self.gradients = [[torch.randn(args.elements, **make) * 1e-3 for _ in self.params] for _ in range(2)]
        self.optimizer = optim.AdamW(self.params)
        self.wait = torch.cuda.synchronize if args.device == "cuda" else nothing
        # What the CPU's caches hold of a step is gone before the next one, as behind a backward pass.
        self.others = torch.zeros(1 << 23)
        self.give(0)
        for _ in range(5):
            self.optimizer.step()
        self.steps = self.optimizer._steps()

    def give(self, turn):
        for p, gradient in zip(self.params, self.gradients[turn % 2]):
            p.grad = gradient

    def timed(self, is_checked):
        """(host, step) in ms. Unchecked: what stands there was found before the clock started."""
        optimizer, plan = self.optimizer, self.steps._plan
        if not is_checked:
            params = optimizer._present()
            found = plan.find(params, optimizer.state)
            optimizer._present, plan.find = lambda: params, lambda *_: found
        self.others.add_(1)
        self.wait()
        start = time.perf_counter()
        optimizer.step()
        host = time.perf_counter()
        self.wait()
        done = time.perf_counter()
        if not is_checked:
            del optimizer._present, plan.find
        return (host - start) * 1e3, (done - start) * 1e3

    def run(self, is_new, count):
        times = {True: [], False: []}
        for turn in range(count):
            for is_checked in (True, False) if turn % 2 else (False, True):
                if is_new:
                    self.give(turn + is_checked)
                times[is_checked].append(self.timed(is_checked))
        medians = {key: [statistics.median(column) for column in zip(*rows)] for key, rows in times.items()}
        return *medians[True], *medians[False]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--tensors", type=int, default=1000)
    parser.add_argument("--elements", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    bench = Bench(args)
    print(f"{args.device}, PyTorch {torch.__version__}, {args.tensors} BF16 tensors of {args.elements}: ms")
    for is_new in (False, True):
        host, step, bare_host, bare_step = bench.run(is_new, args.steps)
        print(f"{'new gradients' if is_new else 'same gradients'}: host {host:.3f}, without checks {bare_host:.3f}; "
              f"step {step:.3f}, without {bare_step:.3f}; checks {1e3 * (step - bare_step):.0f} us, {100 * (step / bare_step - 1):.2f} % of a step")


if __name__ == "__main__":
    main()
