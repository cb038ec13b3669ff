// An option whose value is the name of an enumerator.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/named_enum.h"

namespace octet {

// Writes to `to`, which outlives the command.
template <typename E>
CLI::Option* add_enum_option(CLI::App& command, const std::string& flag, E& to,
                             const std::string& help) {
  return command
      .add_option_function<std::string>(
          flag, [&to](const std::string& name) { to = enum_from_name<E>(name).value(); }, help)
      ->check(CLI::IsMember(enum_names<E>()));
}

}  // namespace octet
