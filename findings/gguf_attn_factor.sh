#!/usr/bin/env bash
# What llama.rope.scaling.attn_factor does in a file without any scaling of rotary positions.
# guess: nothing: it multiplies what yarn computes, as attention_factor does in transformers, where the type "default"
#        ignores it; and a file whose type is none or absent has nothing to multiply.
# seen:  it multiplies the rotated queries and keys of any file, with llama.rope.scaling.type absent and with "none";
#        the keys named yarn_... of the same file count for nothing there.
. "$(dirname "$0")/common.sh"
with_tiny_gguf <<'END'
import tiny_gguf as tiny

def moved(**keys):
    tiny.write("model.gguf", **keys)
    return max(abs(x - base[token]) for token, x in tiny.first_logprobs("model.gguf").items())

tiny.write("model.gguf")
base = tiny.first_logprobs("model.gguf")
absent, none = moved(llama__rope__scaling__attn_factor=2.0), moved(llama__rope__scaling__attn_factor=2.0, llama__rope__scaling__type="none")
beta = moved(llama__rope__scaling__yarn_beta_fast=3.0, llama__rope__scaling__yarn_attn_factor=2.0)
print(f"attn_factor 2 without a type moves log-probabilities by {absent:.3f}, with the type none by {none:.3f}")
print(f"yarn_beta_fast and yarn_attn_factor without a type: {beta:.3f}")
raise SystemExit(not (absent > 0.1 and none > 0.1 and beta == 0))
END
