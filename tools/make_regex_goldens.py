#!/usr/bin/env python3
"""Makes tests/fixtures/tokenizers/regex.json: texts with each match of an expression replaced, by the package
`tokenizers`; null where nothing matches.

    PYTHON tools/make_regex_goldens.py

PYTHON has the package `tokenizers` (its expressions are Oniguruma's).
"""

import json
from pathlib import Path

from tokenizers import Regex, normalizers

OUT = Path(__file__).resolve().parent.parent / "tests/fixtures/tokenizers/regex.json"
TEXTS = [
    "", "axb aab", "tabs\tnew\nlines\r\n x \n", "हिन्दी में नमस्ते।", "ภาษาไทย ที่", "العَرَبِيَّة، ١٢", "e\u0301 a\u20dd b²c ½ x_y ⅷ Ⓐ a\u200db a·b ªº",
    "日本語、漢字。かな カナ", "Ab'S k\u212a 's'ſ É é {1} [x]-y&z", "\x0b\x08\x1b\u180e\u2028\u00a0\u0345", "0fF9gG $+<=>^`|~!?… €", "a{,} x{ 1} aB\0",
]
PATTERNS = [
    # sets of characters
    r"\w+", r"\W+", r"[\w]+", r"[^\w]", r"[\W_]", r"[^\W_]+", r"[^\W\d_]+", r"\b", r"\Bb?", r"\d+", r"\D+", r"\s", r"\S+", r"[^\S\n]+", r"[\S]+", r"\h+", r"\H+", r"[\h]",
    r"[\Hf]", r"[[:alnum:]]+", r"[[:alpha:]]+", r"[[:^alpha:]]+", r"[[:punct:]]", r"[[:lower:]]+", r"[[:upper:]]+", r"[[:word:]]+", r"[[:space:]]", r"[[:blank:]]",
    r"[[:print:]]+", r"[[:graph:]]+", r"[[:cntrl:]]", r"[[:xdigit:]]+", r"[[:ascii:]]+", r"[[:digit:]]", r"\p{Punct}", r"\p{Alpha}+", r"\p{^Lu}+", r"\P{^Lu}",
    r"\p{Uppercase_Letter}", r"\p{lu}", r"\p{Han}+", r"\p{Katakana}+", r"\p{Latin}+", r"\p{Alphabetic}+", r"\P{Alnum}+", r"\p{LC}+", r"\p{Any}", r"\p{Assigned}+",
    # classes within classes
    r"[a-z&&[^b]]", r"[^a-z&&[^b]]", r"[a-z&&b-x&&w-z]", r"[a[bx]]", r"[^a[bx]]", r"[a[^b]]", r"[^a[^b]]", r" ?[^(\s|[.,!?…。，、।۔،])]+", r"[\p{L}&&[^\p{Han}]]+",
    r"[[.a.][=x=]]", r"[]x]", r"[a-]", r"[-a]", r"[\w-]+", r"[a-c-x]", r"[a\]\[]", r"[\b\e]", r"[^]x]", r"[a&z]",
    # lines
    r"$", r"^", r"\s+$", r"^\S+", r"^\s*", r"\A.", r".\z", r".\Z", r".+", r"(?m:.+)", r"(?m)a.+", r"(?m-m:.)", r"\N+", r"\O", r"\R", r"[\r\n]+", r"\v", r"\n|\x0b",
    # repeats
    r"a{,2}", r"a{1,2}+b", r"a{2}?", r"a{1,}?", r"a**", r"x*", r"a|", r"(?:a|b)??x", r"a++b", r"a{", r"a{,}", r"x{ 1}|\{1}", r"(a|)*b", r"()",
    # groups
    r"(?i:'s)", r"(?i:k)", r"(?i:[a-z]+)", r"(?i)É|AB", r"a(?i)X|B", r"(?i:[^\s\p{L}]+)", r"(?x: a b # c" "\n" r" | x )", r"(?#note)a", r"(a)\1", r"(?<n>a)\k<n>", r"(?<=a|aa)b",
    r"(?<!a)b", r"(?>a|aa)b", r"x(?=b)", r"a(?!a)", r"a\Kb", r"(?-i:A)", r"(?i:a(?-i)B)",
    # characters
    r"\x41", r"\u0041", r"\x{e9}", r"\o{101}", r"\0", r"\t|\e", r"\'|\-|\_", r"]|}", "é|½",
]


def main():
    rows = []
    for pattern in PATTERNS:
        step = normalizers.Replace(Regex(pattern), "#")
        done = [step.normalize_str(text) for text in TEXTS]
        rows.append([pattern, [None if text == was else text for text, was in zip(done, TEXTS, strict=True)]])
        assert any(rows[-1][1]), pattern
    OUT.write_text(json.dumps({"texts": TEXTS, "rows": rows}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
