// The command line as data, from which completions of shells and the manual are made.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace octet {

constexpr const char* kGlobalFlagGroup = "Flags of every command";

struct FlagText {
  std::vector<std::string> names;  // "--device", "-h"
  std::string value;               // "DIR", "TEXT", "INT in [0 - 4096]"; empty: a switch
  std::vector<std::string> choices;
  std::string about, group;
};

struct CommandText {
  std::string path;  // "octet study formats"
  std::string name, about;
  std::vector<std::string> inner;  // names of commands within
  std::vector<FlagText> flags;
  std::vector<FlagText> arguments;  // positional: one name each, "config"
};

// This command and all within, each before its own; the order of --help.
std::vector<CommandText> command_tree(const CLI::App& app);

// Texts that `octet docs completion SHELL` and `octet docs man` print.
std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);
std::string man_page(const CLI::App& app);

}  // namespace octet
