// Common to all commands: the global flags, and how results and messages reach the terminal.
//
// A command is a file cli/<name>_command.cpp with `void add_<name>_command(CLI::App&,
// GlobalOptions&)`, declared in commands.h and listed in commands.cpp. It adds a sub-command whose
// callback does the work, throws Error when it fails, and ExitStatus to end with a status of its
// own.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/arithmetic.h"
#include "base/log.h"
#include "base/ordered_json.h"
#include "base/units.h"
#include "cli/output.h"

namespace octet {

struct GlobalOptions {
  int threads = 0;                          // 0: one per core that this process may use
  std::string isa = "auto";                 // auto, scalar, avx2, avx512, amx
  std::string device = "cpu";               // cpu, cuda
  Arithmetic arithmetic = Arithmetic::own;  // --arithmetic, of commands that have it
  std::optional<uint32_t> seed;             // stands for train.seed
  bool quiet = false;
  bool json = false;
  bool wide = false;              // tables on a terminal whole
  std::vector<std::string> sets;  // a.b=c

  // The overrides for load_config: sets, and --seed as train.seed.
  std::vector<std::string> config_sets() const;
};

// Thrown by a command that is done with a status of its own: 129, 130, 143 after a signal.
struct ExitStatus {
  int code = 0;
};

// Adds the global flags to a command and its sub-commands. A flag that the command has defined
// itself stays. All flags that take a real number then refuse NaN and infinities.
void add_global_flags(CLI::App& command, GlobalOptions& options);

// For a flag that stands for this configuration key: it takes what the key takes, or 0 besides.
enum class Zero : uint8_t { is_as_others, is_allowed };
CLI::Validator as_key(std::string_view path, Zero zero = Zero::is_as_others);

// For a flag that takes one of these names: what else comes is refused with the nearest of them.
CLI::Validator one_of(std::vector<std::string> names);

// A flag, whether what the command line asks for reads it, and with what beside it it is read.
struct FlagUse {
  const char* flag;
  bool is_read;
  const char* with;
};
// Throws Error{invalid_argument} for the first that the command line gave and that is not read.
void expect_flags_read(const CLI::App& command, std::initializer_list<FlagUse> uses);

// Messages to standard error, each on one line; none below a warning with --quiet.
Log make_log(const GlobalOptions& options);

// A result with named columns. print_table writes it aligned, within the columns of a terminal
// (cli/shown_table.h), or with --json as an array of one
// object a row, where a cell that reads as a JSON number or as a list of such is one, and one that
// is empty or "-" is null.
struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};
// A row's cells, each as fmt shows it.
template <typename... Values>
std::vector<std::string> cells(const Values&... values) {
  return {fmt::format("{}", values)...};
}
// A cell: for programs the number, else "1.5 GiB".
std::string bytes_cell(const GlobalOptions& options, int64_t n_bytes);
// Columns on a terminal: UTF-8 continuation bytes take none.
size_t display_width(std::string_view text);
std::string table_text(const Table& table);
OrderedJson table_json(const Table& table);      // an array of rows by column
std::string table_markdown(const Table& table);  // cells as they are
// A document with a line feed behind it; bytes that are no UTF-8 become U+FFFD.
std::string json_text(const OrderedJson& json);
void print_table(const GlobalOptions& options, const Table& table);

}  // namespace octet
