#!/usr/bin/env bash
# What a decoder of llama.cpp does with llama.attention.causal = false.
# guess: the key belongs to encoders such as bert; of architecture "llama" it is ignored, since a decoder is causal.
# seen:  the file is loaded without a word, generates, and its tokens attend to those behind them: the log-probabilities
#        behind a prompt move by more than 0.1.
. "$(dirname "$0")/common.sh"
with_tiny_gguf <<'END'
import tiny_gguf as tiny

tiny.write("model.gguf")
causal = tiny.first_logprobs("model.gguf")
tiny.write("model.gguf", llama__attention__causal=True)
same = max(abs(x - causal[token]) for token, x in tiny.first_logprobs("model.gguf").items())
tiny.write("model.gguf", llama__attention__causal=False)
moved = max(abs(x - causal[token]) for token, x in tiny.first_logprobs("model.gguf").items())
print(f"llama.attention.causal true: moved by {same:.3f}; false: moved by {moved:.3f}")
raise SystemExit(not (same == 0 and moved > 0.1))
END
