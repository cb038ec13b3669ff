// The names that values of the configuration may have, each list asked of the one place that knows
// it. Internal to src/config.
#pragma once

#include <string>
#include <vector>

#include "base/named_enum.h"

namespace octet {

// Names of the values of an enum.
template <typename E>
std::vector<std::string> names_of() {
  const auto names = enum_names<E>();
  return {names.begin(), names.end()};
}

std::vector<std::string> recipe_names();
// Recipes whose formats of linears a line of recipe.override may name.
std::vector<std::string> override_recipe_names();
// Operands of a linear that a line of recipe.override may name, and their formats; and its sums.
inline constexpr std::string_view kSumsRole = "sums";
std::vector<std::string> override_roles();
std::vector<std::string> override_formats();
std::vector<std::string> loss_names();
std::vector<std::string> compute_names();     // types that recipes compute in
std::vector<std::string> activation_names();  // formats of saved activations; wide: none
std::vector<std::string> gradient_rounding_names();
std::vector<std::string> scaled_gradient_names();
std::vector<std::string> boolean_names();
std::vector<std::string> activation_group_names();  // elements of a saved activation's group
std::vector<std::string> group_names();             // elements of a moment's group
std::vector<std::string> token_byte_names();        // of headerless shards; 0: by name or header

bool is_one_of(const std::vector<std::string>& names, std::string_view text);

}  // namespace octet
