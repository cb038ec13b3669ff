"""The entries of tools/papers.py that train and quantize convolutional networks. Data alone, as papers_entries.py."""

from papers_entries import FP8, HIF8, HIF8_RECIPE, PICTURES, WIDE, WITHIN, Criterion, Entry, Published

# FP8's rows quantize the first convolution and the last layer, too; HiFloat8's leave the last layer out.
FIRST, LAST = {"resnet": "conv1", "mobilenet": "conv_stem.first_conv.convolution"}, {"resnet": "linear", "mobilenet": "classifier"}
DEPTHWISE = "'*.conv_3x3.convolution': bf16"


def recipes(kind):
    ends = f"{FIRST[kind]}: fp8_linear, {LAST[kind]}: fp8_linear"
    return {
        **WIDE,
        "fp8_linear": f"{{base: fp8_linear, override: {{{ends}}}}}",
        "fp8-wide-depthwise": f"{{base: fp8_linear, override: {{{ends}, {DEPTHWISE}}}}}",
        "coat": "coat",
        "hif8": f"{{{HIF8_RECIPE}, override: {{{FIRST[kind]}: hif8}}}}",
        **{f"hif8-{rounding}": f"{{{HIF8_RECIPE}, gradient_rounding: {rounding}, override: {{{FIRST[kind]}: hif8}}}}" for rounding in ("hr", "sr", "rne")},
    }


CNN_RECIPES = {kind: recipes(kind) for kind in FIRST}

# As METHODS of papers_entries.py; first16: the first convolution stays as it is.
CNN_METHODS = {
    "int8": "--format int8 --method max --quantize-head",
    "e4m3": "--format e4m3 --method max --quantize-head",
    "hif8-cast": "--format hif8 --method direct --quantize-head",
    "hif8-pts": "--format hif8 --method algorithm1 --quantize-head",
    "hif8-cast-first16": "--format hif8 --method direct --quantize-head --keep conv1",
    "hif8-pts-first16": "--format hif8 --method algorithm1 --quantize-head --keep conv1",
}

# full: recipes/resnet20-cifar10.yaml's training, for a GPU.
CNN_BUDGETS = {
    "small": {
        "resnet": {"cifar": "true", "depths": "[1, 1, 1]"},
        "mobilenet": {"depth_multiplier": 0.25, "output_stride": 8, "finegrained_output": "false"},
        "cnn_train": {"steps": 400, "batch": 64, "lr": 0.1},
        "pictures": 2000,
    },
    "full": {
        "resnet": {"cifar": "true", "depths": "[3, 3, 3]"},
        "mobilenet": {"depth_multiplier": 0.5, "output_stride": 8, "finegrained_output": "false"},
        "cnn_train": {"steps": 11719, "batch": 128, "lr": 0.1},
        "pictures": 0,
    },
}

RESNET = "ResNet for CIFAR, trained from new weights with crops and flips by SGD"
MOBILENET = "MobileNetV2, trained from new weights with crops and flips by SGD"
RESNET_20 = "ResNet-20 with public weights (weights/cifar_resnet), its batch norms folded into the convolutions"

