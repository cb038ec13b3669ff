#!/usr/bin/env bash
# Which parts of a tokenizer.json AutoTokenizer reads where tokenizer_config.json names "BertTokenizer".
# guess: the file is what is run, as under "PreTrainedTokenizerFast"; keys of tokenizer_config.json such as do_lower_case
#        change its normalizer where they are there.
# seen:  of the file only the vocabulary and the added tokens count. A normalizer that keeps case, a pre-tokenizer that
#        splits at spaces alone and a template without [CLS] are replaced by the class's own, whose absent do_lower_case is
#        true: "Ab.c" becomes [CLS] a ##b . c [SEP] and not Ab.c. Under "PreTrainedTokenizerFast" the file is run as it is.
. "$(dirname "$0")/common.sh"
with_packages transformers==5.24.0 tokenizers==0.23.3 <<'END'
import json
import pathlib

import transformers

words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Ab.c", "a", "##b", ".", "c"]
flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
tokenizer = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [{"id": i, "content": words[i]} | flags for i in range(5)],
    "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": False},
    "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
              "vocab": {word: i for i, word in enumerate(words)}}}

def tokens(name):
    folder = pathlib.Path(name)
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    read = transformers.AutoTokenizer.from_pretrained(folder)
    return read.convert_ids_to_tokens(read("Ab.c")["input_ids"])

own, file = tokens("BertTokenizer"), tokens("PreTrainedTokenizerFast")
print("BertTokenizer:", own)
print("PreTrainedTokenizerFast:", file)
raise SystemExit(not (own == ["[CLS]", "a", "##b", ".", "c", "[SEP]"] and file == ["Ab.c"]))
END
