"""Which parameters of a model decay: the two groups that Octet's trainer makes."""

from __future__ import annotations

import torch

from ._error import Error
from ._numbers import check_numbers

_EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)


def parameter_groups(model: torch.nn.Module, weight_decay: float = 0.1) -> list[dict]:
    """Two groups for octet.optim.AdamW or torch.optim.AdamW: what decays by weight_decay, then what does not.

    Matrices of linears decay, as those of convolutions and of attention do, and an untied head. Norms, biases, embeddings,
    position tables and a head that is tied to its embedding do not. A matrix is a parameter of two or more dimensions that
    a module calls weight, *_weight or weight_*; of a module whose class is called an embedding or a norm it is none. Parameters that
    take no gradient are left out. Each group's "params" are (name, parameter) pairs in the model's order.
    """
    if not isinstance(model, torch.nn.Module):
        raise Error(f"[optimizer] expected a torch.nn.Module, got {type(model).__name__}")
    check_numbers({"weight_decay": weight_decay})
    tables = {id(p) for module in model.modules() if _is_embedding(module) for p in module.parameters(recurse=False)}
    matrices = {id(p) for module in model.modules() if not _is_norm(module)
                for name, p in module.named_parameters(recurse=False) if p.dim() >= 2 and _is_weight(name)} - tables
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return [{"params": [(name, p) for name, p in named if id(p) in matrices], "weight_decay": weight_decay},
            {"params": [(name, p) for name, p in named if id(p) not in matrices], "weight_decay": 0.0}]


def _is_embedding(module: torch.nn.Module) -> bool:
    return isinstance(module, _EMBEDDINGS) or "embedding" in type(module).__name__.lower()


def _is_norm(module: torch.nn.Module) -> bool:
    return "norm" in type(module).__name__.lower()


def _is_weight(name: str) -> bool:
    return name == "weight" or name.endswith("_weight") or name.startswith("weight_")
