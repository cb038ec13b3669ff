"""octet.torch.coat on models of transformers: a run's bits, and what a model must bear. Needs PyTorch and transformers."""

import copy
import functools
import io
import json
import os
import pickle
import socket
import subprocess
import sys
import warnings

import octet
import pytest

torch = pytest.importorskip("torch", reason="octet.torch needs PyTorch")
transformers = pytest.importorskip("transformers", minversion="5.0", reason="needs transformers")
import octet.torch as ot  # noqa: E402

bf16 = torch.bfloat16
SIZES = {"hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "vocab_size": 256, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
IDS = torch.randint(0, 256, (2, 32), generator=torch.Generator().manual_seed(1))
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def plain(family="Llama", dtype=bf16, **given):
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **given})
    return getattr(transformers, f"{family}ForCausalLM")(config).to(dtype)


@pytest.fixture
def model():
    return ot.coat(plain())


def step(model, ids=IDS):
    """The loss and all gradients."""
    model.zero_grad()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def equal(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))


def apart(model):
    """Inputs of layers are other tensors than the layers before gave."""
    for layer in model.model.layers:
        layer.register_forward_hook(lambda module, inputs, output: output.view_as(output))


def distance(a, b):
    return ((a.float() - b.float()).norm() / b.float().norm()).item()


def classes(model):
    return [type(module) for module in model.modules()]


@pytest.mark.parametrize("recipe", ["coat", "coat-block"])
@pytest.mark.parametrize("family, given", [("Llama", {"attention_bias": True, "mlp_bias": True}), ("Mistral", {}), ("Qwen2", {}),
                                           ("Qwen3", {"head_dim": 16}), ("SmolLM3", {"tie_word_embeddings": False})])
def test_families_learn_as_the_plain_model(family, given, recipe):
    reference = plain(family, **given)
    ours = ot.coat(copy.deepcopy(reference), recipe)
    assert [*ours.state_dict()] == [*reference.state_dict()]
    got, expected = step(ours), step(reference)
    assert abs(got[0] - expected[0]) < 5e-3 and not equal(got, expected)
    assert max(distance(a, b) for a, b in zip(got[1:], expected[1:]) if b.norm() > 1e-3) < 0.25


def test_saves_and_loads_as_before(model, tmp_path):
    reference = plain()
    model.save_pretrained(tmp_path / "ours")
    reference.save_pretrained(tmp_path / "plain")
    names = sorted(os.listdir(tmp_path / "ours"))
    assert names == sorted(os.listdir(tmp_path / "plain"))
    assert all((tmp_path / "ours" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes() for name in names)
    reference.load_state_dict(model.state_dict())
    assert type(model).__name__ == "LlamaForCausalLM" and type(model.model.layers[0]).__name__ == "LlamaDecoderLayer"
    assert isinstance(model.model.layers[0].mlp, type(reference.model.layers[0].mlp))


def test_copies_are_whole(model):
    expected = step(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)):
        assert equal(step(other), expected)
        first, link = other.model.layers[0], other.model.layers[0].input_layernorm._octet
        assert link.linears == (first.self_attn.q_proj, first.self_attn.k_proj, first.self_attn.v_proj)


