// JSON whose objects keep the order of their keys, for data that is printed again as it came.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace octet {

using OrderedJson = nlohmann::ordered_json;

// As Python's json.loads: a repeated key keeps its first place and its last value. Throws
// Error{bad_data}, "[json] WHERE: ...", for text that is no JSON value, nests deeper than 200
// levels, or holds an integer beyond 64 bits (it would turn into a float).
OrderedJson parse_ordered_json(std::string_view text, const std::string& where);

}  // namespace octet
