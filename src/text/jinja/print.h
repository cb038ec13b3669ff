// Values as text: Python's str and repr, and JSON as json.dumps writes it.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/runtime.h"

namespace octet::jinja {

std::string str(Runtime& runtime, const Value& value);
std::string repr(Runtime& runtime, const Value& value);
// str as a value: text stays as it is, markup included.
Value soft_text(Runtime& runtime, const Value& value);
std::string float_repr(double value);
// HTML's five characters as entities; text marked safe stays.
std::string escape_html(std::string_view text);
Value escaped(Runtime& runtime, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // of one level
  std::optional<std::string> item_separator, key_separator;
  bool sort_keys = false;
};

// Throws for what is no JSON: undefined, functions, ranges.
std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace octet::jinja