def test_three_steps_have_the_bits_of_a_run(tmp_path, program, monkeypatch):
    """With attention, embedding, head and loss by the program's ops: every loss, weight, master and moment."""
    import octet_parts
    from safetensors.torch import load_file
    model = plain()
    model.save_pretrained(tmp_path / "model")
    text = bytes(torch.randint(97, 123, (300,), generator=torch.Generator().manual_seed(5)).tolist())
    (tmp_path / "text").write_bytes(text)
    run = list(octet.train({
        "model": {"path": str(tmp_path / "model"), "seq": 32}, "recipe": "coat", "out": str(tmp_path / "run"),
        "data": {"train": [str(tmp_path / "text")], "tokenizer": "bytes", "shuffle": False},
        "optim": {"lr": 1e-3, "schedule": "constant", "warmup": 0, "betas": [0.9, 0.95], "weight_decay": 0.1},
        "train": {"steps": 3, "batch": 2, "seed": 1}}))
    octet_parts.give_parts(model, monkeypatch)
    ot.coat(model)
    optimizer = octet.optim.AdamW(octet.optim.parameter_groups(model, weight_decay=0.1), lr=1e-3, betas=(0.9, 0.95), clip=1.0, seed=1)
    for i, theirs in enumerate(run):
        rows = torch.tensor([list(text[32 * n: 32 * n + 33]) for n in (2 * i, 2 * i + 1)])
        loss = octet_parts.loss(model(input_ids=rows[:, :-1]).logits.view(-1, 256), rows[:, 1:].reshape(-1))
        loss.backward()
        assert loss.item() == theirs["loss"]
        optimizer.step()
        optimizer.zero_grad()
    folder = tmp_path / "run" / "ckpt" / "step-000003"
    weights, states = load_file(folder / "model.safetensors"), load_file(folder / "optim.safetensors")
    for name, p in model.named_parameters():
        assert torch.equal(p.detach(), weights[name]), name
        assert torch.equal(optimizer.state[p]["exp_avg"].view(torch.uint8), states[f"adam_m:{name}"].view(torch.uint8)), name
        assert torch.equal(optimizer.state[p]["master"], states[f"master:{name}"]), name


def test_checkpointed_layers_have_the_same_bits(model):
    from torch.utils.checkpoint import checkpoint
    expected, got = step(model), []
    for reentrant in (False, True):
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        got.append(step(model))
    model.gradient_checkpointing_disable()
    by_hand = copy.deepcopy(model)
    for layer in by_hand.model.layers:
        layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)
    assert equal(step(by_hand), expected)
    apart(model)
    assert equal(got[0], step(model)) and equal(got[1], got[0]) and got[0][0] == expected[0]


def test_no_sum_outlives_its_norm(model):
    kept = []
    model.model.norm.register_forward_pre_hook(lambda module, inputs: kept.append(inputs[0]))
    model(input_ids=IDS)
    assert not hasattr(kept[0], "_octet_sum")


def test_gradients_accumulate(model):
    expected = step(model)
    model(input_ids=IDS, labels=IDS).loss.backward()
    assert all(torch.equal(p.grad, 2 * g) for p, g in zip(model.parameters(), expected[1:]))


def test_evaluation_has_the_same_bits(model):
    expected = model(input_ids=IDS).logits
    model.eval()
    with torch.no_grad():
        assert torch.equal(model(input_ids=IDS).logits, expected)
    with torch.inference_mode():
        assert torch.equal(model(input_ids=IDS).logits, expected)
    text = model.generate(IDS[:1, :8], max_new_tokens=4, do_sample=False)
    assert text.shape == (1, 12)
    assert all(link._made is None and link.residual is None for link in links(model))  # no tensor stays behind


def links(model):
    return [module._octet for module in model.modules() if hasattr(getattr(module, "_octet", None), "linears")]


def test_autocast_of_a_float32_model():
    model = ot.coat(plain(dtype=torch.float32))
    with torch.autocast("cpu", bf16):
        loss = model(input_ids=IDS, labels=IDS).loss
    loss.backward()
    assert {p.grad.dtype for p in model.parameters()} == {torch.float32}
    assert abs(loss - plain(dtype=torch.float32)(input_ids=IDS, labels=IDS).loss) < 5e-3


def test_hooks_see_every_value(model):
    expected, seen = step(model), [{}, {}]
    reference = plain()
    for which, net in enumerate((model, reference)):
        for name, module in net.model.layers[0].named_modules():
            module.register_forward_hook(lambda module, inputs, output, name=name, seen=seen[which]: seen.__setitem__(
                name, output[0] if isinstance(output, tuple) else output))
    assert equal(step(model), expected)
    reference(input_ids=IDS)
    assert seen[0].keys() == seen[1].keys() and len(seen[0]) == 13
    for name, value in seen[1].items():
        assert seen[0][name].dtype == value.dtype and distance(seen[0][name], value) < 0.1


