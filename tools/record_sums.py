#!/usr/bin/env python3
"""Records the bits of a card's products: what tests/golden/sums and src/math/tensor_sums.h rest on.

Usage: python3 tools/record_sums.py OUT [--mma mma.so] [--only SECTION]
Needs PyTorch with CUDA, a Hopper card, and mma.so of tools/record_sums.cu for the section mma.
Each section runs in a process of its own, ends within its seconds (SECTIONS), and writes
OUT/SECTION.npz; OUT/sums.jsonl has a line a product with its algorithms and what each gave.

Products are row-major, y[m, n] = alpha op(a) op(b) + beta c, as Octet asks cuBLASLt for them. Codes
are functions of a seed and their place (`places` and `table`), so that files hold results alone: of
the first 16 and last 8 rows by the first 24 and last 8 columns (all, where there are fewer), each
distinct result once.
"""
import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from statistics import NormalDist

import numpy as np

# Seconds of each, beside its start.
SECTIONS = {"mma": 20, "blocks": 60, "epilogues": 30, "half": 60, "splits": 90, "proposals": 120}
TYPES = {"f32": 0, "fp16": 2, "bf16": 14, "e4m3": 28, "e5m2": 29}
BYTES = {"f32": 4, "fp16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1}
WORKSPACE = 32 << 20  # as Octet lends it

# ---- codes ----


def signed(x: int) -> int:
    x &= (1 << 64) - 1
    return x - (1 << 64) if x >> 63 else x


def places(n, seed: int):
    """Entry of the table for each of the indices n (int64, numpy's or PyTorch's)."""
    x = n * 0x1E3779B97F4A7C15 + signed(seed * 0x3F58476D1CE4E5B9)
    x = x ^ ((x >> 29) & ((1 << 35) - 1))
    x = x * 0x14D049BB133111EB
    x = x ^ ((x >> 32) & ((1 << 32) - 1))
    return x & 4095


def decoded(code: np.ndarray, exponent_bits: int, mantissa_bits: int) -> np.ndarray:
    bias = (1 << exponent_bits - 1) - 1
    e = code >> mantissa_bits & (1 << exponent_bits) - 1
    m = code & (1 << mantissa_bits) - 1
    magnitude = np.where(e > 0, m + (1 << mantissa_bits), m) * 2.0 ** (
        np.maximum(e, 1).astype(np.float64) - bias - mantissa_bits)
    return np.where(code >> exponent_bits + mantissa_bits & 1, -magnitude, magnitude)


FIELDS = {"e4m3": (4, 3), "e5m2": (5, 2), "bf16": (8, 7), "fp16": (5, 10)}


def table(kind: str, dtype: str) -> np.ndarray:
    """4096 codes: "normal" and "mean" as normal values of mean 0 or 0.3 sd lie, "any" of all finite
    codes, of sixteen bits with exponents from -12 to 12; of BF16 "huge" from 58 to 82, "tiny" from
    -82 to -58, and "special" as normal with a few NaN and infinities."""
    normal = np.array([NormalDist().inv_cdf((i + 0.5) / 4096) for i in range(4096)])
    values = normal + (0.3 if kind == "mean" else 0.0)
    if dtype in ("e4m3", "e5m2"):
        codes = np.arange(256)
        largest = 448 if dtype == "e4m3" else 57344
        v = decoded(codes, *FIELDS[dtype])
        finite = codes[np.abs(v) <= largest]
        if kind == "any":
            return finite[np.arange(4096) % len(finite)].astype(np.uint8)
        order = np.argsort(v[finite], kind="stable")
        at = np.searchsorted(v[finite][order], values * 16)
        at = np.clip(at, 1, len(order) - 1)
        below, above = v[finite][order][at - 1], v[finite][order][at]
        nearest = np.where(values * 16 - below < above - values * 16, at - 1, at)
        return finite[order][nearest].astype(np.uint8)
    if kind in ("any", "huge", "tiny"):
        values = (1 + np.arange(4096) % 128 / 128) * 2.0 ** (np.arange(4096) // 128 % 25 - 12)
        values = np.where(np.arange(4096) % 2, -values, values)
        values = values * 2.0 ** {"any": 0, "huge": 70, "tiny": -70}[kind]
    if kind == "special":
        values[:4], values[4:8], values[8] = np.inf, -np.inf, np.nan
    if dtype == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if dtype == "fp16":
        return values.astype(np.float16).view(np.uint16)
    # Thirteen bits of significand more than TF32 has: rounding is the library's.
    return values.astype(np.float32).view(np.uint32)


def sampled(n: int, first: int) -> list:
    return sorted(set(range(min(first, n))) | set(range(max(n - 8, 0), n)))


class Data:
    """Factors and addends on the device."""

    def __init__(self, torch):
        self.torch, self.kept, self.tables = torch, {}, {}

    def matrix(self, rows: int, cols: int, dtype: str, kind: str, seed: int):
        key = (rows, cols, dtype, kind, seed)
        if key in self.kept:
            return self.kept[key]
        torch = self.torch
        if (kind, dtype) not in self.tables:
            t = table(kind, dtype)
            signed_type = {1: np.uint8, 2: np.int16, 4: np.int32}[t.itemsize]
            self.tables[kind, dtype] = torch.from_numpy(t.view(signed_type).copy()).cuda()
        parts, n, step = [], rows * cols, 1 << 26
        for at in range(0, n, step):
            index = torch.arange(at, min(at + step, n), dtype=torch.int64, device="cuda")
            parts.append(self.tables[kind, dtype][places(index, seed)])
        if sum(x.numel() for x in self.kept.values()) > 8e9:
            self.kept.clear()
        self.kept[key] = torch.cat(parts).reshape(rows, cols)
        return self.kept[key]


# ---- cuBLASLt ----


class Heuristic(ctypes.Structure):
    _fields_ = [("algo", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t),
                ("state", ctypes.c_int), ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4)]


CONFIG = {"id": (0, ctypes.c_int32), "tile": (1, ctypes.c_uint32), "split": (2, ctypes.c_int32),
          "reduction": (3, ctypes.c_uint32), "swizzle": (4, ctypes.c_uint32),
          "custom": (5, ctypes.c_uint32), "stages": (6, ctypes.c_uint32),
          "inner": (7, ctypes.c_uint16), "cluster": (8, ctypes.c_uint16)}


@dataclass
class Product:
    name: str
    m: int
    n: int
    k: int
    a: str = "e4m3"
    b: str = "e4m3"
    y: str = "f32"
    c: str = ""            # type of an addend
    fast: bool = False
    trans_a: bool = False
    trans_b: bool = True
    scales: str = "whole"  # whole, rows, or one of "line", "square" for a and for b: "line square"
    factors: str = "one"   # of scales: one, powers, any
    scale_a: float = 1.0
    scale_b: float = 1.0
    alpha: float = 1.0
    beta: float = 1.0      # of the addend
    bias: bool = False
    in_place: bool = False  # the addend lies in y
    tf32: bool = False
    kind: str = "normal"
    seed: int = 1


class Failed(Exception):
    pass


class Library:
    def __init__(self):
        self.lt = ctypes.CDLL("libcublasLt.so.13")
        self.lt.cublasLtGetVersion.restype = ctypes.c_size_t
        self.handle = ctypes.c_void_p()

    def start(self):
        self.call("cublasLtCreate", ctypes.byref(self.handle))

    def call(self, name, *args):
        status = getattr(self.lt, name)(*args)
        if status != 0:
            raise Failed(f"{name}: status {status}")

    def set(self, what, attribute, value):
        self.call(f"cublasLt{what[0]}SetAttribute", what[1], ctypes.c_int(attribute),
                  ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))

    def descriptor(self, p: Product):
        d = ctypes.c_void_p()
        self.call("cublasLtMatmulDescCreate", ctypes.byref(d), 77 if p.tf32 else 68, 0)
        what = ("MatmulDesc", d)
        self.set(what, 3, ctypes.c_int32(1 if p.trans_b else 0))
        self.set(what, 4, ctypes.c_int32(1 if p.trans_a else 0))
        self.set(what, 25, ctypes.c_int8(1 if p.fast else 0))
        if p.bias:
            self.set(what, 7, ctypes.c_int32(4))
            self.set(what, 26, ctypes.c_int32(TYPES["bf16" if BYTES[p.y] == 1 else p.y]))
        if p.scales != "whole":
            modes = {"rows": 3, "line": 4, "square": 5}
            of_a, of_b = (p.scales.split() * 2)[:2]
            self.set(what, 31, ctypes.c_int32(modes[of_b]))
            self.set(what, 32, ctypes.c_int32(modes[of_a]))
        return d

    def point(self, d, a=None, b=None, bias=None):
        what = ("MatmulDesc", d)
        for attribute, address in ((17, b), (18, a), (8, bias)):
            if address is not None:
                self.set(what, attribute, ctypes.c_void_p(address))

    def layouts(self, p: Product):
        def one(dtype, rows, cols):
            layout = ctypes.c_void_p()
            self.call("cublasLtMatrixLayoutCreate", ctypes.byref(layout), TYPES[dtype],
                      ctypes.c_uint64(rows), ctypes.c_uint64(cols), ctypes.c_int64(rows))
            return layout

        c = p.c or ("bf16" if BYTES[p.y] == 1 else p.y)
        return [one(p.b, p.k, p.n) if p.trans_b else one(p.b, p.n, p.k),
                one(p.a, p.m, p.k) if p.trans_a else one(p.a, p.k, p.m), one(c, p.n, p.m),
                one(p.y, p.n, p.m)]

    def proposals(self, d, layouts, mask, count, workspace):
        preference = ctypes.c_void_p()
        self.call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        what = ("MatmulPreference", preference)
        self.set(what, 1, ctypes.c_size_t(workspace))
        self.set(what, 3, ctypes.c_uint32(mask))
        found, n = (Heuristic * count)(), ctypes.c_int()
        self.call("cublasLtMatmulAlgoGetHeuristic", self.handle, d, *layouts, preference, count,
                  found, ctypes.byref(n))
        self.lt.cublasLtMatmulPreferenceDestroy(preference)
        return [found[i].algo for i in range(n.value) if found[i].state == 0]

    def config(self, algo) -> dict:
        result = {}
        for name, (attribute, kind) in CONFIG.items():
            value, written = kind(), ctypes.c_size_t()
            status = self.lt.cublasLtMatmulAlgoConfigGetAttribute(
                ctypes.byref(algo), attribute, ctypes.byref(value),
                ctypes.c_size_t(ctypes.sizeof(value)), ctypes.byref(written))
            result[name] = value.value if status == 0 else None
        return result

    def forced(self, d, layouts, algo, split, reduction, workspace):
        """A copy of the algorithm with so many parts, or None where the library refuses it."""
        copy = (ctypes.c_uint64 * 8)(*algo)
        for name, value in (("split", split), ("reduction", reduction)):
            attribute, kind = CONFIG[name]
            value = kind(value)
            if self.lt.cublasLtMatmulAlgoConfigSetAttribute(
                    ctypes.byref(copy), attribute, ctypes.byref(value),
                    ctypes.c_size_t(ctypes.sizeof(value))):
                return None
        result = Heuristic()
        status = self.lt.cublasLtMatmulAlgoCheck(self.handle, d, *layouts, ctypes.byref(copy),
                                                 ctypes.byref(result))
        fits = status == 0 and result.state == 0 and result.workspace <= workspace
        return copy if fits else None


