#!/usr/bin/env python3
"""Random small templates, rendered by octet and by Jinja2: no difference is expected.

    tools/template_diff.py [--program build/octet] [--count 2000] [--seed 1] [--keep FOLDER]

Needs jinja2 (python3 -m venv build/venv && build/venv/bin/pip install jinja2). Both render the same template with the same
variables; both must give the same text, or both must fail. What octet refuses as outside the supported subset is counted
apart. Exits 1 if there is a difference; --keep stores the templates that differ.
"""

import argparse
import collections
import json
import random
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import template_environment  # noqa: E402

NAMES = ["i", "f", "s", "u", "l", "d", "n", "t", "ns", "nope", "messages", "x", "y"]
WORDS = ["", "a", "ab", "Hello World", "  pad ", "<b>&'\"", "é€😀", "line\nline\n", "a,b,c", "ß ΑΣ", "UPPER", "3", "4.5", "x=1"]
KEYS = ["a", "b", "role", "content", "k k"]


class Grammar:
    def __init__(self, rng):
        self.rng = rng

    def pick(self, *choices):
        return self.rng.choice(choices)

    def text(self):
        return json.dumps(self.rng.choice(WORDS), ensure_ascii=False) if self.rng.random() < 0.7 else repr(
            self.rng.choice(WORDS))

    def integer(self):
        return str(self.rng.choice([0, 1, 2, 3, 5, 10, -1, -2, 7, 100]))

    def atom(self):
        return self.pick(self.text, self.integer, lambda: self.rng.choice(NAMES), lambda: self.rng.choice(NAMES),
                         lambda: self.pick("1.5", "0.1", "2.0", "1e20", "1e-7", "-0.5"),
                         lambda: self.pick("true", "false", "none", "None", "True"),
                         lambda: "messages[" + self.integer() + "]", lambda: "d." + self.rng.choice(KEYS[:4]),
                         lambda: "d[" + repr(self.rng.choice(KEYS)) + "]")()

    def typed(self, depth):
        """An expression whose types fit, mostly."""
        text = lambda: self.pick(self.text, self.text, lambda: "s", lambda: "u", lambda: self.text_expr(depth - 1))()  # noqa: E731
        items = lambda: self.pick("l", "messages", "[3, 1, 2]", "['b', 'A', 'c']", "range(4)", "(1, 'x')", "'héé'|list",  # noqa: E731
                                  "'a b c'.split()", "d.values()", "d|list", "messages|map(attribute='role')")
        number = lambda: self.pick(self.integer, self.integer, lambda: "i", lambda: "f", lambda: "1.5", lambda: f"({items()}|list|length)")()  # noqa: E731
        return self.pick(
            lambda: f"({text()}).{self.method(0)}", lambda: f"({text()})|{self.filter(0)}",
            lambda: f"({items()})|{self.filter(0)}", lambda: f"({items()})|list|{self.filter(0)}",
            lambda: f"({number()})|{self.filter(0)}", lambda: f"d|{self.filter(0)}", lambda: f"d.{self.method(0)}",
            lambda: f"({number()} {self.pick('+', '-', '*', '/', '//', '%')} {number()})",
            lambda: f"({number()} {self.pick('<', '>', '<=', '==', '!=')} {number()})",
            lambda: f"({text()} {self.pick('<', '+', '~', 'in', '==', 'not in')} {text()})",
            lambda: f"({text()})[{self.slice()}]", lambda: f"({items()}|list)[{self.slice()}]",
            lambda: f"({self.atom()} is {self.test()})", lambda: f"({self.atom()})|string", lambda: f"({items()})|tojson",
            lambda: f"({self.typed(depth - 1) if depth > 0 else self.atom()}) ~ {text()}", items, number, text,
            lambda: f"({text()}) * {self.pick('0', '2', '3')}", lambda: f"[{text()}, {number()}, none, true]",
            lambda: "{" + f"'k': {number()}, {text()}: {text()}" + "}", lambda: f"m({text()}, {number()})",
        )()

    def text_expr(self, depth):
        return self.pick(self.text, lambda: "s", lambda: f"(s ~ {self.text()})", lambda: f"({self.text()} + u)",
                         lambda: f"{self.text()}|safe", lambda: f"({self.text()}).strip()", lambda: f"{self.text()}.upper()")()

    def expr(self, depth):
        if depth <= 0:
            return self.atom()
        if self.rng.random() < 0.75:
            return self.typed(depth)
        e = lambda: self.expr(depth - 1)  # noqa: E731
        return self.pick(
            self.atom, self.atom,
            lambda: f"({e()} {self.pick('+', '-', '*', '/', '//', '%', '~', '+', '~')} {e()})",
            lambda: f"({e()} {self.pick('==', '!=', '<', '<=', '>', '>=', 'in', 'not in')} {e()})",
            lambda: f"({e()} {self.pick('and', 'or')} {e()})",
            lambda: f"(not {e()})", lambda: f"(-{e()})",
            lambda: f"({e()} if {e()} else {e()})", lambda: f"({e()} if {e()})",
            lambda: f"({e()} is {self.pick('', 'not ')}{self.test()})",
            lambda: f"{e()}|{self.filter(depth - 1)}", lambda: f"({e()})|{self.filter(depth - 1)}",
            lambda: f"({e()}).{self.method(depth - 1)}", lambda: f"({e()}).{self.method(depth - 1)}",
            lambda: f"{self.pick('s', 'u', 'd', 'l')}.{self.method(depth - 1)}",
            lambda: f"{self.pick('s', 'u', 'l')}[{self.slice()}]",
            lambda: f"({e()})[{e()}]", lambda: f"({e()}).{self.rng.choice(KEYS[:4])}",
            lambda: f"[{e()}, {e()}]", lambda: f"({e()}, {e()})", lambda: f"({e()},)",
            lambda: "{" + f"{self.text()}: {e()}, {self.atom()}: {e()}" + "}",
            lambda: f"range({self.pick('3', '1, 5', '5, 0, -2', '0')})",
            lambda: f"dict(a={e()}, b={e()})", lambda: f"m({e()})", lambda: f"m({e()}, y={e()})",
        )()

    def slice(self):
        part = lambda: self.pick("", "", self.integer())  # noqa: E731
        return f"{part()}:{part()}" + self.pick("", "", f":{self.pick('1', '2', '-1', '-2')}")

    def test(self):
        return self.pick("defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number", "string",
                         "mapping", "sequence", "iterable", f"eq {self.atom()}", f"in {self.atom()}", f"ne {self.atom()}",
                         f"equalto({self.atom()})")

    def filter(self, depth):
        a = self.atom
        return self.pick(
            "upper", "lower", "title", "capitalize", "trim", "length", "count", "string", "list", "first", "last", "join",
            "sort", "int", "float", "abs", "round", "tojson", "items|list", "safe",
            "sum", "min", "max", "unique|list", "indent", "dictsort",
            f"default({a()})", f"default({a()}, true)", f"d({a()}, boolean={a()})", f"join({self.text()})",
            f"replace({self.text()}, {self.text()})", f"replace({self.text()}, {self.text()}, 1)", f"trim({self.text()})",
            f"int({a()})", f"round({self.pick('0', '1', '2')})", f"round(1, {self.pick(repr('ceil'), repr('floor'))})",
            f"tojson(indent={self.pick('2', '0', 'none', '4')})", "tojson(sort_keys=true)", "tojson(ensure_ascii=true)",
            "tojson(separators=(',', ':'))",
            f"indent({self.pick('2', '2, true', '1, false, true', repr('> '))})",
            "sort(reverse=true)", f"sort(attribute={self.rng.choice(KEYS[:4])!r})", "sort(case_sensitive=true)",
            f"map({self.pick('upper', 'lower', 'string', 'length', 'int', 'trim')!r})|list",
            f"map(attribute={self.rng.choice(KEYS[:4])!r})|list", f"map(attribute='a', default={a()})|list",
            f"select({self.pick('string', 'defined', 'none', 'number', 'mapping')!r})|list", "select|list", "reject|list",
            f"select('in', {a()})|list", f"reject('equalto', {a()})|list",
            f"selectattr({self.rng.choice(KEYS[:4])!r})|list", f"selectattr('role', 'equalto', {self.text()})|list",
            f"rejectattr('role', 'defined')|list", "dictsort(true)", "dictsort(by='value')", "sum(start=1)",
            "min(attribute='a')", "unique(case_sensitive=true)|list")

    def method(self, depth):
        e = self.atom
        return self.pick(
            "upper()", "lower()", "title()", "capitalize()", "strip()", "lstrip()", "rstrip()", "split()", "isdigit()", "items()",
            "keys()", "values()", f"strip({self.text()})", f"lstrip({self.text()})", f"rstrip({self.text()})",
            f"split({self.text()})", f"split({self.text()}, {self.integer()})", f"split(none, {self.integer()})",
            f"startswith({e()})", f"endswith({e()})", f"find({self.text()})", f"count({e()})", f"replace({self.text()}, {self.text()})",
            f"replace({self.text()}, {self.text()}, {self.integer()})", f"join({e()})", f"join([{self.text()}, {self.text()}])",
            f"get({e()})", f"get({e()}, {e()})", f"get({self.rng.choice(KEYS)!r})", "append(1)", "pop()", "_x")

    def tag(self, inside, opening="{%", closing="%}"):
        return opening + self.pick("", "", "-", "+") + f" {inside} " + self.pick("", "", "-", "+") + closing

    def data(self):
        return self.pick("", " ", "\n", "text", "  \n  ", "a\n", "\n b", "x {# note #} y", "\t", "{#- c -#}\n")

    def body(self, depth, loops=0):
        return "".join(self.data() + self.statement(depth, loops) for _ in range(self.rng.randint(1, 2))) + self.data()

    def statement(self, depth, loops):
        e = lambda: self.expr(self.rng.randint(0, 2))  # noqa: E731
        variable = self.pick("x", "y", "i", "s", "l")
        output = lambda: "{{" + self.pick("", "-") + f" {e()} " + self.pick("", "-") + "}}"  # noqa: E731
        if depth <= 0:
            return output()
        b = lambda: self.body(depth - 1, loops)  # noqa: E731
        inner = lambda: self.body(depth - 1, loops + 1)  # noqa: E731
        choices = [
            output, output, output,
            lambda: self.tag(f"set {variable} = {e()}"), lambda: self.tag(f"set x, y = {e()}, {e()}"),
            lambda: self.tag(f"set ns.{self.pick('a', 'b')} = {e()}"),
            lambda: self.tag(f"set {variable}" + self.pick("", " | upper")) + self.body(depth - 1) + self.tag("endset"),
            lambda: self.tag(f"if {e()}") + b() + self.pick("", self.tag(f"elif {e()}") + b())
            + self.pick("", self.tag("else") + b()) + self.tag("endif"),
            lambda: self.tag(f"for {variable} in {self.pick(e(), 'messages', 'l', 'd', 'range(3)')}"
                             + self.pick("", "", f" if {e()}", f" if {variable}")) + inner()
            + self.pick("", self.tag("else") + b()) + self.tag("endfor"),
            lambda: self.tag(f"for x, y in {self.pick('d.items()', 'd|items', 'd|dictsort', e())}") + inner()
            + self.tag("endfor"),
            lambda: self.tag(f"macro m(x, y={e()})") + self.body(depth - 1) + self.tag("endmacro"),
            lambda: self.tag("filter " + self.filter(0)) + self.body(depth - 1) + self.tag("endfilter"),
            lambda: self.tag("generation") + self.body(depth - 1) + self.tag("endgeneration"),
            lambda: self.tag(f"call m({e()})") + self.body(depth - 1) + self.tag("endcall"),
        ]
        if loops:
            loop = self.pick("index", "index0", "first", "last", "length", "revindex", "previtem", "nextitem", "revindex0")
            choices += [lambda: "{{ loop." + loop + " }}", lambda: "{{ loop." + loop + " }}",
                        lambda: self.tag(f"if {e()}") + self.tag(self.pick("break", "continue")) + self.tag("endif")]
        return self.rng.choice(choices)()

    def template(self):
        start = "{% set ns = namespace(a=1, b='q') %}" + self.pick("", "{% macro m(x, y=2) %}[{{ x }}{{ y }}]{% endmacro %}")
        return start + self.body(3)

    def value(self, depth):
        leaf = [lambda: self.rng.choice(WORDS), lambda: self.rng.randint(-5, 12), lambda: self.rng.choice([1.5, 2.0, -0.25, 1e16]),
                lambda: None, lambda: True, lambda: False]
        if depth <= 0:
            return self.rng.choice(leaf)()
        return self.rng.choice(leaf + [lambda: [self.value(depth - 1) for _ in range(self.rng.randint(0, 3))],
                                       lambda: {k: self.value(depth - 1) for k in self.rng.sample(KEYS, 2)}])()

    def variables(self):
        message = lambda: {"role": self.rng.choice(["user", "assistant", "system"]), "content": self.rng.choice(WORDS),  # noqa: E731
                           "a": self.rng.randint(0, 3)}
        return {"messages": [message() for _ in range(self.rng.randint(0, 3))], "i": self.rng.randint(-3, 9),
                "f": self.rng.choice([0.5, 2.0, -1.25, 3.14159, 100.0]), "s": self.rng.choice(WORDS), "u": "aé€😀 ß\tz",
                "l": [self.value(1) for _ in range(self.rng.randint(0, 4))],
                "d": {k: self.value(2) for k in self.rng.sample(KEYS, 3)}, "n": None, "t": True}


