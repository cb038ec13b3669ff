// Enums whose values have names: beside the enum stands
//   constexpr auto value_names(E) { return name_list("first", "second"); }
// with the names of all values, from 0 on, and what is below follows from it.
// An enum with values that nobody may ask for has an enum_name and an enum_count
// of its own.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

namespace octet {

template <typename... Text>
constexpr std::array<std::string_view, sizeof...(Text)> name_list(Text... names) {
  return {names...};
}

template <typename E>
concept NamedEnum = requires(E value) {
  value_names(value);
};

// The name of a value.
template <NamedEnum E>
constexpr std::string_view enum_name(E value) {
  return value_names(value)[static_cast<size_t>(value)];
}

// How many values there are.
template <NamedEnum E>
constexpr int enum_count(E value) {
  return static_cast<int>(value_names(value).size());
}

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
