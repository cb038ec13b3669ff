// Number formats and roundings by the names that users write.
#pragma once

#include <string>
#include <string_view>

#include "formats/codec.h"

namespace octet {

// The format with this name; Error{invalid_argument} lists the known ones.
Dtype format_from_name(std::string_view name);

// The roundings that a format defines: "rne ta rtz sr near"; empty: it is no format.
std::string roundings_text(Dtype format, std::string_view separator = " ");

// The rounding with this name; Error{invalid_argument} where there is none, or where the format
// does not define it.
Rounding rounding_of_format(Dtype format, std::string_view name);

}  // namespace octet
