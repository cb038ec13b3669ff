"""Which parameters an optimizer steps: those that stand in its groups when it steps, as torch's optimizers have it."""

from __future__ import annotations

import weakref
from itertools import chain

from . import _native
from ._error import Error
from ._tensors import check_parameter


class Members:
    """The parameters of all groups in their order, with names and group numbers.

    Groups are the user's to edit: accelerate exchanges parameters for sharded ones, others append, reorder or delete. Parameters
    are not kept alive, so that what was exchanged is freed.
    """

    def __init__(self):
        self.names: list[str] = []
        self.groups: list[int] = []  # the number of each one's group
        self._sizes: list[int] = []
        self._references: list = []
        self._watch = _native.ObjectWatch([])

    def find(self, groups) -> list | None:
        """The parameters that stand in the groups, or None where they are others than update() saw."""
        try:
            lists = [group["params"] for group in groups]
            params = list(chain.from_iterable(lists))
            if list(map(len, lists)) != self._sizes:
                return None
        except (KeyError, TypeError):
            return None
        return params if self._watch.holds(params) else None

    def update(self, groups, defaults) -> list:
        """Takes what stands in the groups; returns the parameters. A parameter that was known keeps its name; another one takes
        the name of its place, where it stands in another's stead, else "param.N". Groups lack what `defaults` has: they get it."""
        known = {id(p): name for name, p in zip(self.names, (reference() for reference in self._references)) if p is not None}
        params = _listed(groups, defaults)
        names = [known.get(id(p)) for p in params]
        taken = set(names)
        places = list(chain.from_iterable(_places(group) for group in groups))
        for i, place in enumerate(places):
            if names[i] is None and place is not None and place not in taken:
                names[i] = place
                taken.add(place)
        for i, name in enumerate(names):
            if name is None:
                names[i] = _free_name(i, taken)
                taken.add(names[i])
        _check(names, params, known)
        self.names, self._sizes = names, [len(group["params"]) for group in groups]
        self.groups = [i for i, size in enumerate(self._sizes) for _ in range(size)]
        self._references, self._watch = list(map(weakref.ref, params)), _native.ObjectWatch(params)
        self.write_names(groups)
        return params

    def write_names(self, groups) -> None:
        """Puts the names into the groups, for state_dict()."""
        first = 0
        for group, size in zip(groups, self._sizes):
            group["names"] = self.names[first:first + size]
            first += size


def _listed(groups, defaults) -> list:
    """The parameters of all groups, each group's as a list."""
    for i, group in enumerate(groups):
        if not isinstance(group, dict) or "params" not in group:
            raise Error(f"[optimizer] group {i}: expected a dict with params, got {type(group).__name__}")
        if not isinstance(group["params"], list):
            given = group["params"]
            if not isinstance(given, tuple):
                raise Error(f"[optimizer] group {i}: expected a list of parameters, got {type(given).__name__}")
            group["params"] = list(given)
        for key, value in defaults.items():
            group.setdefault(key, value)
    return list(chain.from_iterable(group["params"] for group in groups))


def _places(group) -> list:
    """The names of a group's places; None where they are not those of its parameters."""
    names = group.get("names")
    return names if isinstance(names, list) and len(names) == len(group["params"]) else [None] * len(group["params"])


def _free_name(number: int, taken) -> str:
    while f"param.{number}" in taken:
        number += 1
    return f"param.{number}"


def _check(names, params, known) -> None:
    seen = set()
    for name, p in zip(names, params):
        if id(p) in seen:
            raise Error(f"[optimizer] {name}: expected every parameter once, got one again in the groups")
        seen.add(id(p))
        if id(p) not in known:
            check_parameter(name, p)
