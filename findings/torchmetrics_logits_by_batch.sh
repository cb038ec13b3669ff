#!/usr/bin/env bash
# Accuracy of logits, all at once and batch by batch.
# guess: the same; a logit above 0 is class 1.
# seen:  torchmetrics 1.9.0 asks of each batch whether it holds logits: if all its numbers are between 0 and 1 they are probabilities, and
#        0.3 is class 0. Four right answers have an accuracy of 1 in one batch, and of 0.5 in four.
. "$(dirname "$0")/common.sh"
with_packages torchmetrics==1.9.0 torch==2.15.0 numpy==2.4.6 <<'END'
import torch
from torchmetrics.classification import BinaryAccuracy

logits, labels = torch.tensor([0.3, 0.4, -2.0, 2.0]), torch.tensor([1, 1, 0, 1])
seen = {}
for size in (4, 2, 1):
    metric = BinaryAccuracy()
    for batch in range(0, 4, size):
        metric.update(logits[batch:batch + size], labels[batch:batch + size])
    seen[size] = float(metric.compute())
    print(f"logits 0.3, 0.4, -2, 2 of labels 1, 1, 0, 1, batches of {size}: accuracy {seen[size]}")
raise SystemExit(seen != {4: 1, 2: 0.5, 1: 0.5})
END
