#!/usr/bin/env bash
# chrF of a short text that equals its reference, in torchmetrics, whose page says that it follows sacreBLEU.
# guess: 100, as in sacreBLEU.
# seen:  torchmetrics 1.9.0 gives 16.7 for "a", 50 for "yes", 83.3 for "hello": orders of n-grams that a text is too short for
#        count as 0 in the mean. sacreBLEU 2.6.0 leaves them out and gives 100, unless its eps_smoothing is on; then it gives the same.
. "$(dirname "$0")/common.sh"
with_packages torchmetrics==1.9.0 sacrebleu==2.6.0 torch==2.15.0 numpy==2.4.6 <<'END'
import sacrebleu
from torchmetrics.text import CHRFScore

seen = {}
for text in ("a", "yes", "hello", "good day"):
    metric = CHRFScore(n_word_order=0)
    metric.update([text], [[text]])
    smooth = sacrebleu.CHRF(eps_smoothing=True).corpus_score([text], [[text]]).score
    seen[text] = [round(v, 1) for v in (100 * float(metric.compute()), sacrebleu.corpus_chrf([text], [[text]]).score, smooth)]
    print(f"{text!r} against itself: torchmetrics {seen[text][0]}, sacrebleu {seen[text][1]}, with eps_smoothing {seen[text][2]}")
raise SystemExit(seen != {"a": [16.7, 100, 16.7], "yes": [50, 100, 50], "hello": [83.3, 100, 83.3], "good day": [100, 100, 100]})
END
