"""Algorithm 1 of the Scalify paper: an MLP learns MNIST in FP16; its weights are kept as data and a power of two, which is measured again
behind every update.

    python scaled_mnist.py --data FOLDER [--steps N]     FOLDER: the four .gz files of MNIST
"""

import argparse
import gzip
from pathlib import Path

import numpy as np

from octet import graph

WIDTHS, BATCH = [784, 128, 128, 10], 64


def training_step(lr):
    g = graph.Graph("mlp")
    x, labels = g.input("x", [BATCH, WIDTHS[0]]), g.input("labels", [BATCH], dtype="i32")
    names = [f"w{i}" for i in range(len(WIDTHS) - 1)]
    for i, name in enumerate(names):
        if i > 0:
            x = g.maximum(x, g.fill(shape=x.shape, value=0.0))
        x = g.gemm(x, g.parameter(name, [WIDTHS[i + 1], WIDTHS[i]]), trans_b=True)
    g.output("digit", g.argmax(x, axis=1))
    g.output("loss", g.cross_entropy(x, labels, g.fill(shape=[], value=1 / BATCH))[0])

    step = g.passes("autodiff", "simplify")
    for name in names:
        updated = step.inputs[name] - step.outputs["grad:" + name] * lr
        step.drop_output("grad:" + name)
        step.output("next_" + name, step.dynamic_rescale(updated, norm="l2"))
    step = step.scalify(scaled_inputs=names, scaled_outputs=["next_" + name for name in names])
    return names, step.passes("fp16").compile()


def read(folder, name):
    with gzip.open(Path(folder) / f"{name}-images-idx3-ubyte.gz") as images, gzip.open(Path(folder) / f"{name}-labels-idx1-ubyte.gz") as labels:
        return np.frombuffer(images.read()[16:], np.uint8).reshape(-1, 784) / np.float32(255), np.frombuffer(labels.read()[8:], np.uint8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    names, step = training_step(lr=0.1)
    random = np.random.default_rng(0)
    weights = {name: graph.ScaledArray.of(random.normal(0, (2 / n_in) ** 0.5, (n_out, n_in)), dtype="float16")
               for name, n_in, n_out in zip(names, WIDTHS, WIDTHS[1:])}
    images, labels = read(options.data, "train")
    for _ in range(options.steps):
        rows = random.integers(0, len(labels), BATCH)
        outputs = step(x=images[rows], labels=labels[rows], **weights)
        weights = {name: outputs["next_" + name] for name in names}
    images, labels = read(options.data, "t10k")
    right = [np.mean(step(x=images[i:i + BATCH], labels=labels[i:i + BATCH], **weights)["digit"] == labels[i:i + BATCH])
             for i in range(0, 30 * BATCH, BATCH)]
    print(f"accuracy {np.mean(right):.3f}, weights {weights}")


if __name__ == "__main__":
    main()
