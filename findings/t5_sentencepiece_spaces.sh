#!/usr/bin/env bash
# transformers' T5Tokenizer from a spiece.model, beside sentencepiece itself, for models trained with other rules for spaces.
# guess: a model's rules are in its file, and the pieces are sentencepiece's, or the file is refused.
# seen:  transformers 5.24.0 reads pieces, scores and the table of the normalizer (lower case is as trained), but puts a mark before each
#        text and word, and drops further spaces, whatever the file says: models trained with treat_whitespace_as_suffix, without
#        add_dummy_prefix or without remove_extra_whitespaces get other pieces, of the first none with a mark at its end.
. "$(dirname "$0")/common.sh"
with_packages transformers==5.24.0 tokenizers==0.23.3 sentencepiece==0.2.3 protobuf==7.36.2 numpy==2.4.6 <<'END'
import os
import random

import sentencepiece as spm
from transformers import T5Tokenizer

random.seed(0)
words = ["".join(random.choices("abcdefgh", k=random.randint(2, 5))) for _ in range(60)]
with open("text", "w", encoding="utf-8") as file:
    file.writelines(" ".join(random.choices(words, k=8)) + "\n" for _ in range(2000))
rules = {"plain": {}, "lower": {"normalization_rule_name": "nmt_nfkc_cf"}, "suffix": {"treat_whitespace_as_suffix": True},
         "no dummy prefix": {"add_dummy_prefix": False}, "extra spaces": {"remove_extra_whitespaces": False}}
text, seen = f"{words[0]}   {words[1].upper()}", {}
for name, rule in rules.items():
    os.makedirs(name)
    spm.SentencePieceTrainer.train(input="text", model_prefix=f"{name}/spiece", vocab_size=200, model_type="unigram", pad_id=0, eos_id=1,
                                   unk_id=2, bos_id=-1, hard_vocab_limit=False, minloglevel=2, **rule)
    own = spm.SentencePieceProcessor(f"{name}/spiece.model").encode(text, out_type=str)
    other = T5Tokenizer.from_pretrained(name).tokenize(text)
    seen[name] = own == other
    print(f"{name}: {text!r} is {own} in sentencepiece, {other} in transformers")
raise SystemExit(seen != {"plain": True, "lower": True, "suffix": False, "no dummy prefix": False, "extra spaces": False})
END
