#!/usr/bin/env python3
"""Makes tests/fixtures/tokenizers/alphabets.json: ids of byte-level BPE whose vocabularies lack most bytes, by the package `tokenizers`.

    PYTHON tools/make_alphabet_goldens.py
"""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

OUT = Path(__file__).resolve().parent.parent / "tests/fixtures/tokenizers/alphabets.json"
TEXTS = ["a b", "a\nb", "cd", "\u00e9", "~a", "a \u00e9\u00e9b cc"]


def main():
    rows = []
    for n_bytes in (256, 0xC0):
        tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(n_bytes)), "a", "b", "\u0120"]
        for falls_back in (False, True):
            for fuses in (False, True):
                model = models.BPE(vocab={token: id for id, token in enumerate(tokens)}, merges=[], unk_token="<unk>",
                                   byte_fallback=falls_back, fuse_unk=fuses)
                tokenizer = Tokenizer(model)
                tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
                tokenizer.decoder = decoders.ByteLevel()
                tokenizer = Tokenizer.from_str(tokenizer.to_str())
                # A waiting unknown token goes behind the bytes of what follows, there alone: texts of either.
                texts = TEXTS if n_bytes == 256 or not falls_back else TEXTS[:5]
                rows.append({"n_bytes": n_bytes, "byte_fallback": falls_back, "fuse_unk": fuses,
                             "ids": {text: tokenizer.encode(text).ids for text in texts}})
    OUT.write_text(json.dumps(rows, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
