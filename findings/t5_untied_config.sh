#!/usr/bin/env bash
# What T5Config makes of tie_word_embeddings=False, as the config.json of T5 1.1 and Flan-T5 has it.
# guess: the attribute is False, the saved file says false, and the head is a matrix of its own.
# seen:  the argument becomes another attribute, scale_decoder_outputs = False. tie_word_embeddings itself is True, in the
#        object and in the file that it saves, of T5 and mT5. A file that this version has saved says true whether the head
#        is tied or not; without scale_decoder_outputs in it, a reader cannot tell which of the two it was.
. "$(dirname "$0")/common.sh"
with_packages transformers==5.24.0 <<'END'
import json
import pathlib

import transformers

def seen(kind, tied):
    config = kind(tie_word_embeddings=tied)
    folder = pathlib.Path(f"{kind.__name__}-{tied}")
    config.save_pretrained(folder)
    saved = json.loads((folder / "config.json").read_text())
    return config.tie_word_embeddings, config.scale_decoder_outputs, saved["tie_word_embeddings"], saved.get("scale_decoder_outputs")

found = {(kind.__name__, tied): seen(kind, tied) for kind in (transformers.T5Config,) for tied in (False, True)}
mt5 = transformers.MT5Config(tie_word_embeddings=False).tie_word_embeddings
for (name, tied), values in found.items():
    print(f"{name}(tie_word_embeddings={tied}): tie_word_embeddings, scale_decoder_outputs = {values[:2]}, in the file {values[2:]}")
print("MT5Config(tie_word_embeddings=False).tie_word_embeddings =", mt5)
raise SystemExit(not (found["T5Config", False][:3] == (True, False, True) and found["T5Config", True][:3] == (True, True, True) and mt5 is True))
END
