#!/usr/bin/env bash
# What a tokenizer gives back for the id of an added token that is looked for in normalized text.
# guess: the content that tokenizer.json says, "Foo Bar", by decode and by id_to_token; only the search is normalized.
# seen:  the normalized content, "foo bar", by both and among the tokens of an encoding; get_added_tokens_decoder still
#        says "Foo Bar". A ByteLevel decoder reads that content as its alphabet: the token "é" decodes as the byte 0xE9
#        alone, U+FFFD, where its id gives "é".
. "$(dirname "$0")/common.sh"
with_packages tokenizers==0.23.3 <<'END'
import json

from tokenizers import Tokenizer

def tokenizer(content, normalizer=None, decoder=None):
    added = {"id": 1, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
    return Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [added], "normalizer": normalizer, "pre_tokenizer": None,
        "post_processor": None, "decoder": decoder, "model": {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"}}))

def shown(one):
    return one.decode([1], skip_special_tokens=False), one.id_to_token(1)

lower = tokenizer("Foo Bar", normalizer={"type": "Lowercase"})
byte_level = tokenizer("\u00e9", decoder={"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True})
print("lowercase, decode and id_to_token:", shown(lower), "tokens:", lower.encode("Foo Bar").tokens, "decoder's table:",
      lower.get_added_tokens_decoder()[1].content)
print("byte level, decode and id_to_token:", shown(byte_level))
raise SystemExit(not (shown(lower) == ("foo bar", "foo bar") and lower.get_added_tokens_decoder()[1].content == "Foo Bar"
                      and shown(byte_level) == ("\ufffd", "\u00e9")))
END
