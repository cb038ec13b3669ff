"""Jinja2's environment with the settings that chat templates are rendered with.

Sources: the documentation of jinja2 3.1 and of transformers' chat templates. Used by tools/make_template_goldens.py and
tools/template_diff.py; needs jinja2.
"""

import datetime
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

CLOCK = datetime.datetime(2024, 7, 26, 12, 34, 56)


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: a scope of its own whose text is written as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("said"), [], [], body).set_lineno(line)

    def said(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def make():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = CLOCK.strftime
    return environment
