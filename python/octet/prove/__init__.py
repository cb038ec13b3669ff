"""Other stacks' casts, quantizers, FP8 products and 8-bit optimizers against exact definitions.

    octet.prove.cast(lambda x: x.to(torch.float8_e4m3fn), "e4m3", source="bf16", like="torch")
    octet.prove.quantizer(f, format="e4m3", granularity="row", scale="amax")
    octet.prove.scaled_mm(f, a="e4m3", b="e4m3")
    octet.prove.optimizer(make, moments=read)

Each gives a Result: cases, equal, the first difference with its bits, and the documented choices that were seen. The command
`python -m octet.prove` does so for the stacks that are installed. What is held to what: docs/prove.md.
"""

from __future__ import annotations

from ._cast import cast
from ._choices import CHOICES, Choice
from ._optimizer import optimizer
from ._quantizer import quantizer
from ._result import Difference, Result, table
from ._scaled_mm import scaled_mm

__all__ = ["CHOICES", "Choice", "Difference", "Result", "cast", "optimizer", "quantizer", "scaled_mm", "table"]
