"""FSDP2 on two processes of the CPU: every rank steps its shards, and the run is that of one process. Needs PyTorch."""

import importlib.util
import math
import os
import tempfile

import octet
import pytest

torch = pytest.importorskip("torch", reason="octet.optim needs PyTorch")
pytest.importorskip("torch.distributed.tensor", reason="needs PyTorch's distributed tensors")
fsdp = pytest.importorskip("torch.distributed.fsdp", reason="needs FSDP")
if not hasattr(fsdp, "fully_shard") or not torch.distributed.is_gloo_available():
    pytest.skip("needs fully_shard and gloo", allow_module_level=True)

RANKS, STEPS, FIRST = 2, 6, 3
OPTIONS = {"lr": 1e-2, "betas": (0.9, 0.95), "weight_decay": 0.1, "seed": 3}


def model(dtype=torch.float32):
    """Shards of its weights are whole groups of 128 elements; of the last layer the second rank has nothing."""
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 256), torch.nn.GELU(),
                               torch.nn.Linear(256, 1)).to(dtype)


def gradients(net, step, flaw=False):
    """Whole gradients, the same in every process."""
    generator = torch.Generator().manual_seed(100 + step)
    result = [torch.randn(p.shape, generator=generator) for p in net.parameters()]
    if flaw:
        result[0][-1, -1] = math.nan  # the last rank alone has it
    return result


def give(net, values, mesh=None):
    for p, gradient in zip(net.parameters(), values):
        gradient = gradient.to(p.dtype)
        if mesh is not None:
            gradient = torch.distributed.tensor.distribute_tensor(gradient, mesh, p.placements)
        p.grad = gradient


def whole_run(options, dtype, flaw_at):
    net = model(dtype)
    optimizer = octet.optim.AdamW(net.named_parameters(), **OPTIONS, **options)
    norms = []
    for step in range(STEPS):
        give(net, gradients(net, step, step == flaw_at))
        optimizer.step()
        norms.append(optimizer.grad_norm)
    return net, optimizer, norms


def shard(net, mesh):
    fsdp.fully_shard(net, mesh=mesh)
    return net


def check_sharded_run(mesh, rank, options, dtype, flaw_at, is_exact):
    whole, one, norms = whole_run(options, dtype, flaw_at)
    net = shard(model(dtype), mesh)
    optimizer = octet.optim.AdamW(net.named_parameters(), **OPTIONS, **options)
    for step in range(STEPS):
        if step == FIRST:  # the rest is done by another optimizer, from the stored state of this rank
            with tempfile.TemporaryFile() as file:
                torch.save(optimizer.state_dict(), file)
                file.seek(0)
                stored = torch.load(file, weights_only=True)
            optimizer = octet.optim.AdamW(net.named_parameters(), **OPTIONS, **options)
            optimizer.load_state_dict(stored)
        give(net, gradients(net, step, step == flaw_at), mesh)
        optimizer.step()
        assert optimizer.skipped == (step == flaw_at), (rank, step)
        if step != flaw_at:
            assert abs(optimizer.grad_norm / norms[step] - 1) < 1e-12, (rank, step)
    assert optimizer.counts["applied"] + FIRST == STEPS - (flaw_at >= FIRST)
    for (name, p), q in zip(net.named_parameters(), whole.parameters()):
        shard_of_whole = torch.distributed.tensor.distribute_tensor(q.detach(), mesh, p.placements).to_local()
        if is_exact:
            assert torch.equal(p.to_local().detach(), shard_of_whole), name
        else:
            assert torch.allclose(p.to_local().float(), shard_of_whole.float(), rtol=0.05, atol=1e-3), name


def check_training(mesh, rank):
    """Forward, backward and step as FSDP2 does them: the ranks' batches together are one process's."""
    losses = []
    for is_sharded in (False, True):
        net = shard(model(), mesh) if is_sharded else model()
        optimizer = octet.optim.AdamW(net.named_parameters(), **OPTIONS, state="f32", clip=1.0)
        for step in range(STEPS):
            x = torch.randn(8, 128, generator=torch.Generator().manual_seed(step))
            x = x.chunk(RANKS)[rank] if is_sharded else x
            loss = (net(x) - x.sum(1, keepdim=True).sin()).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if is_sharded:
                loss = loss.detach() / RANKS
                torch.distributed.all_reduce(loss)
            losses.append(float(loss))
    for one, other in zip(losses[:STEPS], losses[STEPS:]):
        assert abs(one - other) < 1e-4 * one, losses


