#include "cli/common.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace octet {
namespace {

// Set once something other than a closed pipe kept output from being written.
int lost_output_errno = 0;

void write_to(std::FILE* stream, std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stream) == text.size()) return;
  if (stream == stdout && errno != EPIPE) lost_output_errno = errno;
}

bool has_option(const CLI::App& command, const std::string& name) {
  return command.get_option_no_throw(name) != nullptr;
}

// The cell as a JSON value: a number where all of it is one, else text.
nlohmann::json json_cell(const std::string& cell) {
  const bool looks_like_number =
      !cell.empty() && (cell[0] == '-' || (cell[0] >= '0' && cell[0] <= '9'));
  if (looks_like_number) {
    auto value = nlohmann::json::parse(cell, nullptr, false);
    if (value.is_number()) return value;
  }
  return cell;
}

bool is_number_cell(const std::string& cell) {
  return json_cell(cell).is_number();
}

// Width on the terminal: UTF-8 continuation bytes take no column.
size_t display_width(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char ch) { return (static_cast<unsigned char>(ch) & 0xc0) != 0x80; }));
}

std::string padded(const std::string& text, size_t width, bool to_the_right) {
  const std::string space(width - std::min(width, display_width(text)), ' ');
  return to_the_right ? space + text : text + space;
}

}  // namespace

std::vector<std::string> GlobalOptions::config_sets() const {
  std::vector<std::string> all = sets;
  if (seed) all.push_back(fmt::format("train.seed={}", *seed));
  return all;
}

void add_global_flags(CLI::App& command, GlobalOptions& options) {
  const std::string group = "Flags of every command";
  if (!has_option(command, "--threads")) {
    command.add_option("--threads", options.threads, "threads; 0: one per usable core")
        ->check(CLI::Range(0, 4096))
        ->group(group);
  }
  if (!has_option(command, "--isa")) {
    command.add_option("--isa", options.isa, "instruction set of the CPU kernels")
        ->check(CLI::IsMember({"auto", "scalar", "avx2", "avx512", "amx"}))
        ->group(group);
  }
  if (!has_option(command, "--device")) {
    command.add_option("--device", options.device, "device that runs the plan")
        ->check(CLI::IsMember({"cpu", "cuda"}))
        ->group(group);
  }
  if (!has_option(command, "--seed")) {
    command.add_option("--seed", options.seed, "random seed (train.seed)")
        ->check(CLI::Range(uint32_t{0}, UINT32_MAX))
        ->group(group);
  }
  if (!has_option(command, "--set")) {
    command
        .add_option("--set", options.sets, "KEY=VALUE over the configuration file; may be repeated")
        ->type_name("KEY=VALUE")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->allow_extra_args(false)
        ->group(group);
  }
  if (!has_option(command, "--quiet")) {
    command.add_flag("--quiet", options.quiet, "results and errors only")->group(group);
  }
  if (!has_option(command, "--json")) {
    command.add_flag("--json", options.json, "tables as JSON")->group(group);
  }
  for (CLI::App* inner : command.get_subcommands({})) add_global_flags(*inner, options);
}

void write_out(std::string_view text) {
  write_to(stdout, text);
}
void write_err(std::string_view text) {
  write_to(stderr, text);
}

void finish_output() {
  if (std::fflush(stdout) != 0 && errno != EPIPE) lost_output_errno = errno;
  if (lost_output_errno == 0) return;
  throw Error(ErrorCode::io, "standard output: expected to write all of the result, got: {}",
              std::strerror(lost_output_errno));
}

Log make_log(const GlobalOptions& options) {
  return Log([quiet = options.quiet](LogLevel level, const std::string& message) {
    if (quiet && level != LogLevel::warning) return;
    write_err((level == LogLevel::warning ? "warning: " : "") + message + "\n");
  });
}

std::string table_text(const Table& table) {
  const size_t n_columns = table.columns.size();
  std::vector<size_t> width(n_columns);
  std::vector<bool> is_number(n_columns, true);
  for (size_t i = 0; i < n_columns; ++i) width[i] = display_width(table.columns[i]);
  for (const auto& row : table.rows) {
    CHECK(row.size() == n_columns);
    for (size_t i = 0; i < n_columns; ++i) {
      width[i] = std::max(width[i], display_width(row[i]));
      is_number[i] = is_number[i] && is_number_cell(row[i]);
    }
  }
  std::string out;
  const auto append = [&](const std::vector<std::string>& row) {
    std::string line;
    for (size_t i = 0; i < n_columns; ++i)
      line += (i ? "  " : "") + padded(row[i], width[i], is_number[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  append(table.columns);
  for (const auto& row : table.rows) append(row);
  return out;
}

std::string table_json(const Table& table) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& row : table.rows) {
    CHECK(row.size() == table.columns.size());
    nlohmann::ordered_json object;
    for (size_t i = 0; i < row.size(); ++i) object[table.columns[i]] = json_cell(row[i]);
    rows.push_back(std::move(object));
  }
  return rows.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void print_table(const GlobalOptions& options, const Table& table) {
  write_out(options.json ? table_json(table) : table_text(table));
}

}  // namespace octet
