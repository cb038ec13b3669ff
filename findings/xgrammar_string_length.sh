#!/usr/bin/env bash
# Which JSON strings xgrammar's grammar of a schema allows where their length is bounded.
# guess: the same as without bounds, as long as they are of that length: lines and quotes inside, which JSON writes as \n and \", too.
# seen:  xgrammar 0.2.9 allows no escape at all where minLength is 1 or more or a maxLength is there: no text with a line's end, a quote
#        or a backslash can be written. Without bounds it can.
. "$(dirname "$0")/common.sh"
with_packages xgrammar==0.2.9 torch==2.15.0 numpy==2.4.6 <<'END'
import json

import xgrammar as xgr

bytes_and_end = [bytes([i]) for i in range(256)] + [b"</s>"]
info = xgr.TokenizerInfo(bytes_and_end, vocab_type=xgr.VocabType.RAW, vocab_size=257, stop_token_ids=[256])
compiler = xgr.GrammarCompiler(info, max_threads=1)

def allows(schema, value):
    matcher = xgr.GrammarMatcher(compiler.compile_json_schema(json.dumps(schema)))
    return all(matcher.accept_token(byte) for byte in json.dumps(value).encode()) and matcher.accept_token(256)

texts, seen = ["two words", "two\nlines", 'a "word"', "a\\b"], []
for bound in ({}, {"minLength": 1}, {"maxLength": 100}):
    seen.append([allows({"type": "string", **bound}, text) for text in texts])
    print(bound or "no bound", dict(zip(texts, seen[-1])))
raise SystemExit(seen != [[True] * 4, [True, False, False, False], [True, False, False, False]])
END
