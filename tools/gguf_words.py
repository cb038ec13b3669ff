#!/usr/bin/env python3
"""Whether each name of word rules that src/text/gguf_pre_tokenizers.cpp lists gives llama.cpp's ids: a CSV of name, BOS, texts that differ.

    PYTHON tools/gguf_words.py PROGRAM

PYTHON has the packages `gguf`, `numpy`, `tokenizers` and `xllamacpp`, which packs llama.cpp; without them the exit status is 77. The
vocabulary is trained without any words, so that its merges cross every border that a rule may have, and has one token that no merge makes.
Exit status 0 where no text of any name differs, but of names whose texts Octet normalizes to NFC those that are not.
"""

import json
import re
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

from gguf_proof import serve, tokenize

NFC = ("qwen2", "deepseek-r1-qwen")
ROOT = Path(__file__).resolve().parent.parent
TEXTS = [
    " ", "a", "the train", " the train ", "Octet trains models in 8-bit floating point.", "line\nbreak\r\n\n  indented",
    "don't you'll I'M we'Re it's DON'T HE'LL", "1234567890 3.14159 12 123 1234", "na\u00efve caf\u00e9 \u2014 \u201cquotes\u201d",
    "\u65e5\u672c\u8a9e \u0442\u0435\u043a\u0441\u0442 \u03b5\u03bb\u03bb", "\U0001f44d\U0001f3fd emoji \U0001f469\u200d\U0001f4bb", "tabs\t\tand  double  spaces", "a  \n\n b\n  c \n",
    "\u00a0nbsp\u2003em", "x" * 40, "#include <cstdint>\nint main() { return 0; }\n", "'\u017f long s", "\u0661\u0662\u0663 \u00bd \u216b", "CamelCaseWords and SHOUTING HTTPServer2x",
    "a/b//c\\d $100 +5% ^_^ ~x|y", "e\u0301 decomposed", "...!?  ?? !\n\n!x", "price: 1,234.56\u20ac", "foo_bar __init__ 0x1F", "  leading\n\n\n\ntrailing   ",
    "\u4e2d\u6587\uff0c\u6807\u70b9\u3002\u6578\u5b57123", "\ufb01 ligature \u0130 \u00df", "\u3000wide\u3000space", "don\u2019t \u2018x\u2019 it\u2019s", "an unmergeable word unmergeable",
]


def vocabulary():
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    numbers = [f"{i:03} {i // 10}" for i in range(1000)]
    tokenizer.train_from_iterator([text for text in TEXTS for _ in range(20)] + numbers, trainers.BpeTrainer(
        vocab_size=3000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<s>", "</s>"], show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    model["vocab"].setdefault("\u0120unmergeable", len(model["vocab"]))
    merges = [merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"]]
    return sorted(model["vocab"], key=model["vocab"].get), [" ".join(merge) for merge in merges if "unmerg" not in "".join(merge)]


def write(path, name, tokens, merges):
    import gguf
    import numpy as np
    width, ffn = 32, 48
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in {"block_count": 1, "context_length": 4096, "embedding_length": width, "feed_forward_length": ffn,
                       "attention.head_count": 2}.items():
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_string("tokenizer.ggml.pre", name)
    writer.add_array("tokenizer.ggml.tokens", tokens)
    writer.add_array("tokenizer.ggml.token_type", [3, 3] + [1] * (len(tokens) - 2))
    writer.add_array("tokenizer.ggml.merges", merges)
    writer.add_uint32("tokenizer.ggml.bos_token_id", 0)
    writer.add_uint32("tokenizer.ggml.eos_token_id", 1)
    shapes = {"token_embd": (len(tokens), width), "output_norm": (width,), "blk.0.attn_norm": (width,), "blk.0.ffn_norm": (width,)}
    shapes |= {f"blk.0.attn_{part}": (width, width) for part in ("q", "k", "v", "output")}
    shapes |= {"blk.0.ffn_gate": (ffn, width), "blk.0.ffn_up": (ffn, width), "blk.0.ffn_down": (width, ffn)}
    for tensor, shape in shapes.items():
        writer.add_tensor(tensor + ".weight", np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def their_ids(path):
    server = serve(path)
    for text in TEXTS:
        yield tokenize(server, text, add_special=True)


def main():
    try:
        import gguf  # noqa: F401
        import tokenizers  # noqa: F401
        import xllamacpp  # noqa: F401
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    tokens, merges = vocabulary()
    names = re.findall(r'\{"([^"]+)", Words::', (ROOT / "src/text/gguf_pre_tokenizers.cpp").read_text())
    n_wrong = 0
    print("name,bos,texts,differ")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "words.gguf"
        for name in names:
            write(path, name, tokens, merges)
            theirs = list(their_ids(path))
            ours = [[int(x) for x in subprocess.run([sys.argv[1], "tokenize", "--tokenizer", path, "--ids"], input=text.encode(), check=True,
                                                    capture_output=True).stdout.split()] for text in TEXTS]
            rows = zip(TEXTS, ours, theirs, strict=True)
            differ = sum(a != b for text, a, b in rows if name not in NFC or unicodedata.is_normalized("NFC", text))
            n_wrong += differ
            print(f"{name},{int(theirs[0][:1] == [0])},{len(TEXTS)},{differ}", flush=True)
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
