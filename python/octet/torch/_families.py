"""Which modules the layers of transformers' families have, and what becomes of them: found and checked first, changed then."""

from __future__ import annotations

import torch

from .._error import Error
from ._blocks import Spec
from ._functions import to_text
from ._layers import Link, converted_class
from ._linear import linear_spec, make_linear

DECODERS = ("Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3")  # whose layers are alike
FAMILIES = (*DECODERS, "ViT", "Bert")
_GELU = {"GELUActivation": "erf", "NewGELUActivation": "tanh", "PytorchGELUTanh": "tanh", "GELUTanh": "tanh"}


def norm_spec(recipe: str, norm, layer: int = 0, linears=()) -> Spec:
    kind = "layer_norm" if isinstance(norm, torch.nn.LayerNorm) else "rms_norm"
    eps = norm.eps if kind == "layer_norm" else norm.variance_epsilon
    return Spec(recipe, norm.weight.numel(), norm=kind, eps=float(eps), layer=layer, linears=linears)


def make_norm(module, made) -> None:
    module._octet = made
    module.__class__ = converted_class("Norm", type(module))


def _link_norm(recipe: str, norm, linears) -> None:
    """linears: pairs of a name and a module."""
    specs = tuple(linear_spec(name, module) for name, module in linears)
    make_norm(norm, Link(norm_spec(recipe, norm, linears=specs), [module for _, module in linears]))


def _link_activation(recipe: str, kind: str, module, act: str, linear) -> None:
    """module: computes the activation that `linear`, a name and a module, reads."""
    name, behind = linear
    module._octet = Link(Spec(recipe, behind.in_features, act=act, linears=(linear_spec(name, behind),)), [behind])
    module.__class__ = converted_class(kind, type(module))


def _is_of(kind: type, *places: str) -> bool:
    return kind.__module__.startswith(places)


