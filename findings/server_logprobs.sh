#!/usr/bin/env bash
# What a server of llama.cpp that is asked for log-probabilities (n_probs) answers for a token that is no whole character.
# guess: the token is there with its id, its bytes and its log-probability, as a text that is replaced.
# seen:  the answer's text is U+FFFD, "logprobs" is null, and the token's id and log-probability are nowhere; a token that is
#        a whole character, drawn from the same model, has them.
. "$(dirname "$0")/common.sh"
with_tiny_gguf <<'END'
import tiny_gguf as tiny

TOKENS = tiny.TOKENS[:-2] + ["\u00e9"] + tiny.TOKENS[-2:]  # the byte E9: half of a character
tiny.write("model.gguf", tokens=TOKENS)
half = len(TOKENS) - 3

def asked(bias):
    choice = tiny.ask("model.gguf", n_predict=1, n_probs=4, temperature=0.0, logit_bias=[[half, bias]])["choices"][0]
    return choice["text"], choice["logprobs"]

whole, part = asked(-100.0), asked(100.0)
print("a whole character:", repr(whole[0]), "logprobs of", whole[1] and [one["token"] for one in whole[1]["content"]])
print("a part of one:", repr(part[0]), "logprobs", part[1])
raise SystemExit(not (whole[1] is not None and part[1] is None and part[0] == "\ufffd"))
END
