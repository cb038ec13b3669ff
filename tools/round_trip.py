#!/usr/bin/env python3
"""What leaves says the same as what was here: `./dev parity --round-trip`.

    round_trip.py OCTET [NAME...] [--csv FILE]     all models, or these; the table as CSV

Every kind of model, with each of its heads, starts from a folder of transformers whose config.json is off its defaults
in every field, and leaves Octet by each way that there is: `convert`, `ptq` (weights in 8 bits, whose values any program
computes alike), the export of a run that trained it, and the adapters of another run. The library that people use for
such a folder (transformers, sentence-transformers, compressed-tensors, PEFT) loads it, and computes of the same texts or
pictures what `octet eval` or `octet embed` computes of the run or folder that it came from. A row of the table has

    model, head, way, reference, octet, theirs, far

where octet and theirs are the mean loss (of embeddings: none), and far is their distance, of embeddings the largest
difference of any number. All keys that transformers finds in config.json must stay as they were (labels, the problem's type,
ids of padding, sizes of tables), and what Octet does not compute (another head) must be kept, or the row names what changed.
"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

import round_trip_models as models

FAR = 1e-5
OF_FILES = {"_name_or_path", "transformers_version", "dtype", "quantization_config"}  # which may change


def says(now, before):
    """Objects may say more than they did, such as beta_fast of YaRN."""
    if isinstance(before, dict) and isinstance(now, dict) and "rope_type" in before:
        return all(now.get(key, "none") == value for key, value in before.items())
    if isinstance(before, dict) and isinstance(now, dict) and "full_attention" in before:
        return now.keys() == before.keys() and all(says(now[key], value) for key, value in before.items())
    return now == before


class Trip:
    def __init__(self, octet, name, at):
        self.octet, self.name, self.at = octet, name, at
        self.case = models.CASES[name]
        self.case.write(at / "start")
        self.data = self.case.data(at)
        self.start = self.config(at / "start")

    def run(self, *arguments):
        done = subprocess.run([self.octet, *map(str, arguments), "--quiet"], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"octet {arguments[0]}: {done.stderr.strip().splitlines()[-1:]}")
        return done.stdout

    def value(self, model):
        """What octet computes."""
        return self.case.octet_value(self, model)

    @staticmethod
    def config(folder):
        return json.loads(transformers.AutoConfig.from_pretrained(folder).to_json_string(use_diff=False))

    def changes(self, way, folder):
        config = self.config(folder)
        may_change = OF_FILES | (self.case.may_change if way == "run export" else set())
        changed = [key for key in sorted(self.start.keys() - may_change) if not says(config.get(key, "none"), self.start[key])]
        return changed + self.case.lost(way, self.at / "start", folder)

    def row(self, way, source, folder, load=None):
        ours, theirs = self.value(source), self.case.their_value(folder, self, load)
        far = (ours - theirs).abs().max().item()
        changes = [] if load else self.changes(way, folder)
        shown = ["", ""] if ours.numel() > 1 else [f"{ours.item():.6f}", f"{theirs.item():.6f}"]
        return {"model": self.case.kind, "head": self.case.head, "way": way, "reference": self.case.reference(way), "octet": shown[0],
                "theirs": shown[1], "far": f"{far:.1e}", "changed": " ".join(changes), "is_good": far <= FAR and not changes}

    def train(self, *more):
        out = self.at / ("lora" if more else "run")
        self.run("train", "--model", self.at / "start", "--data", self.data, "--out", out, "--recipe", "fp32", "--set", "train.steps=3",
                 "--set", "train.batch=4", "--set", "train.keep_best=false", "--set", "optim.lr=0.002", "--set", "train.export=f32",
                 "--set", "data.val_fraction=0", "--set", "train.tensorboard=false", *self.case.train_flags, *more)
        return out

    def rows(self):
        for way in ("convert", "ptq", "run export", "adapter export"):
            if (way == "ptq" and not self.case.has_ptq) or (way == "adapter export" and not self.case.has_adapter):
                continue
            try:
                yield self.go(way)
            except Exception as error:  # noqa: BLE001 - a way that does not go is a row
                yield {"model": self.case.kind, "head": self.case.head, "way": way, "reference": "", "octet": "", "theirs": "", "far": "",
                       "changed": f"{type(error).__name__}: {str(error)[:300]}", "is_good": False}

    def go(self, way):
        start = self.at / "start"
        if way == "convert":
            self.run("convert", start, self.at / "converted", "--dtype", "f32")
            return self.row(way, start, self.at / "converted")
        if way == "ptq":
            self.run("ptq", "--model", start, "--format", "e4m3", "--method", "max", "--weights", "channel", "--activations", "none", "--calib",
                     self.data, "--out", self.at / "ptq", "--samples", 2, *self.case.ptq_flags)
            return self.row(way, self.at / "ptq", self.at / "ptq")
        if way == "run export":
            run = self.train()
            return self.row(way, run, run / "export")
        run = self.train("--set", "lora.rank=2", "--set", "optim.lr=0.02")
        self.run("convert", run, self.at / "adapter", "--adapter-only")
        return self.row(way, run, start, load=self.at / "adapter")


def main():
    octet, *names = sys.argv[1:] or sys.exit(__doc__)
    path = names.pop() if names[-2:-1] == ["--csv"] else None
    names = [name for name in names if name != "--csv"] or list(models.CASES)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    rows = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            for row in Trip(octet, name, pathlib.Path(folder)).rows():
                print(name, *(f"{key} {value}" for key, value in row.items() if value != "" and key not in ("model", "head")), flush=True)
                rows.append(row)
    if path:
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0])[:-1], extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    bad = [row for row in rows if not row["is_good"]]
    if bad:
        sys.exit(f"round trip: {len(bad)} of {len(rows)} FAILED")
    print(f"round trip: {len(rows)} ways, all equal")


if __name__ == "__main__":
    main()
