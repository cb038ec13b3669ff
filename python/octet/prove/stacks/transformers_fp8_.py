"""transformers' FP8 linears: the scales and data of weights that FineGrainedFP8Config quantizes while it loads a model."""

from __future__ import annotations

from functools import partial

from .. import quantizer

PACKAGES = ("transformers", "torch")
COVERS = "Fp8Quantize of integrations.finegrained_fp8: blocks of 128 x 128 and tensors, f32 and UE8M0 scales"
DEVICES = ("cpu", "cuda")

SCHEMES = {"blocks": ((128, 128), "128x128", "float", "amax"), "tensor": (None, "tensor", "float", "amax"),
           "blocks UE8M0": ((128, 128), "128x128", "ue8m0", "e8m0")}


def proofs(device):
    for name, (block, granularity, _, rule) in SCHEMES.items():
        for source in ("f32", "bf16"):
            what = f"transformers FP8 {source} {name}"
            yield what, partial(quantizer, partial(_quantize, name), "e4m3", granularity, rule, source=source, like="torch",
                                device=device, multiple=128 if block else 1, what=what)


def _quantize(name, x):
    from types import SimpleNamespace

    from transformers.integrations.finegrained_fp8 import Fp8Quantize
    block, _, scales, _ = SCHEMES[name]
    config = SimpleNamespace(weight_block_size=block, scale_fmt=scales)
    made = Fp8Quantize(SimpleNamespace(quantization_config=config)).convert({"linear.weight": x})
    return made["linear.weight"], made["linear.weight_scale_inv"]
