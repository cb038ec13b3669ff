#!/usr/bin/env python3
"""Added tokens beside transformers: `octet convert --add-tokens` of a real model, loaded by somebody else's program.

    tools/added_tokens_proof.py OCTET MODEL

Adds three tokens to MODEL (a folder with a tokenizer.json), loads both folders with transformers in f32 and checks that

  - ids of texts without new tokens are as before, and a new token in a text is one id, the one that Octet gives it;
  - logits of all tokens before are equal, to the bit where the head's rows are;
  - rows of the new tokens are the mean of those before;
  - Octet's own ids are transformers'.

Ends with 77 where transformers or the model is not there.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

TEXTS = ["Hello, world!", "def f(x):\n    return x  # 42", "Größe und naïve Fälle", "  two  spaces "]
NEW = ["<think>", "</think>", "<|tool|>"]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    program, model = sys.argv[1], Path(sys.argv[2])
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError:
        sys.exit(77)
    if not (model / "config.json").exists():
        sys.exit(77)

    with tempfile.TemporaryDirectory() as scratch:
        tokens, wider = Path(scratch) / "tokens.jsonl", Path(scratch) / "wider"
        tokens.write_text("".join(json.dumps({"content": one, "special": one == NEW[2]}) + "\n" for one in NEW), encoding="utf-8")
        subprocess.run([program, "convert", "--quiet", str(model), str(wider), "--add-tokens", str(tokens)], check=True,
                       stdout=subprocess.DEVNULL)
        before, after = AutoTokenizer.from_pretrained(model), AutoTokenizer.from_pretrained(wider)
        n_before = len(before)
        for text in TEXTS:
            assert before(text)["input_ids"] == after(text)["input_ids"], text
        assert after.convert_tokens_to_ids(NEW) == list(range(n_before, n_before + len(NEW)))
        mixed = f"Say {NEW[0]} then {NEW[1]}{NEW[2]} now"
        ids = after(mixed)["input_ids"]
        assert [one for one in ids if one >= n_before] == list(range(n_before, n_before + len(NEW))), ids
        assert NEW[2] not in after.decode(ids, skip_special_tokens=True) and NEW[0] in after.decode(ids, skip_special_tokens=True)
        said = subprocess.run([program, "tokenize", "--tokenizer", str(wider), "--ids"], input=mixed, check=True, capture_output=True,
                              text=True)
        assert [int(one) for one in said.stdout.split()] == ids, said.stdout
        print(f"ids: {len(TEXTS)} texts as before, new tokens {n_before} to {n_before + len(NEW) - 1}; Octet gives the same")

        row = torch.tensor([before(TEXTS[1])["input_ids"]])
        logits = []
        for folder in (model, wider):
            net = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
            with torch.no_grad():
                logits.append(net(row).logits)
            rows = net.get_input_embeddings().weight.detach()
        mean = rows[:n_before].double().mean(0).float()
        torch.testing.assert_close(rows[n_before:n_before + len(NEW)], mean.expand(len(NEW), -1), rtol=0, atol=1e-6)
        apart = (logits[0] - logits[1][..., :logits[0].shape[-1]])[..., :n_before].abs().max().item()
        print(f"logits of tokens before: largest difference {apart:g}, vocabulary {logits[0].shape[-1]} to {logits[1].shape[-1]}")
        assert apart <= 1e-4, apart


if __name__ == "__main__":
    main()
