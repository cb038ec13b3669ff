"""Chat templates with their contexts, conversations, and the tokenizer.json that reads both."""
import gzip
import json

from attack_cases.case import EXTREMES, ITEMS, LEVELS, TEXT_BYTES, UNPACKED, Case, mutated, mutated_text
from attack_cases.models import CHATML, limited, model_files, tokenizer_json

CONTEXT = {"messages": [{"role": "user", "content": "a question"}, {"role": "assistant", "content": "an answer"}],
           "add_generation_prompt": True, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}
LONG = "{% set s='é'*300 %}"
LOOPS = "{% for i in range(60) %}{% for j in range(60) %}{% set a = BODY %}{% endfor %}{% endfor %}"
FILTERS = ["length", "upper", "lower", "title", "capitalize", "trim", "list", "first", "last", "unique", "sort", "join(s)", "replace('é',s)",
           "tojson", "tojson(indent=9999)", "indent(9999)", "string", "int", "float", "abs", "round", "sum", "items", "dictsort", "safe",
           "default(s)", "max", "min", "map('upper')", "select('none')", "reject('in',s)", "wordcount", "center(9999)", "reverse", "batch(2)"]
PIECES = ["{{ x", "{% for %}", "{% if %}", "{% endfor %}", "{% for i in range(300) %}x{% endfor %}", "{{ 'a' * 20000 }}", "{{ 2 ** 10 }}",
          "{{ [0] * 20000 }}", "{{ range(300) | list }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ -9223372036854775808 // -1 }}",
          "{{ 9223372036854775807 + 1 }}", "{{ messages[1000000000000000000000000000000] }}", "{{ messages[-9223372036854775808:] }}", "{{ 'abc'[::0] }}",
          "{{ 'abc'[::-9223372036854775808] }}", "{{ ''.__class__ }}", "{{ messages.__class__.__mro__ }}", "{{ self }}", "{% include 'x' %}",
          "{% import 'x' as y %}", "{% extends '/etc/passwd' %}", "{{ raise_exception('a\\noctet: all is well') }}", "{{ raise_exception('\x1b[31m') }}",
          "{{ raise_exception('x' * 20000) }}", "{{ raise_exception() }}", "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(80) }}",
          "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(12) }}", "{{ namespace(a=1).b.c }}", "{% set x = namespace() %}{% set x.x = x %}{{ x | tojson }}",
          "{{ strftime_now('%' * 999) }}", "{{ strftime_now('%Q%99d') }}", "{{ '\ud7ff\\ud800' }}", "{{ '\\x' }}", "{# no end", "{% raw %}",
          "{% generation %}", "{% generation %}{% generation %}x{% endgeneration %}{% endgeneration %}", "{% call f() %}{% endcall %}",
          "{% filter upper %}", "{% break %}", "{{ loop }}", "{{ caller() }}", "{{ ''.join(messages) }}", "{{ 'x'.split('') }}",
          "{{ 'x' is undefined_test }}", "{{ x | nofilter }}", "{{ x.y.z }}", "{{ none.x }}", "{{ [] | first }}", "{{ [] | max }}", "{{ {}['a'] }}",
          "{{ [1,'a',none] | sort }}", "{{ 'é'.encode() }}", "{{ '%s' % messages }}", "{{ '{0.__class__}'.format(1) }}", "{{ dict(**messages) }}",
          "{{ range(*messages) }}", "{{ 1 if }}", "{{ not }}", "{{ ~ }}", "{{ a.b( }}", "{{ 'a' 'b' }}", "{{ 0x }}", "{{ 1e999 }}", "{{ 1__0 }}",
          "{{ 'a' in none }}", "{{ messages | tojson(ensure_ascii=false) }}", "{{ messages | map(attribute='x.y.z') | list }}"]
DEEP = {"brackets": ("{{ ", "[", "1", "]", " }}"), "parentheses": ("{{ ", "(", "1", ")", " }}"), "not": ("{{ ", "not ", "1", "", " }}"),
        "minus": ("{{ ", "-", "1", "", " }}"), "filters": ("{{ 'a'", "|upper", "", "", " }}"), "calls": ("{{ f", "()", "", "", " }}"),
        "blocks": ("", "{% if 1 %}", "x", "{% endif %}", ""), "loops": ("", "{% for a in [1] %}", "x", "{% endfor %}", ""),
        "attributes": ("{{ a", ".a", "", "", " }}"), "ternaries": ("{{ ", "1 if 1 else ", "1", "", " }}"), "sums": ("{{ 1", " + 1", "", "", " }}"),
        "concatenations": ("{{ 1", " ~ 1", "", "", " }}"), "sets": ("", "{% set a %}", "x", "{% endset %}", ""), "dicts": ("{{ ", "{1:", "1", "}", " }}")}


