"""The tasks of tools/papers.py about convolutional networks, in the form of papers_tasks.py."""

import json
import shutil

from papers_cnn_entries import CNN_BUDGETS, CNN_METHODS, CNN_RECIPES
from papers_tasks import mapping, of_line

TRAIN, TEST = "images/cifar10/train_jpeg.pack", "images/cifar10/test_jpegdecoded.bin.xz"
METRICS = ("acc", "top5", "cross_entropy")
# Of the public weights, as their config.json would say it, and how their pictures are prepared.
RESNET_20 = {"model_type": "resnet", "cifar": True, "image_size": 32, "embedding_size": 16, "depths": [3, 3, 3], "hidden_sizes": [16, 32, 64],
             "layer_type": "basic", "num_labels": 10}
PICTURES = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}


def network(bench, kind, recipe, seed):
    """A run's folder: recipes/resnet20-cifar10.yaml's training."""
    sizes = CNN_BUDGETS[bench.budget]
    train = sizes["cnn_train"]
    name = {"resnet": "resnet", "mobilenet": "mobilenet_v2"}[kind]
    return bench.train_with(kind, recipe, CNN_RECIPES[kind][recipe], seed, {
        "model": mapping(kind=name, **sizes[kind], image_size=32, classes=10),
        "optim": mapping(kind="sgd", lr=train["lr"], momentum=0.9, weight_decay=1e-4, clip=0, warmup=train["steps"] // 30, final_lr=0),
        "data": f"{{train: [{bench.need(TRAIN)}], val_fraction: 0, images: {{mean: [0.4914, 0.4822, 0.4465], std: [0.2023, 0.1994, 0.201], "
                "crop: random, pad: 4, flip: true}}",
        "train": mapping(steps=train["steps"], batch=train["batch"], eval_every=0, save_every=0)})


def train_cnn(bench, entry, seed):
    bench.need(TEST)
    kind = "mobilenet" if "mobilenet" in entry.name else "resnet"
    for recipe in (entry.baseline, *entry.variants):
        line = json.loads(bench.run("eval", "--json", "--model", network(bench, kind, recipe, seed), "--tasks", "cifar10", "--task-data",
                                    bench.need("images"), "--batch", 100, "--limit", CNN_BUDGETS[bench.budget]["pictures"]))[0]
        yield from of_line(recipe, line, METRICS)


def public_network(bench):
    folder = bench.work / "resnet20"
    if not folder.exists():
        weights = bench.need("weights/cifar_resnet/resnet20.safetensors")
        folder.mkdir()
        shutil.copyfile(weights, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(RESNET_20), encoding="utf-8")
        (folder / "preprocessor_config.json").write_text(json.dumps(PICTURES), encoding="utf-8")
    return folder


def ptq_cnn(bench, entry, seed):
    model = public_network(bench)
    for method in entry.variants:
        out = bench.work / f"resnet20-{method}"
        shutil.rmtree(out, ignore_errors=True)
        line = json.loads(bench.run("ptq", "--json", "--model", model, *CNN_METHODS[method].split(), "--calib", bench.need(TRAIN), "--samples", 64,
                                    "--eval", bench.need(TEST), "--batch", 50, "--limit", CNN_BUDGETS[bench.budget]["pictures"], "--out", out))
        yield from of_line(method, line["models"][0], [f"{metric}_{part}" for metric in METRICS for part in ("before", "after", "change")])
        shutil.rmtree(out)


CNN_TASKS = {task.__name__: task for task in (train_cnn, ptq_cnn)}
