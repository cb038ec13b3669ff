"""The entries of tools/papers.py: what papers print, and what Octet runs beside it. Data alone.

Published figures are those of the papers' tables; None stands for what is not known to us. A recipe is what a run file's `recipe` says.
"""

import math
from dataclasses import dataclass, field

FP8 = "Micikevicius et al. 2022, FP8 Formats for Deep Learning"
HIF8 = "Luo et al. 2024, Ascend HiFloat8 Format for Deep Learning"

BLS = "loss_scaling: global"
HIF8_RECIPE = f"base: hif8, compute: fp16, scaling: none, {BLS}"
WIDE = {"fp32": "fp32", "bf16": "bf16", "fp16": f"{{base: fp16, {BLS}}}"}
# FP8's rows quantize the patch embedding and the last layer, too; HiFloat8's leave the last layer out.
RECIPES = {
    "vit": {
        **WIDE,
        "fp8_linear": "{base: fp8_linear, override: {patch_embeddings.projection: fp8_linear, classifier: fp8_linear}}",
        "coat": "coat",
        "hif8": f"{{{HIF8_RECIPE}, override: {{patch_embeddings.projection: hif8}}}}",
    },
    "bert": {**WIDE, "hif8": f"{{{HIF8_RECIPE}, override: {{pooler.dense: hif8}}}}"},
}

# Flags of octet ptq. FP8's rows quantize the first and the last layer, too; HiFloat8's Cast and PTS are of all layers.
METHODS = {
    "int8": "--format int8 --method max --quantize-head",
    "e4m3": "--format e4m3 --method max --quantize-head",
    "e4m3-percentile": "--format e4m3 --method percentile --quantize-head",
    "e4m3-cast": "--format e4m3 --method direct --quantize-head",
    "hif8-cast": "--format hif8 --method direct --quantize-head",
    "hif8-pts": "--format hif8 --method algorithm1 --quantize-head",
}

# Models and lengths of runs. full: a ViT-small and a BERT of 4 layers, for a GPU.
BUDGETS = {
    "small": {
        "vit": {"hidden": 64, "layers": 4, "heads": 4, "ffn": 128},
        "vit_train": {"steps": 400, "batch": 64, "lr": 1e-3},
        "bert": {"hidden": 64, "layers": 2, "heads": 4, "ffn": 256},
        "bert_train": {"steps": 400, "batch": 32, "lr": 1e-3},
        "pictures": 2000,
    },
    "full": {
        "vit": {"hidden": 384, "layers": 12, "heads": 6, "ffn": 1536},
        "vit_train": {"steps": 400, "batch": 256, "lr": 5e-4},
        "bert": {"hidden": 256, "layers": 4, "heads": 4, "ffn": 1024},
        "bert_train": {"steps": 4000, "batch": 64, "lr": 5e-4},
        "pictures": 0,
    },
}


@dataclass(frozen=True)
class Published:
    """A row of a table. Without numbers: what the text says of it."""
    row: str
    baseline: float = None
    values: dict = field(default_factory=dict)  # by our variant's name
    words: str = ""


@dataclass(frozen=True)
class Criterion:
    """When ours agrees with what is published.

    within:   the mean change from the baseline is at most `points`, or two standard errors
    loss:     the mean loss against the unquantized model is at most `points`
    ordered:  the first variant loses less than the second one, by more than two standard errors
    times:    the baseline is at least as many times larger than each variant of `least` as it says, or within two standard errors of that
    """
    kind: str
    points: float = 0
    said: str = ""
    least: dict = field(default_factory=dict)  # by variant
    most_error: float = math.inf  # standard error of a mean change above which nothing is decided
    above: tuple = ()  # (metric, points): the baseline is so far above another figure of its own, else nothing is decided


@dataclass(frozen=True)
class Entry:
    name: str
    title: str
    source: str
    table: str
    task: str  # of papers_tasks.py
    model: str
    data: str
    metric: str  # of the CSV
    factor: float  # that makes it the paper's unit
    baseline: str  # recipe
    variants: tuple  # recipes, or methods of octet ptq
    criterion: Criterion
    published: tuple
    differs: str = ""  # what ours does otherwise


