// Values as text: as Python's str() and repr() give them, and as json.dumps does.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/runtime.h"

namespace octet::jinja {

std::string float_repr(double value);

// str(value), after what is there.
void append_text(Builder& out, const Value& value);
// A text as it is, anything else as str() gives it.
Value as_text(Runtime& runtime, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  std::optional<std::string> indent;  // of a level; none: on one line
  std::string item_separator = ", ", key_separator = ": ";
};
// Throws where a value has no form in JSON.
void append_json(Builder& out, const Value& value, const JsonStyle& style);

}  // namespace octet::jinja
