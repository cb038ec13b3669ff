// What every command shares: the global flags, and how results and messages reach the terminal.
//
// A command is a file cli/<name>_command.cpp with `void add_<name>_command(CLI::App&,
// GlobalOptions&)`, listed in main.cpp. It adds a sub-command whose callback does the work, throws
// Error when it fails, and ExitStatus to end with a status of its own.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/units.h"

namespace octet {

struct GlobalOptions {
  int threads = 0;               // 0: one per core that this process may use
  std::string isa = "auto";      // auto, scalar, avx2, avx512, amx
  std::string device = "cpu";    // cpu, cuda
  std::optional<uint32_t> seed;  // stands for train.seed
  bool quiet = false;
  bool json = false;
  std::vector<std::string> sets;  // a.b=c

  // The overrides for load_config: sets, and --seed as train.seed.
  std::vector<std::string> config_sets() const;
};

// Thrown by a command that is done with a status of its own: 130 and 143 after an interrupt.
struct ExitStatus {
  int code = 0;
};

// Adds the global flags to a command and its sub-commands. A flag that the command has defined
// itself stays.
void add_global_flags(CLI::App& command, GlobalOptions& options);

// Writes to standard output or standard error. A closed pipe is ignored: a run goes on when its
// reader leaves.
void write_out(std::string_view text);
void write_err(std::string_view text);
// Flushes standard output; throws Error{io} when something was lost for another reason than a
// closed pipe.
void finish_output();

// Messages to standard error; none below a warning with --quiet.
Log make_log(const GlobalOptions& options);

// A result with named columns. print_table writes it aligned, or with --json as an array of one
// object a row, where a cell that reads as a JSON number is one.
struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};
std::string table_text(const Table& table);
std::string table_json(const Table& table);
void print_table(const GlobalOptions& options, const Table& table);

}  // namespace octet
