#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command_tree.h"

namespace octet {
namespace {

// Text for roff: hyphens stay hyphens, and no line is taken for a request.
std::string roff(const std::string& text) {
  std::string out;
  for (const char ch : text) {
    if (ch == '\\') {
      out += "\\e";
    } else if (ch == '-') {
      out += "\\-";
    } else {
      if ((ch == '.' || ch == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
      out += ch;
    }
  }
  return out;
}

std::string flag_entry(const FlagText& flag) {
  const std::string names = fmt::format("{}", fmt::join(flag.names, ", "));
  std::string value = flag.value;
  if (!flag.choices.empty()) value = fmt::format("{}", fmt::join(flag.choices, "|"));
  return fmt::format(".TP\n\\fB{}\\fR{}{}\n{}\n", roff(names), value.empty() ? "" : " ",
                     value.empty() ? "" : "\\fI" + roff(value) + "\\fR", roff(flag.about));
}

std::string synopsis(const CommandText& command) {
  std::string text = command.path;
  for (const FlagText& one : command.arguments) text += " [" + one.names.front() + "]";
  return text;
}

std::string command_entry(const CommandText& command) {
  std::string text = fmt::format(".SS \"{}\"\n{}\n", roff(synopsis(command)), roff(command.about));
  for (const FlagText& one : command.arguments) text += flag_entry(one);
  for (const FlagText& flag : command.flags) {
    if (flag.group != kGlobalFlagGroup && flag.names.front() != "--help") text += flag_entry(flag);
  }
  return text;
}

}  // namespace

std::string man_page(const CLI::App& app) {
  const std::vector<CommandText> tree = command_tree(app);
  std::string commands, globals;
  for (const CommandText& command : tree) {
    if (&command != &tree.front() && command.inner.empty()) commands += command_entry(command);
  }
  for (const FlagText& flag : tree[1].flags) {
    if (flag.group == kGlobalFlagGroup) globals += flag_entry(flag);
  }
  return fmt::format(R"(.\" Made by `octet docs man`.
.TH OCTET 1 "" "octet {}" "Octet"
.SH NAME
octet \- training, fine\-tuning and quantization of models in 8 bits
.SH SYNOPSIS
.B octet
.I COMMAND
[\fIARGUMENT\fR]...
.SH DESCRIPTION
{}
.SH COMMANDS
{}.SH "FLAGS OF EVERY COMMAND"
{}.SH "EXIT STATUS"
{}
)",
                     OCTET_VERSION, roff(app.get_description()), commands, globals,
                     roff(app.get_footer()));
}

}  // namespace octet
