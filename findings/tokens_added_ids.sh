#!/usr/bin/env bash
# Which id an added token of a tokenizer.json has.
# guess: the one that the file gives it, or an error where that cannot be: 100 is 100, and 7 and 6, listed in that order, stay so.
# seen:  in tokenizers 0.23.3 the number of tokens before it, in the order of the list: behind six tokens 100 becomes 6, and 7 and
#        6 become 6 and 7, swapped; behind a vocabulary with the ids 0, 5 and 9 the id 10 becomes 3. Nothing is said. Consecutive ids
#        in their order are kept.
. "$(dirname "$0")/common.sh"
with_packages tokenizers==0.23.3 <<'END'
import json

from tokenizers import Tokenizer

def added(vocabulary, tokens):
    read = Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
        "added_tokens": [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
                         for text, i in tokens.items()],
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocabulary, "merges": []}}))
    found = {text: read.token_to_id(text) for text in tokens}
    ids, named = read.encode("a" + next(iter(tokens))).ids, [read.id_to_token(i) for i in tokens.values()]
    print(f"vocabulary {list(vocabulary.values())}, added {tokens}: {found}, 'a' and the first are encoded as {ids}; the file's ids name {named}")
    return found, named

six = {letter: i for i, letter in enumerate("abcdef")}
ok = added(six, {"<x>": 6, "<y>": 7}) == ({"<x>": 6, "<y>": 7}, ["<x>", "<y>"])
ok &= added(six, {"<x>": 100}) == ({"<x>": 6}, [None])
ok &= added(six, {"<y>": 7, "<x>": 6}) == ({"<y>": 6, "<x>": 7}, ["<x>", "<y>"])
raise SystemExit(not (ok and added({"a": 0, "b": 5, "c": 9}, {"<x>": 10}) == ({"<x>": 3}, [None])))
END