CNN_ENTRIES = (
    Entry(
        name="fp8-resnet", title="A residual network trained in FP8", source=FP8, table="2", task="train_cnn", model=RESNET, data=PICTURES,
        metric="acc", factor=100, baseline="bf16", variants=("fp8_linear", "coat"), criterion=Criterion("within", 0.3, WITHIN),
        published=(Published("ResNet-50, ImageNet, top-1 %", words="within the baseline's variation from run to run; the table's numbers are not "
                                                                   "known to us"),),
        differs="`coat` stands beside FP8 and is in no table of the paper; its first convolution and last layer stay in BF16"),
    Entry(
        name="fp8-mobilenet", title="MobileNetV2 trained in FP8", source=FP8, table="2", task="train_cnn", model=MOBILENET, data=PICTURES,
        metric="acc", factor=100, baseline="bf16", variants=("fp8_linear",), criterion=Criterion("within", 0.4, "the paired mean of the change is "
        "within 0.4 points or two standard errors; the paper has this network outside the baseline's variation, so that `differs` is its outcome"),
        published=(Published("MobileNet v2, ImageNet, top-1 %", words="loses accuracy; the table's numbers are not known to us"),)),
    Entry(
        name="fp8-mobilenet-depthwise", title="MobileNetV2 in FP8, its depthwise convolutions in 16 bits", source=FP8, table="2", task="train_cnn",
        model=MOBILENET, data=PICTURES, metric="acc", factor=100, baseline="bf16", variants=("fp8-wide-depthwise",),
        criterion=Criterion("within", 0.4, "the paired mean of the change is within 0.4 points or two standard errors"),
        published=(Published("MobileNet v2, ImageNet, top-1 %", words="no such row"),),
        differs="depthwise convolutions stay in BF16, by `recipe.override`"),
    Entry(
        name="hif8-resnet", title="A residual network trained in HiFloat8", source=HIF8, table="5", task="train_cnn", model=RESNET, data=PICTURES,
        metric="acc", factor=100, baseline="fp16", variants=("hif8", "hif8-hr"), criterion=Criterion("within", 0.3, WITHIN),
        published=(Published("ResNet18, ImageNet, top-1 %", 70.78, {"hif8": 70.64}), Published("ResNet34, ImageNet, top-1 %", 74.41, {"hif8": 74.25}),
                   Published("ResNet50, ImageNet, top-1 %", 77.36, {"hif8-hr": 77.39}),
                   Published("ResNet101, ImageNet, top-1 %", 78.84, {"hif8-hr": 78.78}),
                   Published("ResNet152, ImageNet, top-1 %", 79.42, {"hif8": 79.41})),
        differs="the paper prints the better of two backward roundings, nearest (TA, `hif8`) and hybrid (HR, `hif8-hr`); here are both. Both sides have "
                "global backward loss scaling (BLS), the last layer is left out"),
    Entry(
        name="hif8-rounding", title="Roundings of gradients in HiFloat8", source=HIF8, table="of backward roundings", task="train_cnn", model=RESNET,
        data=PICTURES, metric="acc", factor=100, baseline="fp16", variants=("hif8", "hif8-hr", "hif8-sr", "hif8-rne"),
        criterion=Criterion("within", 0.3, WITHIN),
        published=(Published("YoLo-V3-Tiny, COCO2017, mAP50-95", 16.63, {"hif8": 14.96, "hif8-hr": 16.69, "hif8-sr": 16.43}),
                   Published("ResNet50, ImageNet, top-1 %", words="ties away (TA) are better than ties to even (TE) by 0.06 points on average")),
        differs="the paper finds the roundings apart in a detector alone, YoLo-V3-Tiny; here is the classifier of `hif8-resnet`, of which it prints the "
                "better of TA (`hif8`) and HR (`hif8-hr`). `hif8-sr` rounds gradients stochastically, `hif8-rne` to nearest with ties to even. Forward passes "
                "round ties away in all"),
    Entry(
        name="hif8-mobilenet", title="MobileNetV2 trained in HiFloat8", source=HIF8, table="5", task="train_cnn", model=MOBILENET, data=PICTURES,
        metric="acc", factor=100, baseline="fp16", variants=("hif8",), criterion=Criterion("within", 0.4, "the paired mean of the change is within "
                                                                                          "0.4 points or two standard errors"),
        published=(Published("MobileNet-V2, ImageNet, top-1 %", 72.41, {"hif8": 72.10}),),
        differs="both sides have global backward loss scaling (BLS), the last layer is left out"),
    Entry(
        name="hif8-resnet-ptq", title="A residual network quantized to HiFloat8", source=HIF8, table="6", task="ptq_cnn", model=RESNET_20,
        data=PICTURES + "; calibrated on 64 training pictures", metric="acc", factor=100, baseline="fp32",
        variants=("hif8-pts", "hif8-cast", "hif8-pts-first16", "hif8-cast-first16", "e4m3", "int8"),
        criterion=Criterion("ordered", 0, "Algorithm 1 (`hif8-pts`) loses less than the cast, by more than two standard errors"),
        published=(Published("ResNet18, ImageNet, top-1 %", 69.76, {"hif8-cast": 68.98, "hif8-pts": 69.48}),
                   Published("ResNet34, ImageNet, top-1 %", 73.31, {"hif8-cast": 72.56, "hif8-pts": 72.96}),
                   Published("ResNet50, ImageNet, top-1 %", 76.13, {"hif8-cast": 74.85, "hif8-pts": 75.44, "hif8-pts-first16": 75.93}),
                   Published("ResNet101, ImageNet, top-1 %", 77.37, {"hif8-cast": 76.48, "hif8-pts": 76.89}),
                   Published("ResNet152, ImageNet, top-1 %", 78.31, {"hif8-cast": 77.76, "hif8-pts": 77.96})),
        differs="the public weights were trained on the original pictures. Of the first layer in FP16 the paper says the loss alone (0.20)"),
)
