#!/usr/bin/env python3
"""octet.torch.coat under FSDP2: bits of one process, and time and kept activations of a step beside BF16's. Needs PyTorch.

  torchrun --nproc-per-node 2 tools/torch_coat_ranks.py --data FILE [--systems coat,bf16,float8] [--device cpu --hidden 64 ...]

bits: --bit-steps steps of a model with --bit-layers layers of Qwen2.5-1.5B's shape, by all ranks with shards of whole layers
and by each rank alone, which adds the gradients of all ranks' rows and divides. Sums between layers are rounded first in both,
attention's backward pass adds in one order, and moments are F32: in 8 bits a group's amax is rounded by bits that are drawn by its
place in the shard. Losses, gradients, weights behind the steps: how many are equal to the bit.
steps: each system in turn on --layers layers and --batch rows of --seq tokens a rank, layers and head compiled, shards of whole
layers: median ms of the steps behind the third with octet.optim.AdamW, tokens/s a rank, bytes allocated behind the forward pass beyond
what was before (logits too), most in forward and backward, losses. Rank 0 prints; --json FILE takes the same figures.
"""
import argparse
import json
import os
import statistics
import time

import octet.torch
import torch
import torch.distributed as dist
import transformers
from torch.distributed.fsdp import fully_shard
from torch_models import config, rows_of

began = time.perf_counter()


def say(words):
    if dist.get_rank() == 0:
        print(f"{words}   ({time.perf_counter() - began:.0f} s)", flush=True)


def made(options, n_layers, is_coat):
    options.layers = n_layers
    torch.manual_seed(1)
    with torch.device(options.device):
        model = transformers.Qwen2ForCausalLM(config(options)).to(torch.bfloat16)
    return octet.torch.coat(model) if is_coat else model


def sharded(model):
    for layer in model.model.layers:
        fully_shard(layer)
    return fully_shard(model)


def apart(model):
    """Inputs of layers are other tensors than the layers before gave, as between shards."""
    for layer in model.model.layers:
        layer.register_forward_hook(lambda module, inputs, output: output.view_as(output))
    return model


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def optimizer_of(model, state="e4m3+x"):
    return octet.optim.AdamW(octet.optim.parameter_groups(model, weight_decay=0.1), lr=3e-4, betas=(0.9, 0.95), state=state, seed=1)


def check_bits(options, rows, rank, ranks):
    """Figures of both runs. Rows of a step: each rank's own; the run of one process reads all of them, rank after rank."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    whole_model = apart(made(options, options.bit_layers, True))
    shards = sharded(made(options, options.bit_layers, True))
    optimizers = [optimizer_of(model, "f32") for model in (shards, whole_model)]
    n, seq, found = options.bit_batch, min(options.seq, options.bit_seq), {"steps": options.bit_steps, "losses": [], "losses_alone": []}
    equal, n_tensors = 0, 0
    for step in range(options.bit_steps):
        own = [rows[(step * ranks + r) * n : (step * ranks + r + 1) * n, :seq].to(options.device) for r in range(ranks)]
        loss = shards(input_ids=own[rank], labels=own[rank]).loss
        loss.backward()
        losses = [torch.zeros_like(loss) for _ in range(ranks)]
        dist.all_gather(losses, loss.detach())
        alone = []
        for ids in own:
            loss = whole_model(input_ids=ids, labels=ids).loss
            loss.backward()
            alone.append(loss.item())
        for a, b in zip(shards.parameters(), whole_model.parameters()):
            b.grad.div_(ranks)
            equal += torch.equal(whole(a.grad), b.grad)
            n_tensors += 1
        found["losses"].append([x.item() for x in losses])
        found["losses_alone"].append(alone)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    pairs = [(a, b) for x, y in zip(found["losses"], found["losses_alone"]) for a, b in zip(x, y)]
    weights = [torch.equal(whole(a), b) for a, b in zip(shards.parameters(), whole_model.parameters())]
    found |= {"losses_equal": f"{sum(a == b for a, b in pairs)} of {len(pairs)}",
              "largest_relative_difference": max(abs(a - b) / b for a, b in pairs),
              "gradients_equal": f"{equal} of {n_tensors}", "weights_equal": f"{sum(weights)} of {len(weights)}"}
    torch.use_deterministic_algorithms(False)
    return found


class Turn:
    """A system's steps on this rank."""

    def __init__(self, name, options, rows, rank):
        self.options, self.rows, self.rank = options, rows, rank
        model = made(options, options.whole_layers, name == "coat")
        if name == "float8":
            from torchao.float8 import convert_to_float8_training
            convert_to_float8_training(model, module_filter_fn=lambda module, name: "lm_head" not in name)
        if not options.eager:
            for layer in model.model.layers:
                layer.compile()
        self.model = sharded(model)
        self.optimizer = optimizer_of(self.model)

    def allocated(self, is_peak=False):
        if self.options.device == "cpu":
            return 0
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() if is_peak else torch.cuda.memory_allocated()

    def loss(self, i):
        n, ranks = self.options.batch, dist.get_world_size()
        ids = self.rows[torch.arange((i * ranks + self.rank) * n, (i * ranks + self.rank + 1) * n) % len(self.rows)]
        ids = ids.to(self.options.device)
        return self.model(input_ids=ids, labels=ids).loss

    def measure(self):
        times, losses = [], []
        for i in range(self.options.steps):
            self.allocated()
            start = time.perf_counter()
            loss = self.loss(i)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.allocated()
            times.append(1e3 * (time.perf_counter() - start))
            dist.all_reduce(loss.detach())
            losses.append(loss.item() / dist.get_world_size())
        if self.options.device != "cpu":
            torch.cuda.reset_peak_memory_stats()
        before = self.allocated()
        loss = self.loss(0)
        kept = self.allocated() - before
        loss.backward()
        peak = self.allocated(is_peak=True) - before
        ms = statistics.median(times[3:])
        return {"ms": round(ms, 1), "tokens_per_s_a_rank": round(self.options.batch * self.options.seq / ms * 1e3), "kept_bytes": kept,
                "peak_bytes": peak, "loss_first": round(losses[0], 4), "loss_last": round(losses[-1], 4)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--systems", default="coat,bf16")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    for name, default in (("steps", 12), ("batch", 8), ("seq", 2048), ("layers", 28), ("hidden", 1536), ("vocab", 151936), ("bit-layers", 4),
                          ("bit-steps", 3), ("bit-batch", 2), ("bit-seq", 1024)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    parser.add_argument("--seconds", type=float, default=1e9, help="no system begins after them")
    parser.add_argument("--json")
    options = parser.parse_args()
    options.whole_layers = options.layers
    if options.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if options.device == "cuda" else "gloo")
    rank, ranks, rows = dist.get_rank(), dist.get_world_size(), rows_of(options)
    found = {"ranks": ranks, "torch": torch.__version__, "transformers": transformers.__version__}
    if options.bit_steps > 0:
        found["bits"] = check_bits(options, rows, rank, ranks)
        say(f"bits: {found['bits']}")
    for name in options.systems.split(",") if options.steps > 3 else []:
        late = torch.tensor(float(time.perf_counter() - began > options.seconds), device=options.device)
        dist.all_reduce(late)
        if late.item() > 0:
            say(f"{name}: left out, no time")
            continue
        found[name] = Turn(name, options, rows, rank).measure()
        say(f"{name}: {found[name]}")
        if options.device == "cuda":
            torch.cuda.empty_cache()
    if options.json and rank == 0:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
