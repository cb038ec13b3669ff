"""coat() and convert(): modules are checked first, all of them, and changed then."""

from __future__ import annotations

import fnmatch
import sys

import torch

from .._error import Error
from ._blocks import Spec, check
from ._functions import to_text
from ._layers import Link, converted_class
from ._linear import COAT_RECIPES, Linear, linear_spec, recipe_of

TRANSFORMERS = 5  # the first version whose layers are as DecoderLayer has them
# Decoder layers that are alike, by the name that their classes begin with.
FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3")


def convert(model: torch.nn.Module, recipe: str = "fp8_linear", filter=None) -> torch.nn.Module:
    """Makes nn.Linear modules of a model octet.torch.Linear, in place, and gives the model.

    recipe: of RECIPES.  filter: names or patterns ("*.down_proj") that modules must match, or a function of name and module; None: all
    but the output embeddings of a transformers model (lm_head). Subclasses of nn.Linear stay as they are. Raises octet.Error for a
    pattern that matches no nn.Linear, and for weights that no kernel takes; nothing has changed then.
    """
    recipe_of(recipe)
    chosen = _chosen(model, filter)
    for name, module in chosen:
        _check_parameters(name, module)
    for _, module in chosen:
        make_linear(module, recipe)
    return model


def make_linear(module: torch.nn.Linear, recipe: str) -> None:
    module.__class__, module.recipe, module._link = Linear, recipe, None


def _chosen(model, filter) -> list:
    linears = [(name, module) for name, module in model.named_modules() if type(module) is torch.nn.Linear]
    if type(model) is torch.nn.Linear and not callable(filter) and filter:
        raise Error("[torch] filter: expected a model with named modules, got a linear: leave out the filter")
    if callable(filter):
        chosen = [(name, module) for name, module in linears if filter(name, module)]
    elif filter is None:
        head = _output_embeddings(model)
        chosen = [(name, module) for name, module in linears if module is not head]
    else:
        chosen = _matching(model, linears, [filter] if isinstance(filter, str) else list(filter))
    if not chosen:
        raise Error("[torch] expected a model with nn.Linear modules that the filter names, got none")
    return chosen


def _output_embeddings(model):
    get = getattr(model, "get_output_embeddings", None)
    return get() if callable(get) else None


def _matching(model, linears, patterns) -> list:
    for pattern in patterns:
        if any(fnmatch.fnmatchcase(name, pattern) for name, _ in linears):
            continue
        others = [type(module).__name__ for name, module in model.named_modules() if fnmatch.fnmatchcase(name, pattern)]
        raise Error(f"[torch] filter: expected a pattern that matches an nn.Linear, got {pattern!r}, which matches "
                    + (f"{', '.join(sorted(set(others)))} alone" if others else "no module"))
    return [(name, module) for name, module in linears if any(fnmatch.fnmatchcase(name, p) for p in patterns)]


def _check_parameters(name: str, module) -> None:
    for key, p in module.named_parameters(recurse=False):
        check(f"{name}.{key}" if name else key, p)


def coat(model: torch.nn.Module, recipe: str = "coat") -> torch.nn.Module:
    """Gives a transformers model COAT's activations and 8-bit linears, in place, and gives the model.

    Its decoder layers must be Llama's, Mistral's, Qwen2's, Qwen3's or SmolLM3's. Norms, gated products and linears of the layers, and
    the final norm, compute as in a run of the program with this recipe; embeddings, attention, residual sums and the head stay
    PyTorch's. recipe: coat, or coat-block (blocks of 128 in the forward products). Raises octet.Error for other models, for modules that
    were changed before (convert first, then add adapters), and weights that no kernel takes; nothing has changed then.
    """
    recipe_of(recipe, COAT_RECIPES)
    layers = [(name, module) for name, module in model.named_modules() if type(module).__name__ in _layer_names()]
    if not layers:
        raise Error(f"[torch] coat: expected a transformers model with layers of {', '.join(FAMILIES)}, got {type(model).__name__}"
                    + (", which is converted already" if _is_converted(model) else ""))
    _check_version()
    plans = [_Layer(name, module) for name, module in layers]
    finals = [(name, module) for name, module in model.named_modules()
              if type(module) in {type(plan.norms[0]) for plan in plans} and name.rpartition(".")[2] == "norm"]
    for plan in plans:
        plan.check()
    for name, module in finals:
        _check_parameters(name, module)
    for plan in plans:
        plan.convert(recipe)
    for _, module in finals:
        _make_norm(module, to_text(_norm_spec(recipe, module, layer=-1)))
    return model


