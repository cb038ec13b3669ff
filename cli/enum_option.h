// An option whose value is the name of an enumerator.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "base/named_enum.h"
#include "cli/common.h"

namespace octet {

template <typename E>
E enum_of(const E&);
template <typename E>
E enum_of(const std::optional<E>&);

// Writes to `to`, an enum or an optional one, which outlives the command.
template <typename To>
CLI::Option* add_enum_option(CLI::App& command, const std::string& flag, To& to,
                             const std::string& help) {
  using E = decltype(enum_of(to));
  const auto names = enum_names<E>();
  return command
      .add_option_function<std::string>(
          flag, [&to](const std::string& name) { to = enum_from_name<E>(name).value(); }, help)
      ->check(one_of({names.begin(), names.end()}));
}

}  // namespace octet