def exchange(optimizer, net, mesh):
    """What Accelerator._prepare_fsdp2 does to an optimizer that was made before the model is sharded; accelerate itself does so
    on GPUs alone."""
    before = {name: p.data_ptr() for name, p in net.named_parameters()}
    for group in optimizer.param_groups:
        for i, p in enumerate(group["params"]):
            group["params"][i] = torch.empty(1, dtype=p.dtype)
            group["params"][i].data_ptr = p.data_ptr()
    shard(net, mesh)
    mapping = {before[name]: p for name, p in net.named_parameters()}
    fsdp_utils = pytest.importorskip("accelerate.utils.fsdp_utils")
    fsdp_utils.fsdp2_switch_optimizer_parameters(optimizer, mapping)


def check_exchanged_parameters(mesh, rank, make, had_steps=False, is_exact=True):
    """An optimizer whose parameters are exchanged for sharded ones trains as one that is made afterwards."""
    losses = []
    for is_exchanged in (True, False):
        net = model()
        if is_exchanged:
            optimizer = make(net)
            if had_steps:  # its states belong to the whole parameters, which go
                give(net, [torch.zeros_like(p) for p in net.parameters()])
                optimizer.step()
                optimizer.zero_grad()
                net = model()
                for group, params in zip(optimizer.param_groups, [list(net.parameters())]):
                    group["params"] = params
            exchange(optimizer, net, mesh)
        else:
            optimizer = make(shard(net, mesh))
        x = torch.randn(8, 128, generator=torch.Generator().manual_seed(0)).chunk(RANKS)[rank]
        for _ in range(STEPS):
            loss = (net(x) - x.sum(1, keepdim=True).sin()).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
        assert sorted(map(len, (optimizer.state[p] for p in net.parameters() if p in optimizer.state)))[0] > 0
    are_equal = all(abs(a - b) <= (0 if is_exact else 1e-3 * a) for a, b in zip(losses[:STEPS], losses[STEPS:]))
    assert are_equal and losses[STEPS - 1] < 0.9 * losses[0], losses
    return losses[:STEPS]


def check_exchanges(mesh, rank):
    theirs = check_exchanged_parameters(mesh, rank, lambda net: torch.optim.AdamW(net.parameters(), lr=1e-3))
    for options in ({"state": "f32"}, {"state": "e4m3+x", "clip": 10.0}, {"state": "e4m3_sr+x"}):
        ours = check_exchanged_parameters(
            mesh, rank, lambda net, options=options: octet.optim.AdamW(net.named_parameters(), lr=1e-3, **options),
            is_exact=options["state"] == "f32")
        if options["state"] == "f32":
            assert all(abs(a - b) < 1e-4 * a for a, b in zip(theirs, ours)), (theirs, ours)
    check_exchanged_parameters(mesh, rank, lambda net: octet.optim.AdamW(net.named_parameters(), lr=1e-3), had_steps=True,
                               is_exact=False)


def work(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=RANKS)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (RANKS,))
        # Without a norm elements do not know of each other but in groups of 8-bit states, whose amax rounds by bits that are drawn by the
        # place in the shard.
        check_sharded_run(mesh, rank, {"state": "f32"}, torch.float32, -1, True)
        check_sharded_run(mesh, rank, {"state": "bf16", "clip": 1e9}, torch.bfloat16, -1, True)
        check_sharded_run(mesh, rank, {"state": "e4m3+x", "clip": 1e9}, torch.bfloat16, -1, False)
        check_sharded_run(mesh, rank, {"state": "e4m3+x", "master": "bf16_sr"}, torch.bfloat16, 4, False)
        check_sharded_run(mesh, rank, {"state": "e4m3+x", "clip": 1.0}, torch.float32, 4, False)
        check_training(mesh, rank)
        if importlib.util.find_spec("accelerate"):
            check_exchanges(mesh, rank)
    finally:
        torch.distributed.destroy_process_group()


def test_two_ranks_step_their_shards_as_one_process_steps_the_whole(tmp_path):
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.multiprocessing.spawn(work, args=(str(tmp_path),), nprocs=RANKS)
