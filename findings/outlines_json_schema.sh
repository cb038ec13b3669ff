#!/usr/bin/env bash
# Which texts outlines-core allows for a JSON schema.
# guess: of strings each JSON string, of an integer with a minimum of 0 none with a minus sign. Its documentation has errors for what it
#        does not support.
# seen:  in outlines-core 0.2.14 a pattern with "|" takes the quotation marks into its choice: of yes|no it allows "yes without its end
#        and no" without its start, which are not JSON, and neither of the two strings. allOf puts texts behind each other: two
#        integers allow 11 and 77, not 1. minimum, maximum and multipleOf are left out without an error.
. "$(dirname "$0")/common.sh"
with_packages outlines_core==0.2.14 <<'END'
import json
import re

from outlines_core.json_schema import build_regex_from_schema

def allowed(schema, *texts):
    regex = build_regex_from_schema(json.dumps(schema))
    found = [text for text in texts if re.fullmatch(regex, text)]
    print(f"{json.dumps(schema)}: {regex} allows {found} of {list(texts)}")
    return found

choice = allowed({"type": "string", "pattern": "yes|no"}, '"yes"', '"no"', '"yes', 'no"')
grouped = allowed({"type": "string", "pattern": "(yes|no)"}, '"yes"', '"no"', '"yes', 'no"')
both = allowed({"allOf": [{"type": "integer"}, {"type": "integer"}]}, "1", "11", "77")
limits = allowed({"type": "integer", "minimum": 0, "maximum": 5, "multipleOf": 5}, "-3", "7", "5")
ok = choice == ['"yes', 'no"'] and grouped == ['"yes"', '"no"'] and both == ["11", "77"] and limits == ["-3", "7", "5"]
raise SystemExit(not ok)
END
