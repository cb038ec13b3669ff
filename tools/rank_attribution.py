#!/usr/bin/env python3
"""Where a step of several ranks loses time against one of a GPU alone: by op, from the two runs' traces.

  tools/rank_attribution.py ALONE/trace.json RANKS/trace.json

Both from `octet train --profile-steps A:B`. One line an op and role: ms a step alone, with ranks, and the difference, of what the
computing stream launches; and the time in which that stream stands still, by what it waits to launch. The lines add up to the
steps' lengths. Below them the transfers, which run beside.
"""
import collections
import json
import sys

COMPUTE, TRANSFERS, FUNCTIONS = 2, 3, 1


def attributed(path):
    """Ms a step by (kind, op, role): what ran on the computing stream, its gaps, the transfers; and the steps' mean length."""
    with open(path, encoding="utf-8") as file:
        events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
    runs = sorted((event for event in events if event["tid"] == FUNCTIONS), key=lambda event: event["ts"])
    steps = {event["args"]["step"] for event in runs}
    sums = collections.Counter()
    for run in runs:
        end = run["ts"] + run["dur"]
        inside = [e for e in events if e["tid"] != FUNCTIONS and run["ts"] <= e["ts"] <= end]
        at = run["ts"]
        for event in sorted((e for e in inside if e["tid"] == COMPUTE), key=lambda event: event["ts"]):
            key = (event["args"]["op"], event["cat"])
            sums["waits before", *key] += max(0.0, event["ts"] - at)
            at = max(at, event["ts"])
            sums["computes", *key] += max(0.0, event["ts"] + event["dur"] - at)
            at = max(at, event["ts"] + event["dur"])
        sums["waits before", "end", "of the step"] += max(0.0, end - at)
        for event in inside:
            if event["tid"] == TRANSFERS:
                sums["transfers", event["args"]["op"], event["cat"]] += event["dur"]
    scale = 1000 * len(steps)
    length = sum(run["dur"] for run in runs) / scale
    return collections.Counter({key: ms / scale for key, ms in sums.items()}), length


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    (alone, alone_ms), (ranks, ranks_ms) = (attributed(path) for path in sys.argv[1:])
    print(f"{'':12}  {'op':24} {'role':12} {'alone':>9} {'ranks':>9} {'difference':>10}")
    keys = sorted(set(alone) | set(ranks), key=lambda key: (key[0] == "transfers", -abs(ranks[key] - alone[key])))
    rest = [0.0, 0.0]
    for key in keys:
        difference = ranks[key] - alone[key]
        if abs(difference) < 0.05 and key[0] != "transfers":
            rest = [rest[0] + alone[key], rest[1] + ranks[key]]
            continue
        print(f"{key[0]:12}  {key[1]:24} {key[2]:12} {alone[key]:9.2f} {ranks[key]:9.2f} {difference:+10.2f}")
    print(f"{'the rest':51} {rest[0]:9.2f} {rest[1]:9.2f} {rest[1] - rest[0]:+10.2f}")
    sums = [sum(ms for key, ms in side.items() if key[0] != "transfers") for side in (alone, ranks)]
    print(f"{'sum, without transfers':51} {sums[0]:9.2f} {sums[1]:9.2f} {sums[1] - sums[0]:+10.2f}")
    print(f"{'measured':51} {alone_ms:9.2f} {ranks_ms:9.2f} {ranks_ms - alone_ms:+10.2f}")


if __name__ == "__main__":
    main()
