#!/usr/bin/env bash
# What clean_up_tokenization_spaces does to decoded text in transformers 5.
# guess: true, in tokenizer_config.json or as an argument of decode, joins a space and a full stop behind it, "n't" and the
#        like to the word before them, as in transformers 4 and as the argument's name says.
# seen:  the tokenizer says that it is true, and the text keeps its spaces, with the key and with the argument.
. "$(dirname "$0")/common.sh"
with_packages transformers==5.24.0 tokenizers==0.23.3 <<'END'
import json
import pathlib

import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

text = "Well , it is n't so ."
letters = sorted({"Ġ", *text.replace(" ", "")})
tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
folder = pathlib.Path("model")
folder.mkdir()
tokenizer.save(str(folder / "tokenizer.json"))
(folder / "tokenizer_config.json").write_text(json.dumps(
    {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": True}))
read = transformers.AutoTokenizer.from_pretrained(folder)
ids = read(text)["input_ids"]
by_key, by_argument = read.decode(ids), read.decode(ids, clean_up_tokenization_spaces=True)
print("clean_up_tokenization_spaces is", read.clean_up_tokenization_spaces)
print("decoded:", repr(by_key), "with the argument:", repr(by_argument))
raise SystemExit(not (read.clean_up_tokenization_spaces is True and by_key == by_argument == text))
END
