// Building blocks of rows of the table of keys. Internal to src/config.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "base/named_enum.h"
#include "config/table.h"

namespace octet {

// table.cpp puts them in their place.
std::span<const ConfigRow> optim_rows();
std::span<const ConfigRow> train_rows();

// Counts fit an int wherever they go; sizes in bytes and elements stay exact as doubles.
inline constexpr double kMaxSteps = std::numeric_limits<int32_t>::max();
inline constexpr double kMaxBytes = 0x1p50;
// Numbers that kernels read as f32 and divide by stay normal numbers there.
inline constexpr double kMinEps = 1e-30;

constexpr ConfigLimits any() {
  return {};
}
constexpr ConfigLimits within(double low, double high) {
  return {.bounds = {.low = low, .high = high}};
}
constexpr ConfigLimits above(double low, double high) {
  return {.bounds = {.low = low, .high = high, .low_open = true}};
}
constexpr ConfigLimits one_of(ConfigNames names) {
  return {.names = names};
}
constexpr ConfigLimits auto_or(ConfigNames names) {
  return {.names = names, .has_auto = true};
}
constexpr ConfigLimits below_one() {
  return {.bounds = {.low = 0, .high = 1, .high_open = true}};
}

#define OCTET_FIELD(member)          \
  +[](RunConfig & config) -> auto& { \
    return config.member;            \
  }

// A choice by its name; nothing is "auto".
template <typename E>
void set_choice(E& field, std::string_view name) {
  field = enum_from_name<E>(name).value();
}
inline void set_choice(bool& field, std::string_view name) {
  field = name == "true";
}
template <typename E>
void set_choice(std::optional<E>& field, std::string_view name) {
  field.reset();
  if (name != "auto") set_choice(field.emplace(), name);
}
template <typename E>
std::string choice_name(const E& field) {
  return std::string(enum_name(field));
}
inline std::string choice_name(bool field) {
  return field ? "true" : "false";
}
template <typename E>
std::string choice_name(const std::optional<E>& field) {
  return field ? choice_name(*field) : "auto";
}

#define OCTET_CHOICE(member)                                                            \
  ConfigChoice {                                                                        \
    +[](RunConfig& config, std::string_view name) { set_choice(config.member, name); }, \
        +[](RunConfig& config) { return choice_name(config.member); }                   \
  }

constexpr bool is_bounded(const ConfigRow& row) {
  const bool is_count = std::holds_alternative<FieldOf<int64_t>>(row.field);
  const bool is_number = is_count || std::holds_alternative<FieldOf<double>>(row.field) ||
                         std::holds_alternative<FieldOf<std::array<double, 2>>>(row.field) ||
                         std::holds_alternative<FieldOf<std::vector<double>>>(row.field);
  const double most = is_count ? 0x1p53 : std::numeric_limits<float>::max();
  const Bounds& bounds = row.limits.bounds;
  return !is_number || row.limits.names != nullptr || (bounds.low >= -most && bounds.high <= most);
}
template <size_t... n>
constexpr bool are_bounded(const ConfigRow (&... parts)[n]) {
  return (std::ranges::all_of(parts, is_bounded) && ...);
}
}  // namespace octet
