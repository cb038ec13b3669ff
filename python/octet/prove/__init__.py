"""Other stacks' casts, quantizers and FP8 products against exact definitions.

    octet.prove.cast(lambda x: x.to(torch.float8_e4m3fn), "e4m3", source="bf16", like="torch")
    octet.prove.quantizer(f, format="e4m3", granularity="row", scale="amax")
    octet.prove.scaled_mm(f, a="e4m3", b="e4m3")

Each gives a Result: cases, equal, the first difference with its bits, and the documented choices that were seen.
"""

from __future__ import annotations

from ._cast import cast
from ._choices import CHOICES, Choice
from ._quantizer import quantizer
from ._result import Difference, Result, table
from ._scaled_mm import scaled_mm

__all__ = ["CHOICES", "Choice", "Difference", "Result", "cast", "quantizer", "scaled_mm", "table"]