def test_hooks_on_gradients_take_linears_apart_and_say_so(model):
    expected, seen = step(model), []
    layer = model.model.layers[0]
    for module in (layer.self_attn.k_proj, layer.mlp.down_proj, layer):
        module.register_full_backward_hook(lambda module, dx, dy: seen.append((dx[0].shape, dy[0].shape)))
    with pytest.warns(UserWarning, match="one of q_proj, k_proj, v_proj has a hook on its gradients: it is quantized by itself"):
        got = step(model)
    assert [dx[-1] for dx, _ in seen] == [176, 64, 64] and not equal(got, expected)
    assert max(distance(a, b) for a, b in zip(got[1:], expected[1:])) < 0.2


def hook_on(module, seen):
    """On the gradient of what it gives, as FullyShardedDataParallel has them."""
    module.register_forward_hook(lambda module, inputs, output: output.register_hook(seen.append) and None)


def test_hooks_on_gradients_of_values_see_the_whole_gradient(model):
    reference, expected = plain(), step(model)
    seen = [[], []]
    for net, own in zip((model, reference), seen):
        layer = net.model.layers[0]
        hook_on(layer, own)
        hook_on(layer.post_attention_layernorm, own)
        layer.input_layernorm.register_forward_hook(lambda module, inputs, output: output.retain_grad())
    with pytest.warns(UserWarning, match="one that has a hook on its gradient"):
        got = step(model)
    step(reference)
    assert len(seen[0]) == len(seen[1]) == 2
    assert max(distance(a, b) for a, b in zip(*seen)) < 0.2
    assert max(distance(a, b) for a, b in zip(got[1:], expected[1:])) < 0.2


def test_values_that_hooks_change_are_read(model):
    """In place, or as new tensors: of a norm, and of a layer, whose sum the next norm would take as its addends."""
    reference = plain()
    for net in (model, reference):
        layers = net.model.layers
        layers[0].register_forward_hook(lambda module, inputs, output: output.mul_(2))
        layers[0].post_attention_layernorm.register_forward_hook(lambda module, inputs, output: output.mul_(2))
        layers[1].input_layernorm.register_forward_hook(lambda module, inputs, output: output * 0)
    with pytest.warns(UserWarning, match="was called with another input"):
        got = step(model)
    expected = step(reference)
    assert abs(got[0] - expected[0]) < 5e-3 and distance(got[1], expected[1]) < 0.25


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode", "compiled"])
@pytest.mark.parametrize("path, change", [
    ("post_attention_layernorm", lambda module: module.register_forward_hook(lambda module, inputs, output: (output.add_(1), None)[1])),
    ("self_attn.q_proj", lambda module: module.register_forward_pre_hook(lambda module, inputs: (inputs[0].add_(1), None)[1])),
    ("mlp", lambda module: module.register_forward_pre_hook(lambda module, inputs: (inputs[0].mul_(2), None)[1])),
    ("mlp.down_proj", lambda module: module.register_forward_pre_hook(lambda module, inputs: (inputs[0].mul_(2), None)[1])),
], ids=str)
@pytest.mark.filterwarnings("ignore:octet.torch")
def test_values_that_hooks_change_in_place_are_read_without_gradients(path, change, mode):
    model, reference = ot.coat(plain(tie_word_embeddings=False)).eval(), plain(tie_word_embeddings=False).eval()
    unchanged = reference(IDS).logits
    for net in (model, reference):
        change(net.model.layers[0].get_submodule(path))
    call = torch.compile(model, backend="eager") if mode == "compiled" else model
    with torch.inference_mode() if mode == "inference_mode" else torch.no_grad():
        got, expected = call(IDS).logits, reference(IDS).logits
    assert distance(unchanged, expected) > 0.1 > distance(got, expected)


