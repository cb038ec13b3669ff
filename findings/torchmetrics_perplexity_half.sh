#!/usr/bin/env bash
# Perplexity of logits in float16, in torchmetrics.
# guess: exp of the mean cross entropy, as torch's own loss has it of the same logits.
# seen:  torchmetrics 1.9.0 takes the logarithm of probabilities in the type of the logits, where small ones are 0: of two tokens one
#        that is 20 below the most probable one makes the perplexity infinite, where exp of cross_entropy is 22026. In float32 the
#        same happens 110 below.
. "$(dirname "$0")/common.sh"
with_packages torchmetrics==1.9.0 torch==2.15.0 numpy==2.4.6 <<'END'
import math

import torch
from torchmetrics.text import Perplexity

def both(gap, dtype):
    logits = torch.zeros(1, 2, 4, dtype=dtype)
    logits[0, 0, 0] = logits[0, 1, 1] = gap                       # the first token is found, the second is not
    labels = torch.tensor([[0, 0]])
    metric = Perplexity()
    metric.update(logits, labels)
    return float(metric.compute()), float(torch.nn.functional.cross_entropy(logits[0], labels[0]))

seen = []
for gap, dtype in ((16, torch.float16), (20, torch.float16), (20, torch.float32), (110, torch.float32)):
    metric, loss = both(gap, dtype)
    seen.append(math.isinf(metric))
    print(f"{str(dtype)[6:]}, {gap} below the most probable token: perplexity {metric:.5g}, exp of cross_entropy {math.exp(loss):.5g}")
raise SystemExit(seen != [False, True, False, True])
END