PICTURES = "CIFAR-10, a pack of JPEG files (all scores are lower than on the original); tested on its test set"
SMALL_VIT = "ViT with patches of 4, trained from new weights with crops and flips"
WIKI = "English Wikipedia"
MINILM = "all-MiniLM-L6-v2 (`./dev model minilm`), 6 layers of 384"
SIMILAR = (WIKI + ": a sentence, and the same with 0 to 4 quarters of its words replaced by those of another sentence of its paragraph, 300 pairs a "
                  "seed; calibrated on 32 pairs")
WITHIN = "the paired mean of the change is within 0.3 points or two standard errors"

ENTRIES = (
    Entry(
        name="fp8-vit", title="A vision transformer trained in FP8", source=FP8, table="2", task="train_vit", model=SMALL_VIT, data=PICTURES,
        metric="acc", factor=100, baseline="bf16", variants=("fp8_linear", "coat"), criterion=Criterion("within", 0.3, WITHIN),
        published=(Published("DeiT, ImageNet, top-1 %", words="within the baseline's variation from run to run; the table's numbers are not known "
                                                              "to us"),),
        differs="`coat` stands beside FP8 and is in no table of the paper; its patch embedding and last layer stay in BF16"),
    Entry(
        name="hif8-vit", title="A vision transformer trained in HiFloat8", source=HIF8, table="5", task="train_vit", model=SMALL_VIT,
        data=PICTURES, metric="acc", factor=100, baseline="fp16", variants=("hif8",), criterion=Criterion("within", 0.3, WITHIN),
        published=(Published("ViT-Base-Patch16, ImageNet, top-1 %", 79.05, {"hif8": 79.18}),
                   Published("ViT-Base-Patch32, ImageNet, top-1 %", 74.09, {"hif8": 74.08}),
                   Published("ViT-Large-Patch16, ImageNet, top-1 %", 76.08, {"hif8": 76.45}),
                   Published("ViT-Large-Patch32, ImageNet, top-1 %", 71.77, {"hif8": 71.82})),
        differs="gradients are rounded to nearest (TA; the paper's ViT rows are HR's). Both sides have global backward loss scaling (BLS), the last layer "
                "is left out"),
    Entry(
        name="hif8-vit-ptq", title="A vision transformer quantized to HiFloat8", source=HIF8, table="6", task="ptq_vit", model=SMALL_VIT + ", in FP32",
        data=PICTURES + "; calibrated on 64 training pictures", metric="acc", factor=100, baseline="fp32", variants=("hif8-cast", "hif8-pts"),
        criterion=Criterion("loss", 0.5, "at most 0.5 points are lost, which the paper calls ideal"),
        published=(Published("ViT-Base-Patch16, ImageNet, top-1 %", 81.07, {"hif8-cast": 80.86, "hif8-pts": 80.91}),
                   Published("ViT-Base-Patch32, ImageNet, top-1 %", 75.92, {"hif8-cast": 75.66, "hif8-pts": 75.85}),
                   Published("ViT-Large-Patch16, ImageNet, top-1 %", 79.68, {"hif8-cast": 79.69, "hif8-pts": 79.77}),
                   Published("ViT-Large-Patch32, ImageNet, top-1 %", 76.96, {"hif8-cast": 76.83, "hif8-pts": 76.87}))),
    Entry(
        name="fp8-bert-mlm", title="BERT's masked tokens in E4M3 and in INT8", source=FP8, table="5", task="ptq_bert_mlm",
        model="BERT, trained from new weights in FP32", data=WIKI + ", 15 % of the tokens masked", metric="nll", factor=-1, baseline="fp32",
        variants=("e4m3", "int8"), criterion=Criterion("ordered", 0, "E4M3 loses less than INT8, by more than two standard errors"),
        published=(Published("BERT, SQuAD, F1", words="E4M3 keeps F1, INT8 loses clearly; the table's numbers are not known to us"),),
        differs="the log-likelihood of masked tokens (nats, higher is better) in the place of F1; one scale for each tensor, from the largest magnitude"),
    Entry(
        name="fp8-bert-spans", title="BERT's answers in E4M3 and in INT8", source=FP8, table="5", task="ptq_bert_spans",
        model="BERT, trained from new weights in FP32",
        data=WIKI + ": the question is a sentence with a phrase of one to three words blanked, the context that sentence with its neighbours, the answer "
                    "the phrase",
        metric="f1", factor=100, baseline="fp32", variants=("e4m3", "int8"), criterion=Criterion("ordered", 0, "E4M3 loses less than INT8, by more than two standard errors"),
        published=(Published("BERT, SQuAD, F1", words="E4M3 keeps F1, INT8 loses clearly; the table's numbers are not known to us"),)),
    Entry(
        name="hif8-bert-pairs", title="BERT on pairs of sentences, trained in HiFloat8", source=HIF8, table="5", task="train_bert_pairs",
        model="BERT, trained from new weights",
        data=WIKI + ": a sentence and a perturbed copy of it (two neighbouring words swapped, one word in ten left out), or of another sentence of its "
                    "paragraph, as many of each",
        metric="f1", factor=100, baseline="fp16", variants=("hif8",), criterion=Criterion("within", 0.3, WITHIN),
        published=(Published("Bert-Large-MRPC, F1 %", 89.67, {"hif8": 90.02}),),
        differs="the pairs are made, not MRPC's, and the model has not seen text before. Both sides have global backward loss scaling (BLS), the last "
                "layer is left out"),
    Entry(
        name="hif8-bert-pairs-ptq", title="BERT on pairs of sentences, quantized to HiFloat8", source=HIF8, table="6", task="ptq_bert_pairs",
        model="BERT, trained from new weights in FP32", data="as for hif8-bert-pairs; calibrated on 64 training pairs", metric="f1", factor=100,
        baseline="fp32", variants=("hif8-cast", "hif8-pts"), criterion=Criterion("loss", 0.5, "at most 0.5 points are lost, which the paper calls ideal"),
        published=(Published("Bert-Large-MRPC, F1 %", 87.44, {"hif8-cast": 87.19, "hif8-pts": 87.63}),),
        differs="the pairs are made, not MRPC's, and the model has not seen text before"),
    Entry(
        name="fp8-minilm", title="A sentence encoder in E4M3 and in INT8", source=FP8, table="5", task="ptq_minilm", model=MINILM, data=SIMILAR,
        metric="spearman", factor=100, baseline="fp32", variants=("e4m3", "int8", "e4m3-cast", "e4m3-percentile"),
        criterion=Criterion("ordered", 0, "E4M3 loses less than INT8, by more than two standard errors"),
        published=(Published("BERT, SQuAD, F1", words="E4M3 keeps F1, INT8 loses clearly; the table's numbers are not known to us"),),
        differs="Spearman's correlation of the cosine of two embeddings with the share of words that are left, in the place of F1; no weights were "
                "trained for this"),
    Entry(
        name="hif8-minilm-ptq", title="A sentence encoder quantized to HiFloat8", source=HIF8, table="6", task="ptq_minilm", model=MINILM,
        data=SIMILAR, metric="spearman", factor=100, baseline="fp32", variants=("hif8-cast", "hif8-pts"),
        criterion=Criterion("loss", 0.5, "at most 0.5 points are lost, which the paper calls ideal"),
        published=(Published("Bert-Large-MRPC, F1 %", 87.44, {"hif8-cast": 87.19, "hif8-pts": 87.63}),
                   Published("Bert-Large-SQuADv1.1, F1 %", 91.40, {"hif8-cast": 91.39})),
        differs="Spearman's correlation of the cosine of two embeddings with the share of words that are left, in the place of F1"),
)
