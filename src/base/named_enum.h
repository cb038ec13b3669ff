// Enums whose values have names: beside the enum stand
//   std::string_view enum_name(E)    the name of a value
//   constexpr int enum_count(E)      how many values there are, from 0 on
// and what is below follows from the two.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace octet {

// Every name, in the order of the values.
template <typename E>
std::vector<std::string_view> enum_names() {
  std::vector<std::string_view> names(static_cast<size_t>(enum_count(E{})));
  for (size_t i = 0; i < names.size(); ++i) names[i] = enum_name(static_cast<E>(i));
  return names;
}

// The value with this name, or nothing.
template <typename E>
std::optional<E> enum_from_name(std::string_view name) {
  for (int i = 0; i < enum_count(E{}); ++i) {
    if (enum_name(static_cast<E>(i)) == name) return static_cast<E>(i);
  }
  return std::nullopt;
}

}  // namespace octet
