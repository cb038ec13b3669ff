#include "cli/command_tree.h"

#include <fmt/format.h>

#include <sstream>
#include <utility>

namespace octet {
namespace {

// "TEXT:{cpu,cuda}" is TEXT and its choices; "INT:INT in [0 - 9]" is "INT in [0 - 9]".
void take_type(std::string type, FlagText& flag) {
  const size_t open = type.find(":{"), close = type.rfind('}');
  if (open != std::string::npos && close != std::string::npos) {
    std::istringstream words(type.substr(open + 2, close - open - 2));
    for (std::string word; std::getline(words, word, ',');) flag.choices.push_back(word);
    type.resize(open);
  }
  const size_t colon = type.find(':');
  const bool repeats =
      colon != std::string::npos && type.compare(colon + 1, colon, type, 0, colon) == 0;
  flag.value = repeats ? type.substr(colon + 1) : type;
}

FlagText flag_text(const CLI::Option& option) {
  FlagText flag;
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  if (option.get_positional()) flag.names = {option.get_name(true)};
  if (option.get_items_expected_max() > 0) take_type(option.get_type_name(), flag);
  flag.about = option.get_description();
  flag.group = option.get_group();
  return flag;
}

void add_command(const CLI::App& app, const std::string& above, std::vector<CommandText>& all) {
  CommandText command;
  command.name = app.get_name();
  command.path = above.empty() ? command.name : above + " " + command.name;
  command.about = app.get_description();
  const auto inner = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* one : inner) command.inner.push_back(one->get_name());
  for (const CLI::Option* option : app.get_options()) {
    auto& to = option->get_positional() ? command.arguments : command.flags;
    to.push_back(flag_text(*option));
  }
  const std::string path = command.path;
  all.push_back(std::move(command));
  for (const CLI::App* one : inner) add_command(*one, path, all);
}

}  // namespace

std::vector<CommandText> command_tree(const CLI::App& app) {
  std::vector<CommandText> all;
  add_command(app, "", all);
  return all;
}

}  // namespace octet