def test_adapters_of_peft():
    peft = pytest.importorskip("peft", reason="needs PEFT")
    options = {"r": 4, "target_modules": ["q_proj", "v_proj", "gate_proj", "down_proj"], "init_lora_weights": False}
    ours = peft.get_peft_model(ot.coat(plain()), peft.LoraConfig(**options))
    reference = peft.get_peft_model(plain(), peft.LoraConfig(**options))
    reference.load_state_dict(ours.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # no linear is taken apart
        got = step(ours)
    expected = step(reference)
    assert len(got) == len(expected) == 17 and max(distance(a, b) for a, b in zip(got, expected)) < 0.25


def test_frozen_weights_keep_less(model):
    whole = ot.report(model, input_ids=IDS, labels=IDS)
    for name, p in model.named_parameters():
        p.requires_grad_("down_proj" in name)
    part = ot.report(model, input_ids=IDS, labels=IDS)
    assert part.bytes < whole.bytes and len(step(model)) == 3


def test_report_is_of_every_block(model):
    before = classes(model)
    told = ot.report(model, input_ids=IDS, labels=IDS, accuracy=True)
    names = [row.modules for row in told.rows]
    assert classes(model) == before and len(names) == 9 and "model.norm" in names
    assert "model.layers.1.input_layernorm + q_proj + k_proj + v_proj" in names
    rows = {row.modules: row for row in told.rows}
    mlp = rows["model.layers.0.mlp + down_proj"]
    assert mlp.bytes == 2 * 64 * (176 + 2 * 11) + 8 and mlp.plain_bytes == 2 * 4 * 64 * 176
    assert told.bytes < 0.6 * told.plain_bytes and len(told.snr) == 14
    assert all(24 < value < 45 for values in told.snr.values() for value in values)
    with pytest.raises(octet.Error, match="expected a model that coat"):
        ot.report(plain(), IDS)


def test_the_whole_model_compiles_without_a_break(model):
    expected = step(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    got = step(compiled)
    # A compiled graph rounds sums before norms read them.
    assert got[0] == expected[0] and max(distance(a, b) for a, b in zip(got[1:], expected[1:])) < 0.1


def change(path, value):
    def f(model):
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, value)
    return f


def replace_forward(path):
    def f(model):
        module = model.get_submodule(path)
        module.forward = functools.partial(lambda forward, *args, **named: forward(*args, **named), module.forward)
    return f


def share(path, with_path):
    return lambda model: change(path, model.get_submodule(with_path))(model)


class Same(torch.nn.Module):
    def forward(self, x):
        return x


Same.__name__ = "SiLU"


def twice(module):
    """A class of the module's name that does something else."""
    original = type(module)
    return type(original.__name__, (original,), {"__qualname__": f"twice.{original.__name__}",
                                                 "forward": lambda self, *args, **named: 2 * original.forward(self, *args, **named)})


@pytest.mark.parametrize("prepare, words", [
    (lambda model: ot.coat(model), "is converted already"),
    (change("model.layers.1.mlp.act_fn", torch.nn.GELU()), "model.layers.1.mlp.act_fn: expected one of SiLU, SiLUActivation, got GELU"),
    (change("model.layers.1.mlp.act_fn", Same()), "model.layers.1.mlp.act_fn: expected one of SiLU, SiLUActivation, got test_torch_coat.Same"),
    (lambda model: setattr(model.model.layers[1].mlp.act_fn, "forward", abs), "mlp.act_fn: expected the forward pass of SiLU"),
    (lambda model: setattr(model.model.layers[1], "__class__", twice(model.model.layers[1])),
     "model.layers.1: expected LlamaDecoderLayer of transformers, got test_torch_coat.twice"),
    (lambda model: setattr(model.model.layers[1].mlp, "__class__", twice(model.model.layers[1].mlp)),
     "model.layers.1.mlp: expected LlamaMLP of transformers, got test_torch_coat.twice"),
    (change("model.layers.1.input_layernorm", torch.nn.RMSNorm(64).to(bf16)),
     "model.layers.1.input_layernorm: expected LlamaRMSNorm of transformers, got torch.nn.modules.normalization.RMSNorm"),
    (replace_forward("model.layers.1"), "model.layers.1: expected the forward pass of its class"),
    (replace_forward("model.layers.1.mlp"), "model.layers.1.mlp: expected the forward pass of its class"),
    (replace_forward("model.layers.1.input_layernorm"), "model.layers.1.input_layernorm: expected the forward pass of its class"),
    (replace_forward("model.layers.1.self_attn.o_proj"), "model.layers.1.self_attn.o_proj: expected the forward pass of its class"),
    (replace_forward("model.norm"), "model.norm: expected the forward pass of its class"),
    (share("model.layers.1.mlp", "model.layers.0.mlp"), "model.layers.1.mlp.gate_proj: expected a module of its own, got the one of model.layers.0"),
    (share("model.layers.1.self_attn.q_proj", "model.layers.0.self_attn.q_proj"), "expected a module of its own, got the one of model.layers.0"),
    (share("model.layers.1.input_layernorm", "model.layers.1.post_attention_layernorm"), "expected a module of its own"),
    (share("model.norm", "model.layers.1.input_layernorm"), "model.norm: expected a module of its own, got the one of model.layers.1"),
    (change("model.layers.1.mlp.up_proj", ot.Linear(64, 176, False, dtype=bf16)), "up_proj: expected an nn.Linear, got octet.torch._linear.Linear"),
    (lambda model: model.model.layers[1].self_attn.o_proj.double(), "model.layers.1.self_attn.o_proj.weight: expected bfloat16 or float32"),
    (lambda model: model.model.norm.to("meta"), "model.norm.weight: expected a tensor on the CPU or a CUDA device, got one on meta"),
])
def test_coat_refuses_and_changes_nothing(prepare, words):
    model = plain()
    prepare(model)
    before = classes(model)
    with pytest.raises(octet.Error) as caught:
        ot.coat(model)
    assert words in str(caught.value) and classes(model) == before


def test_layers_are_called_as_the_plain_ones():
    model, x = plain(), torch.randn(1, 5, 64, generator=torch.Generator().manual_seed(1)).to(bf16)
    rotation = model.model.rotary_emb(x, torch.arange(5)[None])
    mask, layer = torch.zeros(1, 1, 5, 5, dtype=bf16).masked_fill(torch.ones(5, 5).tril() == 0, float("-inf")), model.model.layers[0]
    calls = [((x,), {"attention_mask": mask, "position_embeddings": rotation}), ((x, mask, None, None, False, rotation), {}),
             ((x, mask), {"position_embeddings": rotation}), ((), {"hidden_states": x, "position_embeddings": rotation, "attention_mask": mask})]
    seen = []
    layer.self_attn.register_forward_pre_hook(lambda module, args, named: seen.append((args, "hidden_states" in named)), with_kwargs=True)
    expected = [layer(*args, **named) for args, named in calls]
    ot.coat(model)
    got = [layer(*args, **named) for args, named in calls]
    assert all(distance(a, b) < 0.01 for a, b in zip(got, expected)) and seen == [((), True)] * 8
    with pytest.raises(TypeError, match="attention_mask"):
        layer(x, mask, attention_mask=mask, position_embeddings=rotation)


def test_layers_that_stand_in_two_places_are_one():
    model = plain()
    model.model.layers[1] = model.model.layers[0]
    other = copy.deepcopy(model)
    got, expected = step(ot.coat(model)), step(other)
    assert abs(got[0] - expected[0]) < 0.005 and all(distance(a, b) < 0.25 for a, b in zip(got[1:], expected[1:]))


def test_a_traced_norm_is_refused(model):
    norm = model.requires_grad_(False).model.norm
    with pytest.raises(octet.Error, match="outside of torch.jit.trace"):
        torch.jit.trace(norm, torch.ones(2, 64, dtype=bf16))


def test_other_models_and_recipes_are_named(monkeypatch):
    with pytest.raises(octet.Error, match="layers of Llama, Mistral, Qwen2, Qwen3, SmolLM3, ViT, Bert, got Linear"):
        ot.coat(torch.nn.Linear(3, 4))
    with pytest.raises(octet.Error, match="recipe: expected one of coat, coat-block, got 'coat-fast'"):
        ot.coat(plain(), "coat-fast")
    model = plain()
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "4.40.1")
    with pytest.raises(octet.Error, match="expected transformers 5 or later, got 4.40.1"):
        ot.coat(model)


