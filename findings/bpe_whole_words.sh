#!/usr/bin/env bash
# Which token "ignore_merges": true finds for a word where the BPE model has an end_of_word_suffix.
# guess: the word with its suffix: "abc" is the token "abc</w>", as the merges give.
# seen:  in tokenizers 0.23.3 the word without it: where the vocabulary has a token "abc", which stands for the inside of words,
#        the two words become it, and the text comes back as "abcabc". A word whose only token is "abc</w>" is merged as ever.
. "$(dirname "$0")/common.sh"
with_packages tokenizers==0.23.3 <<'END'
import json

from tokenizers import Tokenizer

def tokens(ignore, vocabulary):
    read = Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": {"type": "BPEDecoder", "suffix": "</w>"},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": "</w>",
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": ignore,
                  "vocab": {token: i for i, token in enumerate(vocabulary)}, "merges": [["a", "b"], ["ab", "c</w>"]]}}))
    encoded = read.encode("abc abc")
    print(f"ignore_merges {ignore}, of {vocabulary}: {encoded.tokens}, decoded {read.decode(encoded.ids)!r}")
    return encoded.tokens, read.decode(encoded.ids)

letters = ["a", "b", "c", "c</w>", "ab", "abc</w>"]
merged = (["abc</w>", "abc</w>"], "abc abc")
ok = tokens(False, [*letters, "abc"]) == tokens(True, letters) == merged
raise SystemExit(not (ok and tokens(True, [*letters, "abc"]) == (["abc", "abc"], "abcabc")))
END
