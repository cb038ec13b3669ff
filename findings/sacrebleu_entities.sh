#!/usr/bin/env bash
# What a translation with HTML entities in place of characters costs in sacrebleu.
# guess: points: a "&lt;" where the reference has "<" is other text, and BLEU is not 100.
# seen:  in sacrebleu 2.6.0 BLEU with the default tokenizer reads &quot; &amp; &lt; &gt; as their characters and leaves "<skipped>" out:
#        100. &apos; and &#34; count as they stand. chrF and the tokenizers "none", "char" and "intl" do as guessed; TER reads the
#        four only when told to normalize.
. "$(dirname "$0")/common.sh"
with_packages sacrebleu==2.6.0 <<'END'
from sacrebleu.metrics import BLEU, CHRF, TER

metrics = {"BLEU": BLEU(), "BLEU none": BLEU(tokenize="none"), "BLEU intl": BLEU(tokenize="intl"), "BLEU char": BLEU(tokenize="char"),
           "chrF": CHRF(), "100 - TER": TER(), "100 - TER normalized": TER(normalized=True)}

def scores(translation, reference):
    found = {}
    for name, metric in metrics.items():
        score = metric.corpus_score([translation], [[reference]]).score
        found[name] = round(100 - score if "TER" in name else score, 1)
    print(f"{translation!r} for {reference!r}: {found}")
    return [name for name in metrics if found[name] == 100]

all_four = scores('say &quot;yes&quot; if a &lt; b &amp; b &gt; c', 'say "yes" if a < b & b > c')
skipped = scores("she bought <skipped>a red and a blue car", "she bought a red and a blue car")
other = scores("he said &#34;yes&#34; and it&apos;s so", "he said \"yes\" and it's so")
print(all_four, skipped, other)
raise SystemExit(not ("BLEU" in all_four and "BLEU" in skipped and not other and not {"chrF", "BLEU none"} & {*all_four, *skipped}))
END
