"""Writes optimizer.json: AdamW steps with stored moments, from the formulas of docs/numerics.md alone.

Every f32 operation is done in double and rounded once (exact for + - * / and square root), powers in
decimals of 50 digits, codes by comparing with the format's values. Run: python3 make_golden.py
"""

import decimal
import json
import math
import random
import struct
from decimal import Decimal
from pathlib import Path

decimal.getcontext().prec = 50
GROUP = 128
BETA1, BETA2, EPS, DECAY, LR = 0.9, 0.95, 1e-8, 0.1, 1e-3


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bits(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def from_bits(b):
    return struct.unpack("<f", struct.pack("<I", b))[0]


def ieee_values(exponent_bits, fraction_bits, bias, n_codes):
    values = []
    for code in range(n_codes):
        e, m = code >> fraction_bits, code & ((1 << fraction_bits) - 1)
        if e == 0:
            values.append(m * 2.0 ** (1 - bias - fraction_bits))
        else:
            values.append((1 + m / (1 << fraction_bits)) * 2.0 ** (e - bias))
    return values


def hif8_values():
    """By value: (value, code), from the layout of the dot, exponent and fraction fields."""
    rows = [(0.0, 0)] + [(2.0 ** (m - 23), m) for m in range(1, 8)]
    rows += [(1 + m / 8, 0x08 | m) for m in range(8)]
    for dots, width, n_frac in ((0x10, 0, 3), (0x20, 1, 3), (0x40, 2, 2), (0x60, 3, 1)):
        for sign in (0, 1):
            for low in range(1 << width):
                for m in range(1 << n_frac):
                    exponent = ((1 << width) | low) * (-1 if sign else 1)
                    code = dots | (((sign << width) | low) << n_frac) | m
                    if code != 0x6F:
                        rows.append(((1 + m / (1 << n_frac)) * 2.0**exponent, code))
    return sorted(rows)


def de8_values(signed):
    """The positive half, by value: (value, code)."""
    rows, rank = [(0.0, 127 if signed else 0)], 0
    for i in range(7):
        cells = 2**i if signed else 2 ** (i + 1)
        for cell in range(cells):
            rank += 1
            edges = [Decimal(1) / 10 + Decimal(9) / 10 * (cell + d) / cells for d in (0, 1)]
            value = (edges[0] + edges[1]) / 2 * Decimal(10) ** (i - 6)
            rows.append((f32(float(value)), (127 if signed else 0) + rank))
    return rows + [(1.0, 255)]



E4M3 = [(v, c) for c, v in enumerate(ieee_values(4, 3, 7, 127))]
E5M2 = [(v, c) for c, v in enumerate(ieee_values(5, 2, 15, 124))]
# name -> (dtype of m, rows, tie, target, R_fmt of m), and of v
FORMATS = {
    "e4m3": [("e4m3", E4M3, "even", 448.0, 448.0 * 2**9)] * 2,
    "e5m2": [("e5m2", E5M2, "even", 57344.0, 57344.0 * 2**16)] * 2,
    "hif8": [
        ("hif8", hif8_values(), "away", 15.0, 2.0**18),
        ("hif8", hif8_values(), "away", 15.0, 2.0**11),
    ],
    "de8": [
        ("de8s", de8_values(True), "up", 1.0, 1.0 / f32(5.5e-7)),
        ("de8u", de8_values(False), "up", 1.0, 1.0 / f32(3.25e-7)),
    ],
}


def nearest(rows, tie, y):
    """Index of the row that a magnitude y rounds to."""
    low, high = 0, len(rows) - 1
    if y >= rows[high][0]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if rows[middle][0] <= y else (low, middle)
    below, above = Decimal(y) - Decimal(rows[low][0]), Decimal(rows[high][0]) - Decimal(y)
    if below == above:
        return high if tie != "even" or rows[low][1] % 2 else low
    return low if below < above else high


def philox(key, counter):
    """Philox4x32-10: four words of a key of two and a counter of four."""
    key, c = list(key), list(counter)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ key[0], p1 & 0xFFFFFFFF, p0 >> 32 ^ c[3] ^ key[1], p0 & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def amax_word(letter, step):
    """What a step rounds the amax of a moment's groups by, of a parameter whose name's hash is 0, with seed 0."""
    name = 0
    for ch in f":{letter}".encode():
        name = ((name ^ ch) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return philox((name & 0xFFFFFFFF, name >> 32), (0xFFFFFFFF, 0xFFFFFFFF, step, 0))[0]


class Moment:
    def __init__(self, row, expand, second, n):
        self.dtype, self.rows, self.tie, self.target, self.ratio = row
        self.expand, self.second = expand, second
        self.codes, self.meta = [0] * n, [0] * ((n + GROUP - 1) // GROUP)
        self.value_of = {c: v for v, c in self.rows}

    def negative(self, code):
        return 254 - code if self.dtype == "de8s" else code | 0x80

    def decode(self, i):
        meta, code = self.meta[i // GROUP], self.codes[i]
        if meta == 0:
            return 0.0
        amax, k = from_bits((meta >> 8) << 7), Decimal(meta & 255) / 16
        is_negative = code not in self.value_of
        if is_negative:
            code = self.negative(code) if self.dtype == "de8s" else code & 0x7F
        q = self.value_of[code]
        if q == 0:
            return 0.0
        if self.expand:
            power = (Decimal(q) / Decimal(self.target)) ** (1 / k)
            x = f32(float(power * Decimal(amax)))
        else:
            x = f32(f32(q / self.target) * amax)
        return -x if is_negative else x

    def choose_k16(self, amax, amin):
        a, b = math.frexp(amax), math.frexp(amin)
        r = Decimal(f32(a[0] / b[0])) * Decimal(2) ** (a[1] - b[1])
        j = 255
        while j > 1 and r > Decimal(self.ratio) ** (Decimal(16) / j):
            j -= 1
        return j

    def encode(self, x, step):
        word = amax_word("v" if self.second else "m", step)
        for g in range(len(self.meta)):
            group = range(g * GROUP, min(len(x), (g + 1) * GROUP))
            sizes = [abs(x[i]) for i in group]
            amax = max(sizes)
            if amax < 2.0**-100:
                self.meta[g] = 0
                for i in group:
                    self.codes[i] = 0
                continue
            cut = (bits(amax) + ((word + 0x9E3779B9 * group[0]) % 2**32 >> 25)) >> 7
            amin = min(f32(min(s for s in sizes if s) * (1 + 2.0**-13)), amax)
            amax = from_bits(cut << 7)
            k16 = self.choose_k16(amax, amin) if self.expand else 16
            self.meta[g] = (cut << 8) | k16
            for i in group:
                self.codes[i] = self.code(x[i], amax, Decimal(k16) / 16)

    def code(self, x, amax, k):
        if x == 0:
            return self.rows[0][1]
        if self.expand:
            y = f32(float((Decimal(abs(x)) / Decimal(amax)) ** k * Decimal(self.target)))
        else:
            y = f32(f32(abs(x) / amax) * self.target)
        index = nearest(self.rows, self.tie, y)
        if index == 0 and (self.expand or self.second):
            index = 1
        code = self.rows[index][1]
        if x > 0 or (index == 0 and self.dtype in ("hif8", "de8s")):
            return code
        return max(self.negative(code), 0) if self.dtype == "de8s" else self.negative(code)


def step(w, m, v, g, c1, c2):
    b1, b2, eps, decay, lr = (f32(x) for x in (BETA1, BETA2, EPS, DECAY, LR))
    m = f32(f32(b1 * m) + f32(f32(1 - BETA1) * g))
    v = f32(f32(b2 * v) + f32(f32(f32(1 - BETA2) * g) * g))
    ratio = f32(f32(m / c1) / f32(f32(math.sqrt(f32(v / c2))) + eps))
    return f32(w - f32(lr * f32(ratio + f32(decay * w)))), m, v


def run(name_m, name_v, weights, gradients):
    kinds = [(name.replace("+x", ""), name.endswith("+x")) for name in (name_m, name_v)]
    m = Moment(FORMATS[kinds[0][0]][0], kinds[0][1], False, len(weights))
    v = Moment(FORMATS[kinds[1][0]][1], kinds[1][1], True, len(weights))
    w = list(weights)
    for t, g in enumerate(gradients, 1):
        c1, c2 = f32(1 - BETA1**t), f32(1 - BETA2**t)
        new = [step(w[i], m.decode(i), v.decode(i), g[i], c1, c2) for i in range(len(w))]
        w = [x[0] for x in new]
        m.encode([x[1] for x in new], t)
        v.encode([x[2] for x in new], t)
    return {
        "state_m": name_m,
        "state_v": name_v,
        "m_dtype": m.dtype,
        "v_dtype": v.dtype,
        "weights": [bits(x) for x in w],
        "m_codes": m.codes,
        "v_codes": v.codes,
        "m_meta": m.meta,
        "v_meta": v.meta,
    }


def main():
    rng = random.Random(20)
    n, steps = 300, 3
    weights = [f32(rng.gauss(0, 0.02)) for _ in range(n)]
    scale = [math.exp(rng.gauss(-7, 0.7)) for _ in range(n)]
    gradients = [[f32(s * rng.gauss(0, 1)) for s in scale] for _ in range(steps)]
    for g in gradients:  # a dead element, and one group that starts dead
        g[5] = 0.0
    gradients[0][128:256] = [0.0] * 128
    pairs = [("e4m3+x", "e4m3+x"), ("e4m3", "e4m3"), ("e5m2+x", "e4m3+x"), ("e4m3", "e5m2"),
             ("hif8+x", "hif8+x"), ("hif8", "hif8"), ("de8+x", "de8+x"), ("de8", "de8")]
    golden = {
        "beta1": BETA1, "beta2": BETA2, "eps": EPS, "weight_decay": DECAY, "lr": LR, "group": GROUP,
        "weights": [bits(x) for x in weights],
        "gradients": [[bits(x) for x in g] for g in gradients],
        "cases": [run(m, v, weights, gradients) for m, v in pairs],
    }
    path = Path(__file__).parent / "optimizer.json"
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
