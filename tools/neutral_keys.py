#!/usr/bin/env python3
"""Proofs that the keys which Octet passes over change nothing. `./dev parity --neutral-keys` runs it.

    neutral_keys.py prove [READER...]     prints the table of docs/results/neutral_keys.csv, made anew
    neutral_keys.py compare FILE          makes it anew and says which rows differ

A reader's neutral keys stand in its table of the code (nn/hf_keys.h and its like); a unit test holds that table
against the file. Here each key gets two other values in tiny folders that the reference made itself, and what the
reference computes of them must stay: bit for bit ("same"), or but for the order of sums ("1e-6"). A row's columns:

    reader   the file, or the kind of file, that holds the key
    key      the key; "rope/factor" as in nn/hf_keys.h
    values   what it was set to, as JSON
    given    what makes it neutral where it is not always so
    holds    of: outputs (evaluation), gradients (of a loss with all random parts off)
    models   those that the proof ran over
    proof    same, 1e-6, or "refused there": the reference does not load the folder
"""
import csv
import io
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
COLUMNS = ["reader", "key", "values", "given", "holds", "models", "proof"]


def readers():
    import neutral_configs
    import neutral_files
    return {**neutral_configs.READERS, **neutral_files.READERS}


def table(names):
    rows, faults = [], []
    for name, prove in readers().items():
        if names and name not in names:
            continue
        for row in prove():
            (rows if row["proof"] else faults).append({"reader": name, **row})
    for row in faults:
        print(f"NOT neutral: {row['reader']} {row['key']} of {row['models']}: {row['why']}", file=sys.stderr)
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue(), faults


def main():
    command, *rest = sys.argv[1:] or ["help"]
    if command not in ("prove", "compare"):
        sys.exit(__doc__)
    text, faults = table(rest if command == "prove" else [])
    if command == "prove":
        print(text, end="")
    else:
        stored = pathlib.Path(rest[0]).read_text()
        for line in sorted(set(stored.splitlines()) ^ set(text.splitlines())):
            print(("not proved now: " if line in stored else "not in the file: ") + line)
        if stored != text:
            sys.exit("neutral_keys: compare FAILED")
        print(f"neutral keys: {len(text.splitlines()) - 1} rows are proved as they stand in {rest[0]}")
    if faults:
        sys.exit(f"neutral_keys: {len(faults)} keys are NOT neutral")


if __name__ == "__main__":
    main()
