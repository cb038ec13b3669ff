// The program octet: one sub-command a file, listed here.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <exception>
#include <sstream>

#include "base/error.h"
#include "base/nearest.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/error_of.h"
#include "cli/signals.h"
#include "config/table.h"

namespace octet {
namespace {

constexpr const char* kAbout =
    "Octet trains and fine-tunes large language models in 8-bit floating point.\n"
    "Start with `octet doctor`; `octet help COMMAND` explains a command.";

constexpr const char* kFooter =
    "Exit codes: 0 done; 2 usage or configuration; 3 data, model or checkpoint; 4 loss not finite "
    "for too long;\n"
    "5 device missing or out of memory; 75 another rank was lost, `octet train --resume` goes on;\n"
    "129 / 130 / 143 ended by SIGHUP, SIGINT, SIGTERM, the state of a run saved.";

std::string version_text() {
#ifdef __clang__
  const char* compiler = "clang " __clang_version__;
#else
  const char* compiler = "gcc " __VERSION__;
#endif
  return fmt::format("octet {} ({})", OCTET_VERSION, compiler);
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::vector<std::string> flag_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// Keys of how a run goes, which `--set` takes in the place of a flag that the command has not.
std::vector<std::string> run_keys() {
  std::vector<std::string> keys;
  for (const ConfigRow& row : config_rows()) {
    const bool is_of_run = std::ranges::any_of(
        std::array{"optim.", "train.", "lora.", "parallel.", "recipe.base", "model.seq"},
        [&row](std::string_view section) { return row.path.starts_with(section); });
    if (is_of_run) keys.emplace_back(row.path);
  }
  return keys;
}

// The flag that was probably meant; of commands that read a configuration also `--set` of a key.
std::string nearest_flag(const CLI::App& command, const std::string& word) {
  const std::vector<std::string> flags = flag_names(command);
  const bool has_keys = command.get_option_no_throw("config") != nullptr;
  if (has_keys && (word == "--config" || word == "-c")) return "CONFIG without a flag";
  if (word == "--model" && command.get_name() == "chat") return "octet generate --model DIR --chat";
  if (has_keys && synonym_of(word, flags).empty()) {
    const std::string key = synonym_of(word, run_keys());
    if (!key.empty()) return fmt::format("--set {}=VALUE", key);
  }
  return nearest_name(word, flags);
}

// The command that was probably meant, as it is typed.
std::string nearest_command(const CLI::App& app, const CLI::App& command, const std::string& word) {
  std::vector<std::string> known = command_names(command);
  if (&command == &app) {
    for (const char* name : {"help", "--version"}) known.emplace_back(name);
  }
  return nearest_name(word, known);
}

// The innermost command that the line names.
const CLI::App* active_command(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().back();
  return app;
}

// Command as it is typed: `octet study formats`.
std::string path_of(const CLI::App* command) {
  const CLI::App* parent = command->get_parent();
  return parent == nullptr ? "octet" : path_of(parent) + " " + command->get_name();
}

std::string one_line(std::string text) {
  for (char& ch : text) {
    if (ch == '\n' || ch == '\r') ch = ' ';
  }
  return text;
}

// CLI11 writes a range without an upper end with the largest double.
std::string with_open_end(std::string text) {
  constexpr std::string_view kLargest = " to 1797693134862315";
  const size_t begin = text.find(kLargest);
  if (begin == std::string::npos) return text;
  const size_t end = text.find_first_not_of("0123456789.", begin + kLargest.size());
  text.replace(begin, std::min(end, text.size()) - begin, " and above");
  // The least double above 0 and 0 itself are the same text there.
  constexpr std::string_view kZero = "0.000000 and above";
  const size_t zero = text.find(kZero);
  if (zero == std::string::npos) return text;
  const bool excludes_zero = text.find("Value 0 ") != std::string::npos;
  return text.replace(zero, kZero.size(), excludes_zero ? "above 0" : "0 and above");
}

// "optim.lr" of `--set optim.lr 1e-3`; "" where each has its value.
std::string set_without_value(const CLI::App& command) {
  const CLI::Option* set = command.get_option_no_throw("--set");
  if (set == nullptr) return "";
  const auto& results = set->results();
  const auto found = std::ranges::find_if(
      results, [](const std::string& one) { return one.find('=') == one.npos; });
  return found == results.end() ? "" : *found;
}

// Why the command line was refused, in one line, with the nearest command or flag for a word that
// is not known.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  // A word before a command is none of its words.
  const CLI::App* command = app.remaining().empty() ? active_command(&app) : &app;
  const bool is_extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  const bool lacks = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const bool lacks_command =
      lacks && command->get_subcommands().empty() && !command_names(*command).empty();
  const std::vector<std::string> extras = app.remaining(true);
  const std::string where = path_of(command);
  if ((is_extra || lacks) && !extras.empty()) {
    const std::string word = extras.front().substr(0, extras.front().find('='));
    const bool is_flag = word.starts_with('-');
    const bool has_commands = !command_names(*command).empty();
    const std::string set = set_without_value(*command);
    if (!is_flag && !set.empty()) {
      return fmt::format(
          "--set: expected KEY=VALUE in one word, as {}={}, got '{}' (see {} --help)",
          set.substr(0, set.find(':')), extras.front(), set, where);
    }
    std::string nearest = is_flag        ? nearest_flag(*command, word)
                          : has_commands ? nearest_command(app, *command, word)
                                         : "";
    if (!is_flag && !has_commands && command->get_option_no_throw("--prompt") != nullptr)
      nearest = "--prompt TEXT";
    if (!is_flag && std::string_view(error.what()).starts_with("--model "))
      nearest = "--model " + extras.front();
    if (!is_flag && word != extras.front() && find_config_row(word) != nullptr)
      nearest = fmt::format("--set {}=VALUE", word);
    return fmt::format("unknown {} {}{} (see {} --help)",
                       is_flag        ? "flag"
                       : has_commands ? "command"
                                      : "argument",
                       word, nearest.empty() ? "" : ", the nearest is " + nearest, where);
  }
  if (lacks_command) {
    return fmt::format("expected a command: {} (see {} --help)",
                       fmt::join(command_names(*command), ", "), where);
  }
  return fmt::format("{} (see {} --help)", with_open_end(one_line(error.what())), where);
}

int fail(int code, const std::string& message) {
  write_message("octet: ", one_line(message));
  return code;
}

// A plan that does not fit takes three lines (compile/budget.h); all else is one.
int fail(const Error& error) {
  std::string_view text = error.what();
  if (error.code() != ErrorCode::device || !text.starts_with("[memory]"))
    return fail(exit_code(error.code()), error.what());
  std::string_view before = "octet: ";
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    write_message(before, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    before = "";
  }
  return exit_code(error.code());
}

// `octet help train` is `octet train --help`. In CLI11's order: the last argument first.
std::vector<std::string> reversed_arguments(int argc, char** argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  const auto topic = std::ranges::find_if(arguments, [](auto& word) { return word != "help"; });
  const bool asks_for_help = topic != arguments.begin();
  arguments.erase(arguments.begin(), topic);
  if (asks_for_help) arguments.emplace_back("--help");
  std::ranges::reverse(arguments);
  return arguments;
}

// True if the line asks for the help of a command that is not there. CLI11 prints the help of the
// command above it.
bool asks_of_unknown_command(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining(true);
  return !command_names(*active_command(&app)).empty() && !extras.empty() &&
         !extras.front().starts_with('-');
}

int run(int argc, char** argv) {
  CLI::App app(kAbout, "octet");
  GlobalOptions options;
  app.set_version_flag("--version", version_text(), "print the version")->disable_flag_override();
  app.set_help_flag("-h,--help", "print this help")->disable_flag_override();
  app.footer(kFooter);
  app.require_subcommand(1);
  add_commands(app, options);
  for (CLI::App* command : app.get_subcommands({})) add_global_flags(*command, options);
  try {
    app.parse(reversed_arguments(argc, argv));
  } catch (const CLI::Success& done) {
    if (asks_of_unknown_command(app)) {
      const CLI::ExtrasError unknown(app.remaining(true));
      return fail(exit_code(ErrorCode::invalid_argument), usage_message(app, unknown));
    }
    std::ostringstream text;  // of --help and --version
    app.exit(done, text, text);
    write_out(text.str());
  } catch (const CLI::ParseError& error) {
    return fail(exit_code(ErrorCode::invalid_argument), usage_message(app, error));
  }
  finish_output();
  return 0;
}

}  // namespace
}  // namespace octet

int main(int argc, char** argv) {
  octet::open_standard_descriptors();
  octet::install_signals();
  try {
    return octet::run(argc, argv);
  } catch (const octet::ExitStatus& status) {
    return status.code;
  } catch (const std::exception& thrown) {
    return octet::fail(octet::error_of(thrown));
  }
}
