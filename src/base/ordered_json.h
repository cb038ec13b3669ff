// JSON whose objects keep the order of their keys, for data that is printed again as it came.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace octet {

using OrderedJson = nlohmann::ordered_json;

// As Python's json.loads, but that a repeated key has no value; it, and what cannot be held,
// integers beyond 64 bits among it, is kept unread (json_reader.h). Throws Error{bad_data},
// "[json] WHERE: ...", for text that is no JSON value or nests deeper than 200 levels.
OrderedJson parse_ordered_json(std::string_view text, const std::string& where);

// On one line, without a line feed; bytes that are no UTF-8 become U+FFFD.
std::string json_line(const OrderedJson& json);

// For what is about to be used: throws Error{bad_data}, "[json] NAME.messages[0].content: ...",
// where a value within was not read.
void expect_read(const OrderedJson& json, const std::string& name);

}  // namespace octet