def shard_layers():
    """On each of two ranks: two steps of FSDP2, beside those of one process, and whether the bits are equal; shards of a linear."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    torch.distributed.init_process_group("gloo")
    sharded = ot.coat(plain(tie_word_embeddings=False))
    whole = copy.deepcopy(sharded)
    apart(whole)  # as shards are
    mesh = init_device_mesh("cpu", (2,))
    for layer in sharded.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    optimizers = [octet.optim.AdamW(net.named_parameters(), lr=1e-3) for net in (sharded, whole)]
    results = []
    for _ in range(2):
        losses = [step(net)[0] for net in (sharded, whole)]
        results.append(bool(losses[0] == losses[1]) and all(
            torch.equal(a.grad.full_tensor(), b.grad) for a, b in zip(sharded.parameters(), whole.parameters())))
        for optimizer in optimizers:
            optimizer.step()
    refused = ot.coat(plain())
    fully_shard(refused.model.layers[0].self_attn.k_proj, mesh=mesh)
    with pytest.raises(octet.Error, match="k_proj.weight: expected a whole tensor, got a shard"):
        refused(input_ids=IDS)
    print(json.dumps([*results, *wrap_layers()]))
    torch.distributed.destroy_process_group()


def wrap_layers() -> list:
    """The same of FullyShardedDataParallel; parts of layers."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    whole = ot.coat(plain(tie_word_embeddings=False))
    options = {"use_orig_params": True, "device_id": torch.device("cpu")}
    wrapped = FullyShardedDataParallel(copy.deepcopy(whole), auto_wrap_policy=ModuleWrapPolicy([type(whole.model.layers[0])]), **options)
    apart(whole)
    losses = [step(net)[0] for net in (wrapped, whole)]
    with FullyShardedDataParallel.summon_full_params(wrapped, with_grads=True):
        are_equal = bool(losses[0] == losses[1]) and all(torch.equal(a.grad, b.grad) for a, b in zip(wrapped.parameters(), whole.parameters()))
    for name in ("self_attn", "mlp"):
        part = ot.coat(plain())
        policy = ModuleWrapPolicy([type(getattr(part.model.layers[0], name))])
        for use_orig_params in (False, True):
            refused = FullyShardedDataParallel(copy.deepcopy(part), auto_wrap_policy=policy, **{**options, "use_orig_params": use_orig_params})
            with pytest.raises(octet.Error, match=r"_proj.weight: expected a whole tensor .*wrap whole layers"):
                refused(input_ids=IDS)
    return [are_equal]


def test_shards_on_two_ranks_have_the_bits_of_one():
    fsdp = pytest.importorskip("torch.distributed.fsdp", reason="needs FSDP")
    if not hasattr(fsdp, "fully_shard") or not torch.distributed.is_gloo_available():
        pytest.skip("needs fully_shard and gloo")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = [subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={
        **os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"})
        for rank in range(2)]
    for rank in ranks:
        out, error = rank.communicate(timeout=120)
        assert rank.returncode == 0, error[-2000:]
        assert json.loads(out.splitlines()[-1]) == [True, True, True]


if __name__ == "__main__":
    shard_layers()