def _shown(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _check_class(name: str, module, kind: str) -> None:
    """Another class of the name, or another one in its place, may compute something else."""
    if type(module).__name__ != kind or not _is_of(type(module), "transformers.models."):
        raise Error(f"[torch] coat: {name}: expected {kind} of transformers, got {_shown(type(module))}")


class _Layer:
    """A layer of a family: its `norms`, and its `linears`, each with its name; and its `parts`, the modules that are changed, likewise."""

    final_norm = "norm"  # the name of the norm behind the last layer

    def __init__(self, name: str, layer):
        self.name, self.layer, self.parts = name, layer, [(name, layer)]
        if hasattr(layer, "_octet_original"):
            raise Error(f"[torch] coat: {name}: expected a layer as transformers has it, got one that is converted already")
        _check_class(name, layer, type(layer).__name__)

    def part(self, path: str, kind: str):
        """A module of transformers' class of this name, which is changed."""
        module = self.child(path)
        _check_class(f"{self.name}.{path}", module, kind)
        self.parts.append((f"{self.name}.{path}", module))
        return module

    def child(self, path: str):
        module = self.layer
        for key in path.split("."):
            if not hasattr(module, key):
                raise Error(f"[torch] coat: {self.name}: expected a layer with {path}, got {type(module).__name__} without {key}")
            module = getattr(module, key)
        return module

    def linear(self, path: str) -> tuple[str, torch.nn.Linear]:
        """Its name, and the module."""
        module = self.child(path)
        if type(module) is not torch.nn.Linear:
            raise Error(f"[torch] coat: {self.name}.{path}: expected an nn.Linear, got {_shown(type(module))}: convert the "
                        "model before other tools change it")
        self.parts.append((f"{self.name}.{path}", module))
        return path.rpartition(".")[2], module

    def norm(self, path: str):
        """A LayerNorm of transformers' encoders."""
        module = self.child(path)
        if type(module) is not torch.nn.LayerNorm or module.weight is None or module.bias is None:
            raise Error(f"[torch] coat: {self.name}.{path}: expected an nn.LayerNorm with weight and bias, got {type(module).__name__}")
        self.parts.append((f"{self.name}.{path}", module))
        return module

    def act(self, path: str, known) -> str:
        """The class of an activation, one of `known`: which other modules may share, as it has no parameters."""
        module = self.child(path)
        act = type(module).__name__
        if act not in known or not _is_of(type(module), "torch.nn.", "transformers."):
            shown = act if _is_of(type(module), "torch.nn.") else _shown(type(module))
            raise Error(f"[torch] coat: {self.name}.{path}: expected one of {', '.join(known)}, got {shown}")
        if "forward" in vars(module):
            raise Error(f"[torch] coat: {self.name}.{path}: expected the forward pass of {act}, got one that another tool has put in its place")
        return act

    def make_linears(self, recipe: str) -> None:
        for _, module in self.linears:
            make_linear(module, recipe)

    def check(self, check_parameters) -> None:
        for name, module in self.layer.named_modules():
            check_parameters(f"{self.name}.{name}" if name else self.name, module)


class _Decoder(_Layer):
    def __init__(self, name: str, layer):
        super().__init__(name, layer)
        family = type(layer).__name__.removesuffix("DecoderLayer")
        self.norms = [self.part(key, f"{family}RMSNorm") for key in ("input_layernorm", "post_attention_layernorm")]
        attention = self.child("self_attn")
        self.head_norms = [self.part(f"self_attn.{key}", f"{family}RMSNorm") for key in ("q_norm", "k_norm") if hasattr(attention, key)]
        self.qkv = [self.linear(f"self_attn.{key}_proj") for key in "qkv"]
        self.output = self.linear("self_attn.o_proj")
        self.pair = [self.linear(f"mlp.{key}_proj") for key in ("gate", "up")]
        self.down = self.linear("mlp.down_proj")
        self.linears = [*self.qkv, self.output, *self.pair, self.down]
        self.part("mlp", f"{family}MLP")
        self.act("mlp.act_fn", ("SiLU", "SiLUActivation"))

    def convert(self, recipe: str) -> None:
        self.make_linears(recipe)
        for norm, linears in zip(self.norms, (self.qkv, self.pair)):
            _link_norm(recipe, norm, linears)
        for norm in self.head_norms:
            make_norm(norm, to_text(norm_spec(recipe, norm)))
        _link_activation(recipe, "GatedMlp", self.layer.mlp, "silu", self.down)
        self.layer.__class__ = converted_class("DecoderLayer", type(self.layer))


class _ViT(_Layer):
    final_norm = "layernorm"

    def __init__(self, name: str, layer):
        super().__init__(name, layer)
        self.norms = [self.norm("layernorm_before"), self.norm("layernorm_after")]
        self.qkv = [self.linear(f"attention.{key}_proj") for key in "qkv"]
        self.output = self.linear("attention.o_proj")
        self.wide, self.narrow = self.linear("mlp.fc1"), self.linear("mlp.fc2")
        self.linears = [*self.qkv, self.output, self.wide, self.narrow]
        self.gelu = _GELU[self.act("mlp.activation_fn", _GELU)]
        self.part("mlp", "ViTMLP")
        self.child("dropout")

    def convert(self, recipe: str) -> None:
        self.make_linears(recipe)
        for norm, linears in zip(self.norms, (self.qkv, [self.wide])):
            _link_norm(recipe, norm, linears)
        _link_activation(recipe, "ViTMlp", self.layer.mlp, self.gelu, self.narrow)
        self.layer.__class__ = converted_class("ViTLayer", type(self.layer))


class _Bert(_Layer):
    """Norms stand behind sums. The last one's linears are those of the next layer, which may be sharded or computed again by itself: they
    quantize what it gives."""

    final_norm = None

    def __init__(self, name: str, layer):
        super().__init__(name, layer)
        if hasattr(layer, "crossattention"):
            raise Error(f"[torch] coat: {name}: expected a layer of an encoder, got one with crossattention")
        self.norms = [self.norm("attention.output.LayerNorm"), self.norm("output.LayerNorm")]
        self.qkv = [self.linear(f"attention.self.{key}") for key in ("query", "key", "value")]
        self.output = self.linear("attention.output.dense")
        self.wide, self.narrow = self.linear("intermediate.dense"), self.linear("output.dense")
        self.linears = [*self.qkv, self.output, self.wide, self.narrow]
        self.gelu = _GELU[self.act("intermediate.intermediate_act_fn", _GELU)]
        for path, kind in (("attention.self", "BertSelfAttention"), ("attention.output", "BertSelfOutput"),
                           ("intermediate", "BertIntermediate"), ("output", "BertOutput")):
            self.part(path, kind)

    def convert(self, recipe: str) -> None:
        self.make_linears(recipe)
        _link_norm(recipe, self.norms[0], [self.wide])
        make_norm(self.norms[1], to_text(norm_spec(recipe, self.norms[1])))
        attention = self.layer.attention.self
        specs = tuple(linear_spec(name, module) for name, module in self.qkv)
        attention._octet = Link(Spec(recipe, self.qkv[0][1].in_features, linears=specs), [module for _, module in self.qkv])
        attention.__class__ = converted_class("BertSelfAttention", type(attention))
        _link_activation(recipe, "BertIntermediate", self.layer.intermediate, self.gelu, self.narrow)
        for module in (self.layer.attention.output, self.layer.output):
            module.__class__ = converted_class("BertOutput", type(module))


# By the class of the layer.
LAYERS = {f"{family}DecoderLayer": _Decoder for family in DECODERS} | {"ViTLayer": _ViT, "BertLayer": _Bert}
