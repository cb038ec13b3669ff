"""How well the number formats hold numbers of every size: a study as arrays, and a plot of it.

    python examples/format_study.py [--samples 65536] [--out formats.svg]

Draws with matplotlib where it is installed; prints the best format of each size in any case.
"""

import argparse

import numpy as np
import octet


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=1 << 16)
    parser.add_argument("--out", default="formats.svg")
    flags = parser.parse_args()

    # %% The study: signal to noise over the size of the numbers, a column a format.
    sheet = octet.study.formats(samples=flags.samples).sheets["snr"]
    x, *names = sheet
    for size in range(-24, 25, 8):
        row = int(np.argmin(np.abs(sheet[x] - size)))
        best = max(names, key=lambda name: np.nan_to_num(sheet[name][row], nan=-np.inf))
        print(f"sigma 2^{size:+3}: {best:5} {sheet[best][row]:6.2f} dB")

    # %% One vector in eight bits, by hand.
    values = np.random.default_rng(1).standard_normal(4096).astype(np.float32)
    for name in ("e4m3", "e5m2", "hif8"):
        q = octet.formats.quantize(values, name)
        noise = octet.formats.dequantize(q) - values
        print(f"{name}: {10 * np.log10(np.sum(values**2) / np.sum(noise**2)):.2f} dB with one scale")

    # %% The figure.
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print("matplotlib is not installed: no figure")
        return
    for name in names:
        plt.plot(sheet[x], sheet[name], label=name)
    plt.xlabel(x)
    plt.ylabel("signal to noise, dB")
    plt.legend()
    plt.savefig(flags.out)
    print(f"wrote {flags.out}")


if __name__ == "__main__":
    main()
