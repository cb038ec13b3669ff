"""What a stack may choose, with the source that documents the choice. A choice is followed by all inputs of its kind, or it is none."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CHOICES", "Choice", "choices_of"]

_OFP8 = "OCP 8-bit Floating Point 1.0, section 5"
_MX = "OCP Microscaling Formats 1.0, section 6.3"
_CUDA = "CUDA Math API, __nv_saturation_t"
_ONNX = "ONNX, operator Cast, attribute saturate"
_ML_DTYPES = "ml_dtypes, README"
_SMALL = "e4m3 e5m2 hif8 bf16 fp16 e8m0"


@dataclass(frozen=True)
class Choice:
    """kind: which inputs.  name: what they become.  formats: where it may be chosen.  source: who documents it."""

    kind: str
    name: str
    formats: str
    source: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.name} ({self.source})"


# kinds of casts: overflow (finite, beyond the largest), inf, nan, zero, and of E8M0 negative and tie; kinds of quantizers:
# a group of zeros, and the arithmetic of scales and data, which _quantizer.py has as rules.
CHOICES = (
    Choice("overflow", "saturate", _SMALL + " int8", f"{_OFP8}: saturating; {_CUDA}"),
    Choice("overflow", "nan", "e4m3 e8m0", f"{_OFP8}: non-saturating; {_ML_DTYPES}"),
    Choice("overflow", "inf", "e5m2 hif8 bf16 fp16", f"{_OFP8}: non-saturating; IEEE 754"),
    Choice("inf", "saturate", _SMALL + " int8", f"{_CUDA}; {_ONNX}"),
    Choice("inf", "nan", "e4m3 e8m0", f"{_OFP8}: non-saturating; {_ML_DTYPES}"),
    Choice("inf", "inf", "e5m2 hif8 bf16 fp16", f"{_OFP8}; IEEE 754"),
    Choice("nan", "nan", _SMALL, f"{_OFP8}: any payload and sign"),
    Choice("nan", "zero", "hif8 int8", "Luo et al. 2024 (HiFloat8); CUDA, conversions to integers"),
    Choice("zero", "kept", _SMALL + " int8", "with its sign where the format has one: IEEE 754"),
    Choice("zero", "nan", "e8m0", f"{_ML_DTYPES}: float8_e8m0fnu has no zero"),
    Choice("negative", "magnitude", "e8m0", "PyTorch, c10/util/Float8_e8m0fnu.h: the exponent's bits alone"),
    Choice("negative", "nan", "e8m0", f"{_ML_DTYPES}: float8_e8m0fnu has no sign"),
    Choice("negative", "smallest", "e8m0", f"{_MX}: no value at or below zero; clamped"),
    Choice("tie", "up", "e8m0", "PyTorch, c10/util/Float8_e8m0fnu.h; findings/e8m0_ties.sh"),
    Choice("tie", "even", "e8m0", "IEEE 754, roundTiesToEven of the code; gfloat"),
    Choice("scale of zeros", "one", "", "Octet, docs/numerics.md"),
    Choice("scale of zeros", "smallest", "", "torchao, float8_utils.EPS: amax is at least 1e-12; E8M0: 2^-127"),
    Choice("scale of zeros", "zero", "", "amax / target as it is, with data of 0"),
    Choice("scale of 2^-127", "divides by 2^-126", "", "torchao, comment in mx_tensor.to_mx: 2^-127 is not normal in f32"),
)


def choices_of(kind: str, format: str = "") -> tuple[Choice, ...]:
    return tuple(c for c in CHOICES if c.kind == kind and (not c.formats or format in c.formats.split()))
