#!/usr/bin/env python3
"""Writes tests/fixtures/templates/cases.json: small templates with what Jinja2 makes of them.

    tools/make_template_goldens.py [--check]

Each case names the construct that it covers (`filter:upper`); docs/chat_templates.md lists the same constructs, which a test
compares. Needs jinja2 3.1 (python3 -m venv build/venv && build/venv/bin/pip install jinja2).
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import template_environment  # noqa: E402

TARGET = Path(__file__).resolve().parent.parent / "tests/fixtures/templates/cases.json"

VARIABLES = {
    "s": "Hello World", "u": "é€😀 ñ ΑΔ", "n": None, "i": 7, "f": 2.5, "b": True, "e": "",
    "l": [3, 1, 2], "w": ["b", "A", "c"], "d": {"b": 2, "a": 1, "C": None}, "html": "<a href='x'>&\"</a>",
    "m": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}, {"role": "user", "content": "ok"}],
    "nested": {"name": "f", "args": {"x": [1, 2.0, None, True, "é\n\"q\""], "y": {}}, "z": []},
}

FILTERS = {
    "abs": "{{ -3|abs }}{{ -2.5|abs }}",
    "capitalize": "{{ 'hELLO wORLD'|capitalize }}",
    "count": "{{ l|count }}", "d": "{{ nope|d('x') }}",
    "default": "{{ nope|default('x') }}{{ e|default('y', true) }}{{ none|default('z') }}",
    "dictsort": "{{ d|dictsort }}{{ {'x': 2, 'y': 1}|dictsort(by='value', reverse=true) }}",
    "first": "{{ l|first }}{{ []|first }}", "float": "{{ '1.5'|float }}{{ 'x'|float(2) }}",
    "indent": "{{ 'a\nb\n\nc'|indent(2) }}{{ 'a\nb'|indent('> ', true) }}", "int": "{{ '42.9'|int }}{{ 'x'|int(5) }}{{ '-7'|int }}{{ ' 1e3 '|int }}{{ 'inf'|int(3) }}",
    "items": "{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}{{ nope|items|list }}", "join": "{{ w|join(', ') }}{{ m|join('/', attribute='role') }}",
    "last": "{{ l|last }}", "length": "{{ u|length }}{{ d|length }}{{ nope|length }}", "list": "{{ 'aé'|list }}{{ d|list }}",
    "lower": "{{ u|lower }}", "map": "{{ w|map('upper')|list }}{{ m|map(attribute='role')|join(',') }}{{ m|map(attribute='x', default='-')|list }}",
    "max": "{{ l|max }}{{ w|max }}", "min": "{{ l|min }}{{ w|min }}", "reject": "{{ l|reject('ne', 1)|list }}",
    "rejectattr": "{{ m|rejectattr('role', 'equalto', 'user')|list }}", "replace": "{{ s|replace('o', '0', 1) }}{{ 112|replace(1, 2) }}",
    "round": "{{ 2.5|round }}{{ 2.567|round(2) }}{{ 2.1|round(0, 'ceil') }}{{ 7|round }}",
    "safe": "{{ '<b>'|safe }}", "select": "{{ l|select('ne', 1)|list }}{{ [0, 1, '']|select|list }}",
    "selectattr": "{{ m|selectattr('role', 'equalto', 'user')|map(attribute='content')|list }}{{ m|selectattr('role')|list|length }}",
    "sort": "{{ w|sort }}{{ w|sort(true, true) }}{{ m|sort(attribute='content')|map(attribute='content')|list }}",
    "string": "{{ 1.0|string + none|string + true|string }}", "sum": "{{ l|sum }}{{ m|sum(attribute='x', start=1) if false else '' }}",
    "title": "{{ 'hello wORLD-wide (x)'|title }}",
    "tojson": "{{ nested|tojson }}\n{{ nested|tojson(indent=2) }}\n{{ nested|tojson(separators=(',', ':'), ensure_ascii=true, sort_keys=true) }}",
    "trim": "[{{ '  x \n'|trim }}][{{ 'xxaxx'|trim('x') }}]",
    "unique": "{{ ['a', 'A', 'b']|unique|list }}{{ ['a', 'A']|unique(true)|list }}", "upper": "{{ u|upper }}{{ 1|upper }}",
}

TESTS = {name: "{{ V is NAME }}{{ s is NAME }}{{ n is NAME }}{{ nope is NAME }}{{ l is NAME }}{{ d is NAME }}{{ i is NAME }}"
         "{{ f is NAME }}{{ b is not NAME }}".replace("V", "(1, 2)").replace("NAME", name)
         for name in ("defined undefined none boolean true false integer float number string mapping sequence iterable").split()}
TESTS |= {"in": "{{ 1 is in l }}{{ 'x' is in 'abc' }}"}
for _name, _op in {"eq": "==", "equalto": "==", "ne": "!="}.items():
    TESTS[_name] = f"{{{{ 1 is {_name} 2 }}}}{{{{ 2 is {_name}(2) }}}}{{{{ 'b' is {_name} 'a' }}}}{{{{ [1, 2]|select('{_op}', 1)|list }}}}"

METHODS = {
    "str.capitalize": "{{ 'éCOLE'.capitalize() }}", "str.count": "{{ 'banana'.count('an') }}{{ 'ab'.count('') }}",
    "str.endswith": "{{ s.endswith('ld') }}{{ s.endswith('x') }}", "str.find": "{{ u.find('😀') }}{{ s.find('z') }}",
    "str.isdigit": "{{ '12'.isdigit() }}{{ '²'.isdigit() }}{{ '1.2'.isdigit() }}",
    "str.join": "{{ ', '.join(w) }}", "str.lower": "{{ 'ΑΔ É'.lower() }}", "str.lstrip": "[{{ '  x '.lstrip() }}][{{ 'xyz'.lstrip('yx') }}]",
    "str.replace": "{{ s.replace('l', 'L', 2) }}",
    "str.rstrip": "[{{ ' x  '.rstrip() }}][{{ 'abc\n\n'.rstrip('\n') }}]",
    "str.split": "{{ 'a,b,,c'.split(',') }}{{ ' a  b c '.split() }}{{ 'a,b,c'.split(',', 1) }}{{ '</think>x'.split('</think>')[-1] }}",
    "str.startswith": "{{ s.startswith('He') }}{{ s.startswith('e') }}",
    "str.strip": "[{{ ' x \n'.strip() }}][{{ '--x-'.strip('-') }}]", "str.title": "{{ \"they're bill's\".title() }}",
    "str.upper": "{{ 'strasse éñδ'.upper() }}",
    "dict.get": "{{ d.get('a') }}{{ d.get('z') }}{{ d.get('z', 'q') }}", "dict.items": "{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}{{ d.items()|list }}",
    "dict.keys": "{{ d.keys()|list }}{{ 'a' in d.keys() }}", "dict.values": "{{ d.values()|list }}", "list.count": "{{ [1, 1, 2].count(1) }}",
}

FUNCTIONS = {
    "range": "{{ range(3)|list }}{{ range(5, 0, -2)|list }}{{ range(1, 3)|last }}{{ range(4, 1)|list }}{{ range(3) == range(0, 3, 1) }}", "namespace": "{% set ns = namespace(a=1) %}{% for x in l %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}",
    "dict": "{{ dict(a=1, b='x') }}{{ dict([('k', 2)]) }}",
    "strftime_now": "{{ strftime_now('%d %b %Y %H:%M:%S %j %-d %A%%') }}",
    "raise_exception": "{{ raise_exception('no ' ~ i) }}",
}

TAGS = {
    "if": "{% if i > 5 and not n %}a{% elif s %}b{% else %}c{% endif %}{% if e %}a{% elif i == 7 %}b{% else %}c{% endif %}",
    "for": "{% for x in l %}{{ x }},{% endfor %}{% for k, v in d.items() if v %}{{ k }}{% endfor %}{% for x in [] %}a{% else %}none{% endfor %}",
    "break": "{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}"
             "{% for y in [1, 2] %}{{ y }}{% for x in [] %}{% else %}{% break %}{% endfor %}{% endfor %}", "continue": "{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "set": "{% set x = 1 %}{% set a, c = (2, 3) %}{{ x }}{{ a }}{{ c }}{% for y in l %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}",
    "set block": "{% set t %}\n a{{ i }} {% endset %}[{{ t }}]{% set t | upper | trim %} x {% endset %}[{{ t }}]",
    "macro": "{% macro f(a, c=a, k='z') %}{{ a }}{{ c }}{{ k }}{% endmacro %}{{ f(1) }}{{ f(1, k=2) }}{{ f(1, 2, 3) }}{{ f() }}",
    "call": "{% macro f(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) f(3) %}{{ y }}!{% endcall %}", "filter": "{% filter upper|replace('A', '_') %}abc{{ s }}{% endfilter %}",
    "generation": "{% set x = 1 %}a{% generation %}b{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}",
    "comment": "a{# x #}\nb{#- y -#} c", "whitespace": "  {% if b %}\n  x {%- if b %} y {% endif -%}\n  z\n  {%+ if b %}w{% endif +%}\n\t{{ i }}\n{% endif %}\n\n",
    "trailing newline": "a\r\nb\rc\n\n",
}

EXPRESSIONS = {
    "arithmetic": "{{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ -7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 + 2.0 }} {{ 'ab' * 2 }} {{ [1] + [2] }} {{ 7.5 // 2 }} {{ true + 1 }}",
    "comparison": "{{ 1 < 2 < 3 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ none == none }} {{ 'a' != 'b' }} {{ 1 == true }}",
    "logic": "{{ e or 'x' }} {{ s and 'y' }} {{ not s }} {{ nope or none }} {{ 1 and 0 }}", "membership": "{{ 'ell' in s }} {{ 4 not in l }} {{ 'a' in d }} {{ 'x' in nope }}",
    "concatenation": "{{ 1 ~ 'a' ~ none ~ 2.0 ~ [1] }}", "inline if": "{{ 'a' if b else 'c' }}{{ 'x' if e }}{{ 1 if e else 2 if n else 3 }}",
    "slices": "{{ u[1:3] }}{{ u[::-1] }}{{ l[-2:] }}{{ l[::2] }}{{ l[:-1] }}{{ s[:5] }}{{ range(10)[2:8:3]|list }}{{ (1, 2, 3)[1:] }}",
    "subscripts": "{{ l[-1] }}{{ m[0].role }}{{ m[0]['role'] }}{{ d['items'] is defined }}{{ u[2] }}{{ l[9] is defined }}{{ m.0.role }}{{ d.zz is defined }}",
    "literals": "{{ [1, 'a', none, True, 1.5, (1,), {'k': 2}] }}{{ 1e3 }}{{ 2.5E-3 }}{{ 'a' 'b' }}{{ 'tab\\tq\\x41\\u00e9\\\\n' }}{{ \"it's\" }}{{ ['it\\'s'] }}",
    "printing": "{{ nested }}{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1/3 }} {{ ['\\n', '\\x7f', 'é', '😀'] }} {{ nope }} {{ n }}",
    "scopes": "{% set x = 1 %}{% macro f() %}{{ x }}{{ y }}{% endmacro %}{% for i in [1] %}{% set x = 2 %}{{ f() }}{{ x }}{% endfor %}{% set y = 3 %}{% if b %}{% set x = 4 %}{% endif %}{{ f() }}",
    "loop": "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.index }};{% endfor %}",
    "generators": "{% set g = l|map('string') %}{{ g|join('-') }}|{{ g|join('-') }}|{{ 'T' if l|select('eq', 9) }}",
    "undefined": "{{ nope }}{{ nope is defined }}{% for x in nope %}a{% endfor %}{{ nope == nope2 }}{{ nope|string|length }}", "undefined attribute": "{{ nope.x }}",
    "undefined arithmetic": "{{ nope + 1 }}", "none arithmetic": "{{ 'a' + none }}", "sandbox": "{{ ''.__class__ }}|{{ l.append is defined }}{{ s.__class__.__mro__ }}",
    "sandbox mutation": "{{ l.append(1) }}", "escapes spread": "{{ ('<' ~ html|safe) }}{{ html|safe + '<' }}",
    "assigned later": "{% for x in l %}{{ s }}{% endfor %}{% macro f() %}{{ e is defined }}{{ i }}{% endmacro %}{{ f() }}{% set s = 1 %}{% set e = s %}{{ f() }}{% set i = i + 1 %}{{ f() }}",
    "loop filter": "{% set ns = namespace(n=0) %}{% for x in l if ns.n < 2 %}{% set ns.n = ns.n + 1 %}{{ x }}{% endfor %}|{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{% endfor %}",
    "text marked safe": "{{ ('<b>'|safe)[1:] + '<' }}{{ ('<'|safe) * 2 + '<' }}{{ ('<b>'|safe).replace('b', '<') }}{{ ('<b>'|safe).upper() ~ '<' }}{{ ['<'|safe]|join('&') }}{{ '<'|safe is string }}{{ '<b>'|safe|replace('b', '<') }}{{ '<'|safe|tojson }}",
    "line ends": "{{ 'a\r\nb\x0bc\u2028d\n\n'|indent(1, blank=true) }}{{ 'a\n\n\rb\r'|indent(1) }}|{{ ''|indent(2, true) }}|{{ ' a\u3000b\x1f '.split() }}",
    "splitting": "{{ ' a  b '.split(none, 1) }}{{ ' '.split() }}{{ 'a,b'.split(',', 0) }}{{ ',a,'.split(',') }}{{ ''.split('x') }}{{ ''.split() }}",
    "unpacking": "{% set a, c = 'xy' %}{{ a }}{{ c }}{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "unpacking too few": "{% set a, c = [1] %}",
    "starred arguments": "{% macro f(a, c, k='z') %}<{{ a }}{{ c }}{{ k }}>{% endmacro %}{% macro g() %}-{% endmacro %}{% set fs, ps = [f, g], [(1, 2), ()] %}"
                         "{% for p in ps %}{{ fs[loop.index0](*p) }}{% endfor %}{{ f(1, *[2, 3]) }}{{ f(k=4, *'ab') }}{{ f(*d, ) }}{{ f(*[5], k=6, c=7) }}"
                         "{{ w|join(*['/']) }}{{ 1 is in(*[l]) }}{{ range(*[1, 3])|list }}{{ 'a-b'.split(*('-',)) }}{{ f(*l|select('ne', 1)) }}{{ f(*nope) }}",
    "starred number": "{{ range(*3) }}", "starred twice as many": "{% macro f(a) %}{% endmacro %}{{ f(*[1, 2]) }}",
    "filter of no text": "{% filter length %}abc{% endfilter %}",
    "division by zero": "{{ 1 / 0 }}", "iteration over none": "{% for x in n %}{% endfor %}",
}


def render(template):
    variables = dict({"tools": None, "documents": None, "add_generation_prompt": False}, messages=[], **VARIABLES)
    try:
        return {"text": template_environment.make().from_string(template).render(**variables)}
    except Exception as error:  # noqa: BLE001 whatever Python raises
        raised = type(error).__name__ == "TemplateError"
        return {"raised": str(error)} if raised else {"fails": True}


def main():
    groups = {"filter": FILTERS, "test": TESTS, "method": METHODS, "function": FUNCTIONS, "tag": TAGS, "expression": EXPRESSIONS}
    cases = [dict(construct=f"{kind}:{name}", template=template, **render(template))
             for kind, group in groups.items() for name, template in group.items()]
    text = json.dumps({"variables": VARIABLES, "cases": cases}, ensure_ascii=False, indent=1) + "\n"
    if "--check" in sys.argv[1:]:
        same = TARGET.read_text(encoding="utf-8") == text
        print("as stored" if same else "differs from what is stored")
        return 0 if same else 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(text, encoding="utf-8")
    print(f"{len(cases)} cases, {sum('fails' in c for c in cases)} of them fail")
    return 0


if __name__ == "__main__":
    sys.exit(main())
