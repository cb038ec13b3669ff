#!/usr/bin/env bash
# How a server of llama.cpp samples where the request says nothing of it, from a GGUF file with general.sampling keys.
# guess: metadata under "general." describe a file; a request without a temperature is sampled at the server's own, 0.8,
#        and two seeds give two texts.
# seen:  general.sampling.temp and general.sampling.top_k in the file take the place of the server's values: with 0.0, or
#        with 1, each seed gives the greedy text.
. "$(dirname "$0")/common.sh"
with_tiny_gguf <<'END'
import tiny_gguf as tiny

def texts(**keys):
    tiny.write("model.gguf", **keys)
    return [tiny.ask("model.gguf", n_predict=12, seed=seed)["choices"][0]["text"] for seed in (1, 2)]

plain = texts()
cold, narrow = texts(general__sampling__temp=0.0), texts(general__sampling__top_k=1)
greedy = tiny.ask("model.gguf", n_predict=12, temperature=0.0)["choices"][0]["text"]
print("two seeds, no key:", *plain)
print("general.sampling.temp 0:", *cold)
print("general.sampling.top_k 1:", *narrow)
print("greedy:", greedy)
raise SystemExit(not (plain[0] != plain[1] and set(cold) == set(narrow) == {greedy}))
END