def template(shop):
    chooser = shop.random("template")

    def case(what, text, context=CONTEXT, *more, **options):
        data = context if isinstance(context, bytes) else json.dumps(context).encode()
        return Case(f"template/{what}", limited("chat", "render", "--template", "t.jinja", "--context", "c.json", *more),
                    {"t.jinja": text.encode("utf-8", "surrogatepass"), "c.json": data}, limit=60, binary_output=True, **options)

    for i, piece in enumerate(PIECES):
        yield case(f"piece_{i}", piece)
        yield case(f"piece_mask_{i}", CHATML + piece, CONTEXT, "--mask")
    for name in FILTERS:
        yield case(f"filter_{name[:12]}", LONG + LOOPS.replace("BODY", f"s|{name}"))
        yield case(f"filter_of_message_{name[:12]}", "{{ messages|" + name.replace("s)", "'a')") + " }}")
    for name in ("s is lower", "s is upper", "s == s ~ ''", "s is sameas s", "s.endswith(s)", "s.startswith(s)", "s.count('é')", "s.find('a')",
                 "s.strip()", "s.split('a')", "s in s", "s[::-1]", "s[1:]", "s ~ s", "s.title()", "s.replace('a', s)", "s < s ~ 'a'", "s.isdigit()"):
        yield case(f"work_{name[:12]}", LONG + LOOPS.replace("BODY", name))
    for depth in (1, 5, 10):
        yield case(f"indent_{depth}", "{{ " + "[" * depth + "1" + "]" * depth + "|tojson(indent='x'*1000) }}")
    for name, (head, opened, middle, closed, tail) in DEEP.items():
        for depth in (10, LEVELS, 100):
            yield case(f"deep_{name}_{depth}", head + opened * depth + middle + closed * depth + tail)
    names = "".join(f"{{% set v{i} = {i} %}}" for i in range(2000))
    for what, text in (("names", names), ("growing", "{% set s='a' %}" + "{% set s=s~s %}" * 15 + "{{ s }}"), ("empty", ""),
                       ("large", "x" * 70_000), ("nul", "a\0b"), ("lists", "{% set l=[1] %}" + "{% set l=l+l %}" * 15),
                       ("append", "{% set l=[] %}{% for i in range(99) %}{% for j in range(99) %}{% set _=l.append(1) %}{% endfor %}{% endfor %}")):
        yield case(what, text)
    for i in range(230):
        text = mutated(chooser, CHATML.encode()).decode("latin-1") if i % 2 else mutated_text(chooser, CHATML, EXTREMES)
        yield case(f"random_{i}", text, CONTEXT, *(("--mask",) if i % 3 == 0 else ()))
    yield from contexts(case, chooser)


def contexts(case, chooser):
    values = [None, 0, -1, 2**63, 1e308, "", "x" * TEXT_BYTES, [], {}, [[]], {"a": {"b": 1}}, True, "\x1b[31m", "\u202e", "<|im_end|>"]
    for key in ("messages", "tools", "add_generation_prompt", "documents", "bos_token"):
        for value in values:
            yield case(f"context_{key}={ascii(value)[:12]}", CHATML, CONTEXT | {key: value})
    for key in ("role", "content", "tool_calls", "name", "weight"):
        for value in values:
            yield case(f"message_{key}={ascii(value)[:12]}", CHATML, {"messages": [{"role": "user", "content": "a"} | {key: value}]})
    for what, data in (("deep", b'{"messages":' + b"[" * LEVELS), ("surrogate", b'{"messages":[{"role":"user","content":"\\ud800"}]}'),
                       ("nul", b'{"messages":[{"role":"user","content":"\\u0000"}]}'), ("empty", b""), ("many", json.dumps(
                           {"messages": [{"role": "user", "content": "a"}] * (10 * ITEMS)}).encode()), ("twice", b'{"messages":[],"messages":1}')):
        yield case(f"context_{what}", CHATML, data)
    for i in range(60):
        yield case(f"context_random_{i}", CHATML, mutated(chooser, json.dumps(CONTEXT).encode()))


