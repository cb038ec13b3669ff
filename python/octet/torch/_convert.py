"""coat() and convert(): modules are checked first, all of them, and changed then."""

from __future__ import annotations

import fnmatch
import sys

import torch

from .._error import Error
from ._blocks import check
from ._families import FAMILIES, LAYERS, make_norm, norm_spec
from ._functions import to_text
from ._linear import COAT_RECIPES, Linear, make_linear, recipe_of

TRANSFORMERS = 5  # the first version whose layers are as _layers.py has them


def convert(model: torch.nn.Module, recipe: str = "fp8_linear", filter=None) -> torch.nn.Module:
    """Makes nn.Linear modules of a model octet.torch.Linear, in place, and gives the model.

    recipe: of RECIPES.  filter: names or patterns ("*.down_proj") that modules must match, or a function of name and module; None: all
    but the output embeddings of transformers models (lm_head), also of those inside. Subclasses of nn.Linear stay as they are. Raises
    octet.Error for a pattern that matches no nn.Linear, for weights that no kernel takes, and for a linear whose forward pass another
    tool has replaced; nothing has changed then.
    """
    recipe_of(recipe)
    _check_module(model)
    chosen = _chosen(model, filter)
    for name, module in chosen:
        check_parameters(name, module)
        check_forward(name, module)
    for _, module in chosen:
        make_linear(module, recipe)
    _leave_fast_paths(model)
    return model


def _leave_fast_paths(model) -> None:
    """PyTorch's encoder layers call linears in training alone: else one kernel reads the weights of all, unless the activation is none
    that it has."""
    for module in model.modules():
        if isinstance(module, torch.nn.TransformerEncoderLayer) and (isinstance(module.linear1, Linear) or isinstance(module.linear2, Linear)):
            module.activation_relu_or_gelu = 0
    for module in model.modules():
        if isinstance(module, torch.nn.TransformerEncoder) and any(
                getattr(layer, "activation_relu_or_gelu", 0) == 0 for layer in module.layers):
            module.use_nested_tensor = False  # what that kernel alone reads


def _check_module(model) -> None:
    if not isinstance(model, torch.nn.Module):
        raise Error(f"[torch] expected a torch.nn.Module, got {type(model).__name__}")


def _chosen(model, filter) -> list:
    linears = [(name, module) for name, module in model.named_modules() if type(module) is torch.nn.Linear]
    if type(model) is torch.nn.Linear and not callable(filter) and filter:
        raise Error("[torch] filter: expected a model with named modules, got a linear: leave out the filter")
    if callable(filter):
        chosen = [(name, module) for name, module in linears if filter(name, module)]
    elif filter is None:
        heads = _output_embeddings(model)
        chosen = [(name, module) for name, module in linears if id(module) not in heads]
    else:
        is_list = isinstance(filter, (list, tuple, set, frozenset)) and all(isinstance(pattern, str) for pattern in filter)
        if not isinstance(filter, str) and not is_list:
            raise Error(f"[torch] filter: expected names, patterns or a function, got {filter!r}")
        chosen = _matching(model, linears, [filter] if isinstance(filter, str) else list(filter))
    if not chosen:
        raise Error("[torch] expected a model with nn.Linear modules that the filter names, got none"
                    + (" that is not converted already" if _is_converted(model) else ""))
    return chosen


def _output_embeddings(model) -> set[int]:
    """The ids of them, of each model inside."""
    heads = set()
    for module in model.modules():
        get = getattr(module, "get_output_embeddings", None)
        try:
            heads.add(id(get() if callable(get) else None))
        except (AttributeError, NotImplementedError):  # of a model without
            pass
    return heads


def _matching(model, linears, patterns) -> list:
    for pattern in patterns:
        if any(fnmatch.fnmatchcase(name, pattern) for name, _ in linears):
            continue
        others = [("converted " if isinstance(module, Linear) else "") + type(module).__name__
                  for name, module in model.named_modules() if fnmatch.fnmatchcase(name, pattern)]
        raise Error(f"[torch] filter: expected a pattern that matches an nn.Linear, got {pattern!r}, which matches "
                    + (f"{', '.join(sorted(set(others)))} alone" if others else "no module"))
    return [(name, module) for name, module in linears if any(fnmatch.fnmatchcase(name, p) for p in patterns)]


def check_parameters(name: str, module) -> None:
    for key, p in module.named_parameters(recurse=False):
        if p.numel() == 0:
            raise Error(f"[torch] {name}.{key}: expected one element or more, got shape {list(p.shape)}")
        check(f"{name}.{key}" if name else key, p)


def check_forward(name: str, module) -> None:
    """Raises octet.Error where the object has a forward pass of its own, which its class would not change."""
    if "forward" in vars(module):
        raise Error(f"[torch] {name or type(module).__name__}: expected the forward pass of its class, got one that another tool has put "
                    "in its place: convert the model before (before accelerate dispatches it, say)")


def coat(model: torch.nn.Module, recipe: str = "coat") -> torch.nn.Module:
    """Gives a transformers model COAT's activations and 8-bit linears, in place, and gives the model.

    Its layers must be Llama's, Mistral's, Qwen2's, Qwen3's, SmolLM3's, ViT's or BERT's. Norms, activations and linears of the layers,
    and the final norm, compute as in a run of the program with this recipe; embeddings, attention, residual sums and the head stay
    PyTorch's. recipe: coat, or coat-block (blocks of 128 in the forward products). Raises octet.Error for other models, for modules that
    were changed before (convert first, then add adapters), that are of other classes than transformers' or stand in two places, and for
    weights that no kernel takes; nothing has changed then.
    """
    recipe_of(recipe, COAT_RECIPES)
    _check_module(model)
    layers = [(name, module) for name, module in model.named_modules() if type(module).__name__ in LAYERS]
    if not layers:
        raise Error(f"[torch] coat: expected a transformers model with layers of {', '.join(FAMILIES)}, got {type(model).__name__}"
                    + (", which is converted already" if _is_converted(model) else ""))
    _check_version()
    plans = [LAYERS[type(module).__name__](name, module) for name, module in layers]
    finals = {(type(plan.norms[0]), plan.final_norm) for plan in plans}
    norms = {id(module): (name, module) for name, module in model.named_modules(remove_duplicate=False)
             if (type(module), name.rpartition(".")[2]) in finals}.values()
    for plan in plans:
        plan.check(check_parameters)
    for name, module in norms:
        check_parameters(name, module)
    _check_places([part for plan in plans for part in plan.parts] + list(norms))
    for plan in plans:
        plan.convert(recipe)
    for _, module in norms:
        make_norm(module, to_text(norm_spec(recipe, module, layer=-1)))
    return model


def _check_places(parts) -> None:
    """Each of these modules is changed, by what stands beside it in its layer."""
    names: dict[int, str] = {}
    for name, module in parts:
        check_forward(name, module)
        if id(module) in names:
            raise Error(f"[torch] coat: {name}: expected a module of its own, got the one of {names[id(module)]}")
        names[id(module)] = name


def _check_version() -> None:
    """Layers of older versions take and give other things."""
    version = getattr(sys.modules.get("transformers"), "__version__", "0")
    if int(version.partition(".")[0]) < TRANSFORMERS:
        raise Error(f"[torch] coat: expected transformers {TRANSFORMERS} or later, got {version}")


def _is_converted(model) -> bool:
    return any(hasattr(module, "_octet") or isinstance(module, Linear) for module in model.modules())
