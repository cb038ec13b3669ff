#!/usr/bin/env bash
# The log loss of a probability of 0.0005, given in float16.
# guess: -log 0.0005 = 7.60, whatever the type; float16 holds numbers down to 6e-8.
# seen:  scikit-learn 1.9.1 cuts probabilities off at the spacing of numbers near 1 of their type, 0.00098 in float16: the loss is 6.93, as
#        of 0.0001 and of 0. A sure and wrong answer costs 6.93, 15.94 or 36.04 by the type of its array.
. "$(dirname "$0")/common.sh"
with_packages scikit-learn==1.9.1 numpy==2.4.6 <<'END'
import numpy as np
from sklearn.metrics import log_loss

seen = {}
for dtype in (np.float16, np.float32, np.float64):
    losses = [log_loss([0], np.array([[p, 1 - p]], dtype), labels=[0, 1]) for p in (0.0005, 0.0001, 0.0)]
    seen[dtype.__name__] = [round(float(loss), 2) for loss in losses]
    print(f"{dtype.__name__}: losses of the probabilities 0.0005, 0.0001 and 0: {seen[dtype.__name__]}")
raise SystemExit(seen != {"float16": [6.93, 6.93, 6.93], "float32": [7.6, 9.21, 15.94], "float64": [7.6, 9.21, 36.04]})
END