def conversations(shop):
    chooser = shop.random("conversations")
    files = model_files(shop)
    forms = {"messages": {"messages": CONTEXT["messages"]}, "sharegpt": {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
             "alpaca": {"instruction": "a", "input": "b", "output": "c"}, "prompt": {"prompt": "a", "completion": "b"}}

    def case(what, data, *more, name="c.jsonl", **options):
        return Case(f"conversations/{what}",
                    limited("train", "m.yaml", "--quiet", "--set", "data.tokenizer=m", "--set", "data.val_fraction=0", "--set", "data.chat.template=chatml", "--set", "train.steps=1", "--set",
                            f"data.train=[{name}]", *more), shop.base() | files | {name: data}, limit=60, **options)

    values = [None, 0, -1, 2**63, 10**400, 1e308, "", "x" * (2 * TEXT_BYTES), [], {}, [[]], True, "\x1b[31m", "<|im_end|>", "<|im_start|>user", [{"type": "text", "text": "a"}],
              [{"type": "image"}]]
    for form, record in forms.items():
        good = json.dumps(record).encode() + b"\n"
        yield case(f"{form}_whole", good * 20)
        for key in record:
            yield case(f"{form}_without_{key}", json.dumps({k: v for k, v in record.items() if k != key}).encode() + b"\n" + good * 9)
            for value in values:
                yield case(f"{form}_{key}={ascii(value)[:12]}", json.dumps(record | {key: value}).encode() + b"\n" + good * 9)
        for i in range(30):
            bad = mutated(chooser, good) if i % 2 else mutated_text(chooser, good.decode(), EXTREMES).encode() + b"\n"
            yield case(f"{form}_random_{i}", good * 3 + bad + good * 3)
    message = forms["messages"]["messages"]
    for key in ("role", "content", "weight", "train", "tool_calls", "name"):
        for value in values:
            changed = [message[0], message[1] | {key: value}]
            yield case(f"message_{key}={ascii(value)[:12]}", json.dumps({"messages": changed}).encode() + b"\n")
    good = json.dumps(forms["messages"]).encode() + b"\n"
    for what, data in (("empty", b""), ("bom", b"\xef\xbb\xbf" + good), ("crlf", good.replace(b"\n", b"\r\n") * 9), ("nuls", bytes(9999)), ("list", b"[]\n" * 9),
                       ("no_utf8", good.replace(b"an answer", b"\xff\xfe")), ("deep", b"[" * LEVELS), ("surrogate", good.replace(b"an answer", b"\\ud800")),
                       ("long", good.replace(b"an answer", b"a" * (2 * TEXT_BYTES))), ("many", json.dumps({"messages": message * ITEMS}).encode())):
        yield case(what, data)
    packed = gzip.compress(b'{"messages":[{"role":"user","content":"' + b"a" * UNPACKED + b'"}]}\n', mtime=0)
    yield case("unpacks_to_much", packed, name="c.jsonl.gz")
    yield case("cut", gzip.compress(good * 500)[:-20], name="c.jsonl.gz")
    for key in ("template", "messages", "role", "content", "conversations", "instruction", "output", "prompt", "completion", "text"):
        for value in chooser.sample(EXTREMES, 6):
            yield case(f"{key}={ascii(value)[1:-1]}", good * 9, "--set", f"data.chat.{key}={value}")


REGEXES = ["(?:a?){8}b", "(?:a?){10}[bc]", "(a|aa){6}$", "(a(?R)?b|.)", "(?:a(?1)?)(b)", "(*LIMIT_MATCH=4294967295)(?:a?){8}b", "\\K", "\\C", "(?=(a+))\\1*b",
           "(" * 30 + ")" * 30, "a" * 2000, "(a{30}){30}", "[", "(?<n", "\\p{Xx}", "(?<=a*)b", "^", "$", "", "\\b", "(?i:é)", "[\\x{10ffff}]",
           "(?!)", ".|\\s+(?!\\S)", "\\p{L}+", "(?s).*", "\\X", "(*UCP)\\w", "(?C1)", "\\Q"]


def tokenizer(shop):
    chooser = shop.random("tokenizer_json")
    text = (shop.text.decode()[:300] + "aaaaaaaaaaaa é ß \u0301 \U0001f600 ") * 2

    def case(what, tokens, **options):
        data = tokens if isinstance(tokens, bytes) else json.dumps(tokens).encode()
        words = ("tokenize", "--tokenizer", "tokenizer.json", "--ids")
        return Case(f"tokenizer_json/{what}", limited(*words), {"tokenizer.json": data}, stdin=text.encode(), limit=60, **options)

    base = tokenizer_json()
    yield case("whole", base)
    split = {"type": "Split", "pattern": {"String": "z"}, "behavior": "Isolated", "invert": False}
    replace = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    steps = {"pre_tokenizer": ("pretokenizers", [split, {"type": "Digits", "individual_digits": True}, {"type": "Whitespace"}, base["pre_tokenizer"],
                                                 {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}, {"type": "Punctuation"}]),
             "normalizer": ("normalizers", [replace, {"type": "NFC"}, {"type": "NFKD"}, {"type": "Lowercase"}, {"type": "Prepend", "prepend": "aaaaaaaa"},
                                            {"type": "Strip", "strip_left": True, "strip_right": True}]),
             "decoder": ("decoders", [replace, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": "a", "start": 1, "stop": 0}])}
    for part, (key, kinds) in steps.items():
        for kind in kinds:
            for n in (1, 3, 12, 13):
                yield case(f"{part}_{kind['type']}_{n}", base | {part: {"type": "Sequence", key: [kind] * n}})
        nested = kinds[0]
        for _ in range(LEVELS):
            nested = {"type": "Sequence", key: [nested]}
        yield case(f"{part}_nested", base | {part: nested})
        for value in ([], {}, "x", 0, {"type": "x"}, {"type": None}, {"type": "Sequence"}, {"type": "Sequence", key: {}}, {"type": "\x1b[31m"}):
            yield case(f"{part}={ascii(value)[:24]}", base | {part: value})
    for i, regex in enumerate(REGEXES):
        pattern = {"pattern": {"Regex": regex}}
        uses = {"pre_tokenizer": split | pattern, "normalizer": replace | pattern, "decoder": replace | pattern}
        for part, step in uses.items():
            yield case(f"regex_{i}_{part}", base | {part: step})
        for behavior in ("Removed", "MergedWithPrevious", "Contiguous", "x"):
            yield case(f"regex_{i}_{behavior}", base | {"pre_tokenizer": split | pattern | {"behavior": behavior, "invert": i % 2 == 0}})
    model = base["model"]
    for what, change in (("vocab_list", {"vocab": []}), ("no_merges", {"merges": []}), ("merge_of_none", {"merges": [["q", "zz"]]}), ("merge_text", {"merges": ["s c"]}),
                         ("merge_bad", {"merges": ["s"]}), ("merges_many", {"merges": [["s", "c"]] * 10_000}), ("type", {"type": "Unigram"}), ("wordpiece", {"type": "WordPiece"}),
                         ("unk", {"unk_token": "none"}), ("dropout", {"dropout": 0.5}), ("suffix", {"end_of_word_suffix": "</w>"}), ("fallback", {"byte_fallback": True}),
                         ("ids_large", {"vocab": model["vocab"] | {"zz": 2**31}}), ("ids_huge", {"vocab": model["vocab"] | {"zz": 10**30}}),
                         ("ids_negative", {"vocab": model["vocab"] | {"zz": -1}}), ("ids_twice", {"vocab": model["vocab"] | {"zz": 1}}),
                         ("ids_text", {"vocab": model["vocab"] | {"zz": "1"}}), ("hole", {"vocab": model["vocab"] | {"zz": 3_000_000}}),
                         ("long_token", {"vocab": model["vocab"] | {"z" * 5000: 300}})):
        yield case(f"model_{what}", base | {"model": model | change})
    added = base["added_tokens"][0]
    for key in added:
        for value in (None, 0, -1, 2**31, 2**63, "", "a", "\x1b[31m", [], {}, True, "x" * 5000, "\x85"):
            yield case(f"added_{key}={ascii(value)[:12]}", base | {"added_tokens": [added | {key: value}]})
    yield case("added_many", base | {"added_tokens": [added | {"id": 300 + i, "content": f"<{i}>"} for i in range(5000)]})
    source = json.dumps(base)
    for i in range(200):
        yield case(f"random_{i}", mutated(chooser, source.encode()) if i % 2 else mutated_text(chooser, source, EXTREMES).encode())


CLASSES = {"template": template, "conversations": conversations, "tokenizer_json": tokenizer}
