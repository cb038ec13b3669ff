"""octet.torch.coat on ViT and BERT of transformers. Needs PyTorch and transformers."""

import copy
import warnings

import octet
import pytest

torch = pytest.importorskip("torch", reason="octet.torch needs PyTorch")
transformers = pytest.importorskip("transformers", minversion="5.0", reason="needs transformers")
import octet.torch as ot  # noqa: E402

bf16 = torch.bfloat16
SIZES = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_dropout_prob": 0.0,
         "attention_probs_dropout_prob": 0.0}
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3)).to(bf16)


def vit(**given):
    torch.manual_seed(0)
    config = transformers.ViTConfig(**{**SIZES, "image_size": 32, "patch_size": 8, "num_labels": 10, **given})
    return transformers.ViTForImageClassification(config).to(bf16), {"pixel_values": random(4, 3, 32, 32), "labels": torch.arange(4)}


def bert(**given):
    torch.manual_seed(0)
    config = transformers.BertConfig(**{**SIZES, "vocab_size": 256, "max_position_embeddings": 64, **given})
    ids = torch.randint(0, 256, (3, 24), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(24) < torch.tensor([[24], [20], [9]])).long()
    return transformers.BertForMaskedLM(config).to(bf16), {"input_ids": ids, "attention_mask": mask, "labels": ids}


def step(model, batch):
    model.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def distance(a, b):
    return ((a.float() - b.float()).norm() / b.float().norm()).item()


def near(ours, theirs, batch):
    """Losses and gradients, and no linear is taken apart from its norm."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        got = step(ours, batch)
    expected = step(theirs, batch)
    assert len(got) == len(expected) and abs(got[0] - expected[0]) < 1e-2 and not torch.equal(got[1], expected[1])
    assert max(distance(a, b) for a, b in zip(got[1:], expected[1:]) if b.norm() > 1e-3) < 0.25
    return got


@pytest.mark.parametrize("recipe", ["coat", "coat-block"])
@pytest.mark.parametrize("make, given", [(vit, {}), (vit, {"hidden_act": "gelu_pytorch_tanh", "qkv_bias": False}), (bert, {}),
                                         (bert, {"hidden_act": "gelu_new"})])
def test_encoders_learn_as_the_plain_model(make, given, recipe):
    reference, batch = make(**given)
    ours = ot.coat(copy.deepcopy(reference), recipe)
    assert [*ours.state_dict()] == [*reference.state_dict()]
    got = near(ours, reference, batch)
    ours.eval()
    with torch.no_grad():
        assert torch.equal(ours(**batch).loss, got[0])
    assert not [module for module in ours.modules() if getattr(getattr(module, "_octet", None), "residual", None) is not None]


@pytest.mark.parametrize("make", [vit, bert])
def test_layers_keep_groups_of_8_bits(make):
    model, batch = make()
    told = ot.report(ot.coat(model), **batch)
    layers = [row for row in told.rows if ".layers.1." in row.modules or ".layer.1." in row.modules]
    assert len(layers) >= 4 and told.bytes < told.plain_bytes
    for row in layers:
        if "+" in row.modules and "query" not in row.modules:  # BERT's share codes by tensor
            assert row.kept[0][0] == "e4m3:1x16" and row.bytes > 0, row


@pytest.mark.parametrize("make", [vit, bert])
def test_hooks_see_every_value(make):
    reference, batch = make()
    model, seen = ot.coat(copy.deepcopy(reference)), [{}, {}]
    expected = step(model, batch)
    for net, values in zip((model, reference), seen):
        for name, module in net.named_modules():
            module.register_forward_hook(lambda module, inputs, output, name=name, values=values: values.__setitem__(
                name, output[0] if isinstance(output, tuple) else output))
    assert all(map(torch.equal, step(model, batch), expected))
    reference(**batch)
    assert seen[0].keys() == seen[1].keys()
    for name, value in seen[1].items():
        if isinstance(value, torch.Tensor):
            assert distance(seen[0][name], value) < 0.15, name


@pytest.mark.parametrize("make", [vit, bert])
def test_checkpointed_layers_have_the_same_bits(make):
    model, batch = make()
    ot.coat(model)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    got = step(model, batch)
    model.gradient_checkpointing_disable()
    for layer in [module for module in model.modules() if type(module).__name__ in ("ViTLayer", "BertLayer")]:
        layer.register_forward_hook(lambda module, inputs, output: output.view_as(output))  # sums are rounded where layers end
    assert all(map(torch.equal, got, step(model, batch)))


@pytest.mark.parametrize("make, prepare, words", [
    (lambda: bert(is_decoder=True, add_cross_attention=True), None, "got one with crossattention"),
    (lambda: bert(hidden_act="relu"), None, "intermediate.intermediate_act_fn: expected one of GELUActivation"),
    (vit, lambda model: setattr(model.vit.layers[1], "layernorm_after", torch.nn.Identity()), "expected an nn.LayerNorm with weight and bias"),
    (vit, lambda model: model.vit.layers[1].mlp.fc2.double(), "mlp.fc2.weight: expected bfloat16 or float32, got float64"),
])
def test_coat_refuses_and_changes_nothing(make, prepare, words):
    model, _ = make()
    if prepare:
        prepare(model)
    before = [type(module) for module in model.modules()]
    with pytest.raises(octet.Error) as caught:
        ot.coat(model)
    assert words in str(caught.value) and [type(module) for module in model.modules()] == before
