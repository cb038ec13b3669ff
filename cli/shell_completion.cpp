#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/command_tree.h"
#include "config/report.h"
#include "config/table.h"

namespace octet {
namespace {

std::string words_of(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::vector<std::string> key_words() {
  std::vector<std::string> words;
  for (const ConfigRow& row : config_rows()) words.push_back(std::string(row.path) + "=");
  return words;
}

// The command takes a configuration, and so the name of one that comes with the program.
bool takes_recipe(const CommandText& command) {
  return std::ranges::any_of(command.arguments,
                             [](const FlagText& one) { return one.names.front() == "config"; });
}

// Both shells: the words before the one that is completed name the command.
constexpr const char* kFindCommand = R"sh(  for word in "${{words[@]:1:{0}}}"; do
    case "$path $word" in
{1}    esac
  done
)sh";

std::string find_command(const std::vector<CommandText>& tree, std::string_view n_words) {
  std::string cases;
  for (const CommandText& command : tree) {
    if (command.path.find(' ') != std::string::npos)
      cases += fmt::format("      \"{}\") path=\"$path $word\" ;;\n", command.path);
  }
  return fmt::format(fmt::runtime(kFindCommand), n_words, cases);
}

std::string all_flags(const CommandText& command) {
  std::vector<std::string> names;
  for (const FlagText& flag : command.flags)
    names.insert(names.end(), flag.names.begin(), flag.names.end());
  return words_of(names);
}

// In single quotes of a shell, and within a word of zsh's _arguments.
std::string zsh_text(const std::string& text) {
  std::string quoted;
  for (const char ch : text) {
    if (ch == '\'') {
      quoted += "'\\''";
    } else if (ch == '\n') {
      quoted += ' ';
    } else {
      if (ch == '[' || ch == ']' || ch == ':' || ch == '\\') quoted += '\\';
      quoted += ch;
    }
  }
  return quoted;
}

std::string zsh_value(const FlagText& flag) {
  if (flag.value.empty()) return "";
  if (flag.names.front() == "--set") return ":key:($keys)";
  if (!flag.choices.empty()) return fmt::format(":value:({})", words_of(flag.choices));
  return fmt::format(":{}:_files", zsh_text(flag.value));
}

std::string zsh_arguments(const CommandText& command) {
  std::string text = "_arguments";
  for (const FlagText& flag : command.flags) {
    for (const std::string& name : flag.names)
      text += fmt::format(" \\\n        '*{}[{}]{}'", name, zsh_text(flag.about), zsh_value(flag));
  }
  text += takes_recipe(command) ? " \\\n        '*:config:_octet_configs'"
                                : " \\\n        '*:file:_files'";
  return text;
}

std::string zsh_commands(const CommandText& command, const std::vector<CommandText>& tree) {
  std::string text = "inner=(";
  for (const std::string& name : command.inner) {
    const auto at = std::ranges::find(tree, command.path + " " + name, &CommandText::path);
    text += fmt::format("\n        '{}:{}'", name, zsh_text(at->about));
  }
  return text + ")\n      _describe command inner";
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  const std::vector<CommandText> tree = command_tree(app);
  std::string cases, values;
  for (const CommandText& command : tree) {
    cases += fmt::format("    \"{}\")\n      inner=\"{}\"\n      flags=\"{}\"\n", command.path,
                         words_of(command.inner), all_flags(command));
    cases += takes_recipe(command) ? "      has_recipes=1 ;;\n" : "      ;;\n";
    for (const FlagText& flag : command.flags) {
      if (!flag.choices.empty())
        values += fmt::format("    \"{} {}\") choices=\"{}\" ;;\n", command.path,
                              flag.names.front(), words_of(flag.choices));
    }
  }
  return fmt::format(R"sh(# Completion of octet for bash, made by `octet docs completion bash`.
_octet() {{
  local words=("${{COMP_WORDS[@]}}") current=${{COMP_WORDS[COMP_CWORD]}}
  local previous=${{COMP_WORDS[COMP_CWORD-1]}} path=octet word inner= flags= choices= has_recipes=
  COMPREPLY=()
{}  case "$path" in
{}  esac
  case "$path $previous" in
{}    *" --set")
      choices="{}"
      compopt -o nospace ;;
  esac
  if [ -n "$choices" ]; then
    COMPREPLY=($(compgen -W "$choices" -- "$current"))
  elif [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$current"))
  elif [ -n "$inner" ]; then
    COMPREPLY=($(compgen -W "$inner" -- "$current"))
  else
    [ -z "$has_recipes" ] || COMPREPLY=($(compgen -W "$("${{COMP_WORDS[0]}}" recipes 2>/dev/null |
      sed '1d;s/ .*//')" -- "$current"))
    COMPREPLY+=($(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _octet octet
)sh",
                     find_command(tree, "COMP_CWORD-1"), cases, values, words_of(key_words()));
}

std::string zsh_completion(const CLI::App& app) {
  const std::vector<CommandText> tree = command_tree(app);
  std::string cases;
  for (const CommandText& command : tree) {
    cases +=
        fmt::format("    \"{}\")\n      {} ;;\n", command.path,
                    command.inner.empty() ? zsh_arguments(command) : zsh_commands(command, tree));
  }
  return fmt::format(R"sh(#compdef octet
# Completion of octet for zsh, made by `octet docs completion zsh`.
_octet_configs() {{
  local -a names
  names=(${{${{(f)"$(octet recipes 2>/dev/null)"}}[2,-1]%% *}})
  compadd -a names
  _files
}}

_octet() {{
  local path=octet word
  local -a inner keys
  keys=({})
{}  case "$path" in
{}  esac
}}

_octet "$@"
)sh",
                     words_of(key_words()), find_command(tree, "CURRENT-2"), cases);
}

}  // namespace octet