def _check_version() -> None:
    """Layers of older versions take and give other things."""
    version = getattr(sys.modules.get("transformers"), "__version__", "0")
    if int(version.partition(".")[0]) < TRANSFORMERS:
        raise Error(f"[torch] coat: expected transformers {TRANSFORMERS} or later, got {version}")


def _layer_names() -> set[str]:
    return {f"{family}DecoderLayer" for family in FAMILIES}


def _is_converted(model) -> bool:
    return any(hasattr(module, "_octet") or isinstance(module, Linear) for module in model.modules())


def _norm_spec(recipe: str, norm, layer: int = 0, linears=()) -> Spec:
    return Spec(recipe, norm.weight.numel(), norm="rms_norm", eps=float(norm.variance_epsilon), layer=layer, linears=linears)


def _make_norm(module, made) -> None:
    module._octet = made
    module.__class__ = converted_class("Norm", type(module))


class _Layer:
    """The modules of a decoder layer, and what becomes of them."""

    def __init__(self, name: str, layer):
        self.name, self.layer = name, layer
        if hasattr(layer, "_octet_original"):
            raise Error(f"[torch] coat: {name}: expected a layer as transformers has it, got one that is converted already")
        attention, mlp = self._child(layer, "self_attn"), self._child(layer, "mlp")
        self.norms = [self._child(layer, "input_layernorm"), self._child(layer, "post_attention_layernorm")]
        self.head_norms = [getattr(attention, key) for key in ("q_norm", "k_norm") if hasattr(attention, key)]
        self.qkv = [self._linear(attention, "self_attn", key) for key in ("q_proj", "k_proj", "v_proj")]
        self.output = self._linear(attention, "self_attn", "o_proj")
        self.mlp = mlp
        self.pair = [self._linear(mlp, "mlp", key) for key in ("gate_proj", "up_proj")]
        self.down = self._linear(mlp, "mlp", "down_proj")
        act = type(self._child(mlp, "act_fn")).__name__
        if act not in ("SiLU", "SiLUActivation"):
            raise Error(f"[torch] coat: {name}.mlp.act_fn: expected SiLU, got {act}")

    def _child(self, module, key: str):
        if not hasattr(module, key):
            raise Error(f"[torch] coat: {self.name}: expected a layer with {key}, got {type(module).__name__} without it")
        return getattr(module, key)

    def _linear(self, parent, prefix: str, key: str):
        module = self._child(parent, key)
        if type(module) is not torch.nn.Linear:
            raise Error(f"[torch] coat: {self.name}.{prefix}.{key}: expected an nn.Linear, got {type(module).__name__}: convert the "
                        "model before other tools change it")
        return module

    def check(self) -> None:
        for name, module in self.layer.named_modules():
            _check_parameters(f"{self.name}.{name}" if name else self.name, module)

    def convert(self, recipe: str) -> None:
        for module in (*self.qkv, self.output, *self.pair, self.down):
            make_linear(module, recipe)
        names = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
        for norm, linears, called in zip(self.norms, (self.qkv, self.pair), names):
            specs = tuple(linear_spec(name, module) for name, module in zip(called, linears))
            _make_norm(norm, Link(_norm_spec(recipe, norm, linears=specs), linears))
        for norm in self.head_norms:
            _make_norm(norm, to_text(_norm_spec(recipe, norm)))
        self.mlp._octet = Link(Spec(recipe, self.down.in_features, gated=True, linears=(linear_spec("down_proj", self.down),)), [self.down])
        self.mlp.__class__ = converted_class("GatedMlp", type(self.mlp))
        self.layer.__class__ = converted_class("DecoderLayer", type(self.layer))
