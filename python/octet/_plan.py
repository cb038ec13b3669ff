"""octet.plan."""

from __future__ import annotations

import json

from ._config import call_of


def plan(config, *, set=None, device: str = "cpu", threads: int = 0, isa: str = "auto", buffers: bool = False) -> dict:
    """What a run will do and the memory it takes, without running it: what `octet plan CONFIG --json` prints.

    config: a YAML file's path, or a dict of its keys (docs/configuration.md).
    set: overrides, {"train.batch": 4} or ["train.batch=4"].  device: cpu or cuda, which needs no GPU here.
    buffers: with the list of every buffer: name, role, layer, dtype, offset, bytes, first_step, last_step.
    Returns peak_bytes, by_role (bytes, sums to the peak), gradient_bytes, u_bytes, batch, seq, hidden, params, kept_per_layer_bytes, layer_names,
    ops, near_misses, arenas, ... Raises octet.Error.
    """
    from . import _checks, _native, _program
    _checks.flag("plan", buffers=buffers)
    _program.check_machine(device, isa, threads)
    machine = _native.Machine(device, isa, threads, "")
    return json.loads(_native.plan_json(call_of(config, set), machine, buffers))