def by_octet(program, folder, number, template, variables):
    source, context = folder / f"{number}.jinja", folder / f"{number}.json"
    source.write_text(template, encoding="utf-8", newline="")
    context.write_text(json.dumps(variables), encoding="utf-8")
    done = subprocess.run([program, "chat", "render", "--template", source, "--context", context, "--now",
                           "2024-07-26T12:34:56"], capture_output=True, timeout=60)
    error = done.stderr.decode(errors="replace")
    source.unlink(), context.unlink()
    if done.returncode == 0:
        return "text", done.stdout.decode()
    return ("refused" if "supported subset" in error or "from run to run" in error or "64 bits" in error
            or "at most" in error else "error"), f"{done.returncode} {error}"


def by_jinja(template, variables):
    given = dict({"tools": None, "documents": None, "add_generation_prompt": False}, **variables)
    try:
        text = template_environment.make().from_string(template).render(**given)
        text.encode()
        return "text", text
    except Exception as error:  # noqa: BLE001 whatever Python raises
        return "error", f"{type(error).__name__}: {error}"


def main():
    warnings.simplefilter("ignore")  # of the Python that Jinja compiles to
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/octet")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(4) as pool:
        cases = []
        for number in range(options.count):
            grammar = Grammar(random.Random(options.seed * 1_000_003 + number))
            cases.append((grammar.template(), grammar.variables()))
        ours = pool.map(lambda n: by_octet(options.program, Path(folder), n, *cases[n]), range(len(cases)))
        for number, ((template, variables), (kind, got)) in enumerate(zip(cases, ours)):
            wanted_kind, wanted = by_jinja(template, variables)
            same = kind == wanted_kind and (kind == "error" or got == wanted)
            counts["refused" if kind == "refused" else "text" if same and kind == "text" else "error" if same
                   else "different"] += 1
            if same or kind == "refused":
                continue
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{number}.jinja").write_text(template, encoding="utf-8", newline="")
                (options.keep / f"{number}.json").write_text(json.dumps(variables, indent=1), encoding="utf-8")
            print(f"--- case {number}\n{template}\nexpected {wanted_kind}: {wanted!r}\ngot      {kind}: {got!r}")
    print(f"{options.count} templates, seed {options.seed}: {counts['text']} texts equal, {counts['error']} fail in both, "
          f"{counts['refused']} refused by octet, {counts['different']} different")
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