def scale_grid(p: Product, mode: str, outer: int, seed: int) -> np.ndarray:
    """[outer, ceil(k / 128)] factors, of "square" one for 128 of outer, of "rows" [outer, 1]."""
    deep = 1 if mode == "rows" else -(-p.k // 128)
    rows = -(-outer // 128) if mode == "square" else outer
    index = np.arange(rows * deep, dtype=np.int64)
    drawn = places(index, seed)
    if p.factors == "one":
        grid = np.ones(rows * deep, np.float32)
    elif p.factors == "powers":
        grid = np.ldexp(np.float32(1), drawn % 7 - 3).astype(np.float32)
    else:
        grid = (np.float32(0.5) + drawn.astype(np.float32) / np.float32(3000)).astype(np.float32)
    return grid.reshape(rows, deep)


def library_order(grid: np.ndarray, mode: str) -> np.ndarray:
    if mode == "square":
        padded = np.zeros((grid.shape[0], -(-grid.shape[1] // 4) * 4), np.float32)
        padded[:, :grid.shape[1]] = grid
        return padded
    return np.ascontiguousarray(grid.T)


# ---- a section ----


class Recorder:
    def __init__(self, out: str, section: str):
        import torch
        self.torch, self.section, self.out = torch, section, out
        torch.cuda.init()
        self.data, self.library, self.arrays = Data(torch), Library(), {}
        self.library.start()
        self.deadline = time.time() + SECTIONS[section]
        self.log = open(os.path.join(out, section + ".jsonl"), "w")
        self.workspace = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        name = torch.cuda.get_device_name()
        self.line({"device": name, "torch": torch.__version__,
                   "cublasLt": self.library.lt.cublasLtGetVersion()})

    def line(self, entry: dict):
        self.log.write(json.dumps(entry) + "\n")
        self.log.flush()

    def operands(self, p: Product) -> dict:
        torch, whole = self.torch, {}
        a_rows, a_cols = (p.k, p.m) if p.trans_a else (p.m, p.k)
        b_rows, b_cols = (p.n, p.k) if p.trans_b else (p.k, p.n)
        whole["a"] = self.data.matrix(a_rows, a_cols, p.a, p.kind, p.seed)
        whole["b"] = self.data.matrix(b_rows, b_cols, p.b, p.kind, p.seed + 1)
        if p.c:
            whole["c"] = self.data.matrix(p.m, p.n, p.c, "normal", p.seed + 2)
        kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
        whole["y"] = torch.empty((p.m, p.n), dtype=kinds[BYTES[p.y]], device="cuda")
        if p.bias:
            whole["bias"] = self.data.matrix(1, p.n, "bf16" if BYTES[p.y] == 1 else p.y, "normal",
                                             p.seed + 3)
        if p.scales != "whole":
            of_a, of_b = (p.scales.split() * 2)[:2]
            for name, mode, outer, seed in (("scale_a", of_a, p.m, p.seed + 4),
                                            ("scale_b", of_b, p.n, p.seed + 5)):
                grid = library_order(scale_grid(p, mode, outer, seed), mode)
                whole[name] = torch.from_numpy(grid).cuda()
        elif BYTES[p.a] == 1:
            whole["scale_a"] = torch.tensor([p.scale_a], dtype=torch.float32).cuda()
            whole["scale_b"] = torch.tensor([p.scale_b], dtype=torch.float32).cuda()
        return whole

    def run(self, p: Product, d, layouts, data: dict, algo) -> np.ndarray:
        torch, y = self.torch, data["y"]
        y.fill_(127 if BYTES[p.y] == 1 else -1)  # NaN
        c = data["c"] if p.c else y
        if p.in_place:
            y.copy_(c)
            c = y
        alpha = ctypes.c_float(p.alpha)
        beta = ctypes.c_float(p.beta if p.c else 0.0)
        pointer = lambda x: ctypes.c_void_p(x.data_ptr())
        no_c = not p.c and BYTES[p.y] == 1
        self.library.call("cublasLtMatmul", self.library.handle, d, ctypes.byref(alpha),
                          pointer(data["b"]), layouts[0], pointer(data["a"]), layouts[1],
                          ctypes.byref(beta), None if no_c else pointer(c), layouts[2], pointer(y),
                          layouts[3], ctypes.byref(algo), pointer(self.workspace),
                          ctypes.c_size_t(self.workspace.numel()), ctypes.c_void_p(0))
        rows = torch.tensor(sampled(p.m, 16), device="cuda")
        cols = torch.tensor(sampled(p.n, 24), device="cuda")
        return y[rows][:, cols].cpu().numpy()

    def record(self, p: Product, mask=2, count=16, splits=(), workspace=WORKSPACE):
        """All proposals of the product, and the first of them in so many parts."""
        begun = time.time()
        entry = {"product": asdict(p), "mask": mask}
        if begun > self.deadline:
            return self.line({**entry, "error": "no time left"})
        try:
            d, layouts = self.library.descriptor(p), self.library.layouts(p)
            data = self.operands(p)
            self.library.point(d, *(data[x].data_ptr() if x in data else None
                                    for x in ("scale_a", "scale_b", "bias")))
            found = self.library.proposals(d, layouts, mask, count, workspace)
            tried = [(a, {}) for a in found]
            for split in splits:
                for reduction in (1, 2, 4):
                    for base in (0, 1, 2):
                        algo = None if base >= len(found) else self.library.forced(
                            d, layouts, found[base], split, reduction, 256 << 20)
                        if algo is not None:
                            tried.append((algo, {"forced_from": base}))
            entry["algorithms"] = self.results(p, d, layouts, data, tried)
            distinct = {a.get("result") for a in entry["algorithms"]}
            if self.section in ("splits", "proposals") or len(distinct) > 1:
                entry["kernels"] = self.kernels(p, d, layouts, data, tried)
        except Failed as error:
            entry["error"] = str(error)
        entry["seconds"] = round(time.time() - begun, 2)
        self.line(entry)
        n = len(entry.get("algorithms", []))
        distinct = len({a.get("result") for a in entry.get("algorithms", [])})
        print(f"{self.section} {p.name}: {n} algorithms, {distinct} distinct results"
              f"{' ' + entry['error'] if 'error' in entry else ''}", flush=True)

    def results(self, p, d, layouts, data, tried) -> list:
        distinct, lines = {}, []
        for algo, more in tried:
            line = {**self.library.config(algo), **more}
            try:
                y = self.run(p, d, layouts, data, algo)
                line["result"] = distinct.setdefault(y.tobytes(), len(distinct))
                if line["result"] not in [x.get("result") for x in lines]:
                    self.arrays[f"{p.name}:{line['result']}"] = y
            except Failed as error:
                line["error"] = str(error)
            lines.append(line)
        return lines

    def kernels(self, p, d, layouts, data, tried) -> list:
        """The names of the kernels that each of the algorithms launches."""
        torch = self.torch
        try:
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as prof:
                for algo, _ in tried:
                    try:
                        self.run(p, d, layouts, data, algo)
                    except Failed:
                        pass
                torch.cuda.synchronize()
            events = [e for e in prof.events() if str(e.device_type).endswith("CUDA")]
            events.sort(key=lambda e: e.time_range.start)
            runs = []
            for e in events:
                if "FillFunctor" in e.name:
                    runs.append([])
                elif runs and not any(x in e.name for x in ("at::native", "Memcpy", "at_cuda")):
                    runs[-1].append(e.name[:160])
            return runs
        except Exception as error:  # the names are a comfort, not the record
            return [repr(error)[:200]]

    def save(self):
        path = os.path.join(self.out, self.section + ".npz")
        np.savez_compressed(path, **self.arrays)
        print(f"{path}: {os.path.getsize(path)} bytes", flush=True)


def both(p: Product):
    """The product with fast accumulation and without."""
    for fast in (True, False):
        yield Product(**{**asdict(p), "name": p.name + ("_fast" if fast else "_slow"),
                         "fast": fast})


def blocks(r: Recorder):
    seed = 100
    for scales in ("line square", "square line", "line line"):
        for a, b in (("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e4m3", "e5m2")):
            for k in (128, 256, 1024, 4096, 14336):
                if a != b and k not in (256, 4096):
                    continue
                for factors in ("one", "powers", "any"):
                    for y in ("f32", "bf16"):
                        if factors != "any" and y == "bf16":
                            continue
                        seed += 10
                        name = f"{scales.replace(' ', '_')}_{a}_{b}_{k}_{factors}_{y}"
                        r.record(Product(name, 512, 768, k, a, b, y, scales=scales,
                                         factors=factors, kind="mean", seed=seed), mask=7)
    r.record(Product("line_square_c", 512, 768, 1024, c="bf16", y="bf16", scales="line square",
                     factors="any", seed=7))
    r.record(Product("line_line_c_f32", 512, 768, 1024, c="f32", scales="line line", factors="any",
                     seed=7))
    r.record(Product("line_line_few", 64, 64, 14336, scales="line line", factors="any", seed=7), 7)
    r.record(Product("line_square_few", 16, 4096, 4096, y="bf16", scales="line square",
                     factors="any", seed=7), 7)
    r.record(Product("line_line_ragged", 512, 768, 1104, scales="line line", factors="any",
                     seed=7), 7)
    for p in both(Product("rows_f32", 512, 768, 1024, scales="rows", factors="any", seed=7)):
        r.record(p, 7)


def splits(r: Recorder):
    shapes = [(16, 16, 4096), (48, 208, 4096), (208, 48, 14336), (16, 2048, 14336),
              (64, 64, 65536), (256, 256, 65536), (16, 4096, 4096), (64, 4096, 11008),
              (128, 11008, 4096), (2048, 2048, 4096), (768, 768, 16384), (2048, 768, 16384)]
    for m, n, k in shapes:
        for y in ("f32", "bf16"):
            for p in both(Product(f"few_{m}_{n}_{k}_{y}", m, n, k, y=y, kind="mean", seed=m + k)):
                parts = (2, 3, 4, 5, 8) if y == "f32" and n <= 2048 else ()
                r.record(p, mask=7, count=32, splits=parts)
                none = Product(**{**asdict(p), "name": p.name + "_none"})
                r.record(none, mask=0, count=16)


def epilogues(r: Recorder):
    scaled = {"scale_a": 0.3, "scale_b": 1.7, "kind": "mean"}
    for i, more in enumerate([
            {"c": "bf16", "y": "bf16"}, {"c": "bf16", "y": "bf16", "in_place": True}, {"c": "f32"},
            {"c": "f32", "in_place": True}, {"alpha": 1 / 3.0}, {"alpha": 1 / 3.0, "y": "bf16"},
            {"y": "bf16", "bias": True}, {"y": "e4m3", "alpha": 1 / 300.0},
            {"c": "bf16", "y": "bf16", "a": "e5m2"}, {"beta": 0.37, "c": "f32"},
            {"c": "bf16", "y": "bf16", "scale_a": 1.0, "scale_b": 1.0}]):
        for p in both(Product(f"fp8_{i}", 512, 768, 1024, **{**scaled, **more}, seed=50 + i)):
            r.record(p)


def half(r: Recorder):
    seed = 400
    for dtype in ("bf16", "fp16", "f32"):
        for kind, ks in (("normal", (16, 64, 256, 4096)), ("mean", (1024, 14336)),
                         ("any", (16, 32, 256)), ("huge", (16, 32, 256)), ("tiny", (16, 32, 256)),
                         ("special", (16, 64))):
            for k in ks:
                if dtype != "bf16" and kind in ("huge", "tiny", "special"):
                    continue
                seed += 10
                r.record(Product(f"{dtype}_{kind}_{k}", 512, 768, k, dtype, dtype, "f32",
                                 tf32=dtype == "f32", kind=kind, seed=seed))
    for i, more in enumerate([
            {"y": "bf16"}, {"c": "bf16", "y": "bf16"}, {"c": "bf16", "y": "bf16", "in_place": True},
            {"c": "f32"}, {"c": "f32", "in_place": True}, {"alpha": 0.3}, {"alpha": 0.3, "c": "f32"},
            {"alpha": 0.3, "y": "bf16"}, {"alpha": 0.3, "c": "bf16", "y": "bf16"},
            {"y": "bf16", "bias": True}, {"trans_b": False}, {"trans_a": True, "trans_b": False},
            {"trans_a": True, "trans_b": False, "c": "f32"}, {"beta": 0.37, "c": "f32"}]):
        r.record(Product(f"bf16_epilogue_{i}", 512, 768, 1024, "bf16", "bf16",
                         **{"kind": "mean", **more}, seed=500 + i))
    for m, n, k in ((2048, 32000, 4096), (16384, 4096, 4096), (64, 64, 65536), (768, 768, 16384)):
        r.record(Product(f"bf16_shape_{m}_{n}_{k}", m, n, k, "bf16", "bf16", kind="mean",
                         seed=600), mask=2)
        r.record(Product(f"bf16_shape_{m}_{n}_{k}_none", m, n, k, "bf16", "bf16", kind="mean",
                         seed=600), mask=0)


def mma(r: Recorder, path: str):
    torch = r.torch
    multiply = ctypes.CDLL(path).multiply_tiles
    pairs = [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e5m2"),
             ("bf16", "bf16"), ("fp16", "fp16"), ("f32", "f32")]
    n_tiles = 8
    for i, (a, b) in enumerate(pairs):
        for kind in ("normal", "mean", "any"):
            for steps in (1, 2, 8):
                for addend in (False, True):
                    seed = 1000 + 100 * i + 10 * steps
                    cols = 32 * steps // BYTES[a]
                    in_a = r.data.matrix(n_tiles * 16, cols, a, kind, seed)
                    in_b = r.data.matrix(n_tiles * 8, cols, b, kind, seed + 1)
                    if a == "f32":  # to TF32, towards zero
                        in_a, in_b = in_a & -8192, in_b & -8192
                    c = r.data.matrix(n_tiles * 16, 8, "f32", kind, seed + 2)
                    c = c if addend else torch.zeros_like(c)
                    d = torch.full_like(c, -1)
                    pointer = lambda x: ctypes.c_void_p(x.data_ptr())
                    torch.cuda.synchronize()
                    status = multiply(i, pointer(in_a), pointer(in_b), pointer(c), pointer(d),
                                      n_tiles, steps)
                    name = f"{a}_{b}_{kind}_{steps}{'_c' if addend else ''}"
                    r.line({"mma": name, "status": status, "seed": seed})
                    print("mma", name, status, flush=True)
                    if status == 0:
                        r.arrays[name] = d.cpu().numpy()


def proposals(r: Recorder):
    hidden, ffn = 4096, 11008
    for tokens in (16384, 8192):
        shapes = [("attention_forward", tokens, hidden, hidden, "e4m3", "e4m3"),
                  ("gate_forward", tokens, ffn, hidden, "e4m3", "e4m3"),
                  ("down_forward", tokens, hidden, ffn, "e4m3", "e4m3"),
                  ("attention_dgrad", tokens, hidden, hidden, "e5m2", "e4m3"),
                  ("gate_dgrad", tokens, hidden, ffn, "e5m2", "e4m3"),
                  ("down_dgrad", tokens, ffn, hidden, "e5m2", "e4m3"),
                  ("attention_wgrad", hidden, hidden, tokens, "e5m2", "e4m3"),
                  ("gate_wgrad", ffn, hidden, tokens, "e5m2", "e4m3"),
                  ("down_wgrad", hidden, ffn, tokens, "e5m2", "e4m3"),
                  ("gate_stores", tokens, ffn, hidden, "e4m3", "e4m3"),
                  ("gate_dgrad_added", tokens, hidden, ffn, "e5m2", "e4m3"),
                  ("gate_wgrad_added", ffn, hidden, tokens, "e5m2", "e4m3")]
        for i, (name, m, n, k, a, b) in enumerate(shapes):
            y = "e4m3" if name == "gate_stores" else "bf16"
            more = {"c": "bf16"} if name.endswith("added") else {}
            if y == "e4m3":
                more = {"alpha": 2.0 ** -9}
            for result in (y, "f32"):
                if result == "f32" and more:
                    continue
                for p in both(Product(f"{name}_{tokens}_{result}", m, n, k, a, b, result,
                                      kind="mean", seed=700 + 10 * i, **more)):
                    r.record(p, mask=2, count=16)


def record(section: str, out: str, path: str):
    r = Recorder(out, section)
    started = time.time()
    try:
        {"blocks": blocks, "splits": splits, "epilogues": epilogues, "half": half,
         "mma": lambda r: mma(r, path), "proposals": proposals}[section](r)
    finally:
        r.save()
        print(f"{section}: {time.time() - started:.0f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    parser.add_argument("--mma", default="mma.so")
    parser.add_argument("--only", choices=list(SECTIONS))
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    if args.only:
        record(args.only, args.out, os.path.abspath(args.mma))
        return 0
    failed = 0
    for section in SECTIONS:
        command = [sys.executable, os.path.abspath(__file__), args.out, "--mma", args.mma, "--only",
                   section]
        try:
            failed |= subprocess.run(command, timeout=SECTIONS[section] + 40, check=False).returncode
        except subprocess.TimeoutExpired:
            print(f"{section}: over its time", flush=True)
            failed = 1
    with open(os.path.join(args.out, "sums.jsonl"), "w") as whole:
        for path in (os.path.join(args.out, section + ".jsonl") for section in SECTIONS):
            if os.path.exists(path):
                whole.write(open(path).read())
                os.remove(path)
    return int(failed != 0)


if __name__ == "__main__":
    sys.exit(main())
