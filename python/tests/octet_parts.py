"""What a converted model leaves to PyTorch, by the program's own ops: rotary attention and the loss, as functions of tensors. With them
a model has the bits of a run."""

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama import modeling_llama

from octet import _native
from octet.graph import Graph
from octet.torch._blocks import DTYPES, LinearSpec, Spec, _machine, _stream
from octet.torch._functions import run, to_text


def block(graph, wanted, device, recipe="coat"):
    return _native.Block(graph._native, recipe, wanted, [], [], _machine(device), _stream(device))


def _run(block, run, inputs, outputs, tensors):
    device = next(iter(tensors.values())).device
    results = {name: torch.empty(shape, dtype=DTYPES.get(dtype, torch.uint8), device=device) for name, dtype, shape, _ in outputs}
    workspace = torch.empty(block.workspace_bytes(), dtype=torch.uint8, device=device)
    run([tensors[name].data_ptr() for name, *_ in inputs], [result.data_ptr() for result in results.values()], workspace.data_ptr(),
        _stream(device))
    return results


class OfGraph(torch.autograd.Function):
    """The outputs of a graph, differentiated by all inputs that are no indices."""

    @staticmethod
    def forward(ctx, graph, indices, *tensors):
        names = [name for name, _ in graph._native.inputs()]
        ctx.wanted = [name for name in names if name not in indices]
        ctx.block = block(graph, ctx.wanted, tensors[0].device)
        given = {**indices, **{name: t.detach().contiguous() for name, t in zip(ctx.wanted, tensors)}}
        results = _run(ctx.block, ctx.block.run_forward, ctx.block.forward_inputs(), ctx.block.forward_outputs(), given)
        ctx.kept = {**given, **results}
        ctx.outputs = [name for name, _ in graph._native.outputs()]
        return tuple(results[name] for name in ctx.outputs)

    @staticmethod
    def backward(ctx, *gradients):
        given = {**ctx.kept, **{f"d.{name}": dy.contiguous() for name, dy in zip(ctx.outputs, gradients)}}
        results = _run(ctx.block, ctx.block.run_backward, ctx.block.backward_inputs(), ctx.block.backward_outputs(), given)
        return (None, None, *(results[f"grad:{name}"] for name in ctx.wanted))


def attention(theta=10000.0):
    """A function for transformers' ALL_ATTENTION_FUNCTIONS, of queries and keys before their rotation. (Parameters have the type of
    what is computed, the batch's numbers single precision.)"""
    def f(module, query, key, value, mask, **kwargs):
        batch, heads, seq, dim = query.shape
        rows = [t.transpose(1, 2).reshape(batch * seq, -1) for t in (query, key, value)]
        g = Graph("attention")
        positions = g.input("positions", [batch * seq], "i32")
        q, k, v = (g.at(0, "rope").parameter(name, list(t.shape)) for name, t in zip("qkv", rows))
        q, k = (g.rope(x, positions, heads=n, head_dim=dim, theta=theta) for x, n in ((q, heads), (k, key.shape[1])))
        o, _ = g.at(0, "attention").attention(q, k, v, batch=batch, q_len=seq, kv_len=seq, heads=heads, kv_heads=key.shape[1],
                                              head_dim=dim, scale=dim**-0.5, mask="causal")
        g.output("o", o)
        indices = {"positions": torch.arange(seq, dtype=torch.int32, device=query.device).repeat(batch)}
        return OfGraph.apply(g, indices, *rows)[0].view(batch, seq, heads, dim), None
    return f


def loss(logits, labels):
    """The mean over rows, as f32."""
    rows, vocab = logits.shape
    g = Graph("loss")
    label, n = g.input("labels", [rows], "i32"), g.input("inv_n", [], "real", "step_scalar")
    g.output("loss", g.cross_entropy(g.parameter("logits", [rows, vocab]), label, n)[0])
    # The forward pass makes the gradient of logits, too: of a loss that is differentiated by 1.
    indices = {"labels": labels.to(torch.int32), "inv_n": torch.tensor(1 / rows, dtype=torch.float32, device=logits.device),
               "d.loss": torch.ones((), device=logits.device)}
    return OfGraph.apply(g, indices, logits)[0]


class Embedding(torch.nn.Embedding):
    def forward(self, ids):
        g = Graph("embedding")
        table, rows = g.parameter("table", list(self.weight.shape)), g.input("rows", [ids.numel()], "i32")
        g.output("y", g.embedding(table, rows))
        return OfGraph.apply(g, {"rows": ids.to(torch.int32).contiguous()}, self.weight)[0].view(*ids.shape, -1)


class Head(torch.nn.Linear):
    def forward(self, x):
        spec = Spec("bf16", self.in_features, layer=-1, linears=(LinearSpec("head", self.out_features, False),))
        return run(to_text(spec), [x, self.weight])[0]


def give_parts(model, monkeypatch):
    """Lets a Llama of transformers compute with these parts."""
    model.get_input_embeddings().__class__, model.get_output_embeddings().__class__ = Embedding, Head
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", lambda q, k, cos, sin, **others: (q, k))
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "octet", attention())
    model.config._attn_implementation = model.model.config._attn_implementation = "octet"
