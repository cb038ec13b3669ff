"""Configuration: YAML files, --set, every key with extreme values, and every flag of every command."""
import re

from attack_cases.case import EXTREMES, LEVELS, TINY, Case, mutated, mutated_text

# A command's own words that let its flags be met.
NEEDS = {"train": ["t.yaml"], "plan": ["t.yaml"], "eval": ["--model", "run"], "generate": ["--model", "run"],
         "report": ["run"], "inspect": ["run"], "opt": ["g.ir"], "formats table": ["e4m3"],
         "formats encode": ["--format", "e4m3"], "formats decode": ["--format", "e4m3"],
         "formats quantize": ["--format", "e4m3", "--shape", "2,2"], "study states": ["run"],
         "optim-step": ["--grads", "g", "--weights", "w", "--out", "o"]}
NEVER_RUN = {"bench", "compare", "doctor"}  # they take minutes by themselves; a wrong flag is met before that


def yaml(shop):
    chooser = shop.random("yaml")
    files = {"empty": "", "null": "null", "list": "[1, 2]", "scalar": "x", "nul": "\0", "tab": "\tmodel: {}",
             "alias_of_none": "a: [*a]", "aliases": "a: &a [x]\nb: [" + ",".join(["*a"] * 9) + "]\n",
             "aliases_of_aliases": "a: &a [x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nd: [*c,*c]\n",
             "deep": "[" * LEVELS, "deep_maps": "{a: " * LEVELS, "twice": TINY + "recipe: fp32\n", "merge": "<<: {recipe: fp32}\n",
             "two": TINY + "---\n" + TINY, "tag": "model: !!python/object:os.system x\n", "latin": TINY + "out: \xe9\n",
             "long_key": "k" * 100_000 + ": 1\n", "long": TINY + "#" * 1_000_000, "crlf": TINY.replace("\n", "\r\n"),
             "bom": "\ufeff" + TINY, "escape": "\x1b]0;x\x07: 1\n", "escape_value": TINY.replace("bf16", "\x1b[31m"),
             "binary": "\x7fELF", "map_as_scalar": TINY.replace("recipe: bf16", "recipe: {a: {b: c}}"),
             "unicode": "\u202erecipe: bf16\n"}
    for name, text in files.items():
        data = text.encode("latin-1" if name == "latin" else "utf-8")
        yield Case(f"yaml/{name}", ["OCTET", "plan", "c.yaml"], {"c.yaml": data})
    for i in range(90):
        data = mutated(chooser, TINY.encode()) if i % 2 else mutated_text(chooser, TINY, EXTREMES).encode()
        yield Case(f"yaml/random_{i}", ["OCTET", "plan", "c.yaml"], {"c.yaml": data})
    keys = [key for key, *_ in shop.config_keys()]
    for i in range(50):
        key = chooser.choice(keys)
        form = chooser.choice(["{k}", "={v}", "{k}={v}={v}", "{k}={{a: {v}}}", "{k}=[{v},", ".{k}={v}", "{k}.={v}",
                               "{u}={v}", "{k}\n={v}", "{k}=!!int {v}", "{k}=&a *a", "{k}={v} # x", "\x1b{k}={v}"])
        word = form.format(k=key, v=chooser.choice(EXTREMES), u=key.upper())
        yield Case(f"yaml/set_{i}", ["OCTET", "plan", "t.yaml", "--set", word.replace("\0", "")], shop.base())


def config_keys(shop):
    chooser = shop.random("config_keys")
    for key, *_ in shop.config_keys():
        for value in chooser.sample(EXTREMES, 10):
            yield Case(f"config_keys/{key}={ascii(value)[1:-1]}", ["OCTET", "plan", "t.yaml", "--set", f"{key}={value}"],
                       shop.base())


def config_train(shop):
    """The same where a run begins; layers, batch and the like may ask for more work than there is time."""
    chooser = shop.random("config_train")
    slow = re.compile(r"model\.|train\.(steps|batch|accumulate|eval_bytes)|out|data\.(train|val)$")
    keys = [key for key, *_ in shop.config_keys() if not slow.match(key)]
    for i in range(130):
        key, value = chooser.choice(keys), chooser.choice(EXTREMES)
        yield Case(f"config_train/{key}={ascii(value)[1:-1]}",
                   ["OCTET", "train", "t.yaml", "--quiet", "--set", "train.steps=2", "--set", f"{key}={value}"], shop.base())


def flags(shop):
    chooser = shop.random("flags")
    files = shop.base() | {"g": shop.floats, "w": shop.floats, "o": b"the user's own", "page.html": b"the user's own",
                           "g.ir": b"graph"}
    for words, flag, kind in shop.flags():
        if flag == "--help" or not words:
            continue
        name = " ".join(words)
        values = [None] if not kind else chooser.sample(EXTREMES, 5)
        for value in values:
            word = flag if value is None else f"{flag}={value}"
            is_long = words[0] in NEVER_RUN or flag == "--serve"  # serves until it is stopped
            if is_long and (value is None or kind.startswith("TEXT") or not is_wrong(value)):
                continue
            if flag in ("--out", "--set") or words[0] in ("train", "docs"):
                continue  # classes of their own
            case = Case(f"flags/{name} {ascii(word)[1:-1]}", ["OCTET", *words, *NEEDS.get(name, []), word], files,
                        stdin=bytes(16), binary_output=words[0] in ("formats", "generate"), make=shop.with_run, limit=60,
                        changes=("o", "report.html"))
            yield case
    for i, words in enumerate((["trian"], ["--", "train"], ["train", "--", "--resume"], ["@file"], ["\x1b[31m"], [""], ["-"],
                               ["--version=3"], ["train", "t.yaml", "x" * 100_000], ["eval", "--model"], ["formats", "list", "x"],
                               ["opt", "--passes", "evil"], ["opt", "--passes", ","], ["generate", "--model", "\n"])):
        yield Case(f"flags/words_{i}", ["OCTET", *words], files, must_refuse=words[0] != "--")


def is_wrong(value):
    try:
        int(value)
        return abs(int(value)) > 2**63
    except ValueError:
        return value not in ("", "true", "1e18", "0x10", "1_000", "1e308", "1e-320")


CLASSES = {"yaml": yaml, "config_keys": config_keys, "config_train": config_train, "flags": flags}
