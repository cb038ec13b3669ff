#!/usr/bin/env bash
# How often a repeated word counts in the ROUGE of the package rouge.
# guess: as often as the reference has it, as in ROUGE's paper: "the the the the" against "the cat" has a ROUGE-1 precision of 1/4.
# seen:  in rouge 1.0.1 words and n-grams are sets: the precision is 1, and a summary that repeats its words without end has the scores
#        of one that says them once, in ROUGE-L too. Rouge(exclusive=False), which its page does not name, does as guessed, as does
#        rouge-score 0.1.2.
. "$(dirname "$0")/common.sh"
with_packages rouge==1.0.1 rouge-score==0.1.2 <<'END'
from rouge import Rouge
from rouge_score.rouge_scorer import RougeScorer

def precisions(summary, reference):
    found = {name: {key: round(s["p"], 3) for key, s in rouge.get_scores(summary, reference)[0].items()}
             for name, rouge in (("rouge", Rouge()), ("exclusive=False", Rouge(exclusive=False)))}
    other = RougeScorer(["rouge1", "rouge2", "rougeL"]).score(reference, summary)
    found["rouge-score"] = {key: round(s.precision, 3) for key, s in other.items()}
    print(f"precision of {summary!r} against {reference!r}: {found}")
    return [list(row.values()) for row in found.values()]

words = precisions("the the the the", "the cat")
pairs = precisions("a b a b a b a b", "a b")
ok = words[0][0] == 1 and words[2][0] == 0.25 and pairs[0][0] == pairs[0][2] == 1 and pairs[2] == [0.25, 0.143, 0.25]
raise SystemExit(not ok)
END
