#include "cli/common.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "cli/command_tree.h"
#include "cli/finetune_flags.h"
#include "cli/shown_table.h"
#include "config/table.h"

namespace octet {
namespace {

bool has_option(const CLI::App& command, const std::string& name) {
  return command.get_option_no_throw(name) != nullptr;
}

// The cell as a JSON value: null where it is empty or "-", a number or a list of numbers where all
// of it is one, else text.
nlohmann::json json_cell(const std::string& cell) {
  if (cell.empty() || cell == "-") return nullptr;
  const bool has_sign = cell[0] == '+' && cell.size() > 1 && cell[1] >= '0' && cell[1] <= '9';
  const std::string text = has_sign ? cell.substr(1) : cell;
  const bool looks_like_number = text[0] == '-' || (text[0] >= '0' && text[0] <= '9');
  if (!looks_like_number && text[0] != '[') return cell;
  auto value = nlohmann::json::parse(text, nullptr, false);
  const auto is_number = [](const nlohmann::json& one) { return one.is_number(); };
  if (value.is_number() || (value.is_array() && std::ranges::all_of(value, is_number)))
    return value;
  return cell;
}

// The sign of a NaN says nothing.
std::string unsigned_nan_cell(const std::string& cell) {
  return cell == "-nan" || cell == "+nan" ? "nan" : cell;
}

bool is_number_cell(const std::string& cell) {
  return json_cell(cell).is_number();
}

// The parser takes nan and inf for numbers, and ranges let NaN through.
std::string why_not_finite(const std::string& text) {
  double value = 0;
  const bool is_finite = CLI::detail::lexical_cast(text, value) && std::isfinite(value);
  return is_finite ? "" : fmt::format("expected a finite number, got {}", text);
}

void refuse_nonfinite(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (option->get_type_name().starts_with("FLOAT")) option->check(why_not_finite);
  }
}

// Commands that read --set and --seed, and that open a device; others refuse these flags.
constexpr std::string_view kReadSet[] = {"train", "plan", "eval",         "embed",
                                         "bench", "demo", "data inspect", "doctor"};
constexpr std::string_view kReadSeed[] = {"train",        "plan",       "bench",         "demo",
                                          "data inspect", "doctor",     "compare",       "serve",
                                          "generate",     "optim-step", "formats encode"};

constexpr std::string_view kOpenDevice[] = {
    "train",   "plan",  "eval",    "embed",    "bench", "demo",       "doctor",
    "compare", "serve", "convert", "generate", "ptq",   "optim-step", "study activations",
    "opt"};

// Without the program's name: "data inspect".
std::string path_of(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  if (parent == nullptr || parent->get_parent() == nullptr) return command.get_name();
  return path_of(*parent) + " " + command.get_name();
}

// Whatever its value is, or this one alone.
void refuse_unread(CLI::Option& flag, std::span<const std::string_view> readers,
                   const CLI::App& command, const std::string& refused = "") {
  const std::string path = path_of(command);
  if (std::ranges::find(readers, path) != readers.end()) return;
  flag.check(CLI::Validator(
      [readers, path, refused](const std::string& value) {
        if (!refused.empty() && value != refused) return std::string();
        return fmt::format("expected it with {}, got {}", fmt::join(readers, ", "), path);
      },
      ""));
}

std::string padded(const std::string& text, size_t width, bool to_the_right) {
  const std::string space(width - std::min(width, display_width(text)), ' ');
  return to_the_right ? space + text : text + space;
}

}  // namespace

std::vector<std::string> GlobalOptions::config_sets() const {
  std::vector<std::string> all = sets;
  if (seed) {
    expect_no_set(fmt::format("--seed {}", *seed), "train.seed", sets);
    all.push_back(fmt::format("train.seed={}", *seed));
  }
  return all;
}

void add_global_flags(CLI::App& command, GlobalOptions& options) {
  const std::string group = kGlobalFlagGroup;
  if (!has_option(command, "--threads")) {
    command.add_option("--threads", options.threads, "threads; 0: one per usable core")
        ->check(CLI::Range(0, 4096))
        ->group(group);
  }
  if (!has_option(command, "--isa")) {
    command.add_option("--isa", options.isa, "instruction set of the CPU kernels")
        ->check(one_of({"auto", "scalar", "avx2", "avx512", "amx"}))
        ->group(group);
  }
  if (!has_option(command, "--device")) {
    CLI::Option* device =
        command.add_option("--device", options.device, "device that runs the plan")
            ->check(one_of({"cpu", "cuda"}))
            ->group(group);
    refuse_unread(*device, kOpenDevice, command, "cuda");
  }
  if (!has_option(command, "--seed")) {
    CLI::Option* seed = command.add_option("--seed", options.seed, "random seed (train.seed)")
                            ->check(CLI::Range(uint32_t{0}, UINT32_MAX))
                            ->group(group);
    refuse_unread(*seed, kReadSeed, command);
  }
  if (!has_option(command, "--set")) {
    CLI::Option* set = command
                           .add_option("--set", options.sets,
                                       "KEY=VALUE over the configuration file; may be repeated")
                           ->type_name("KEY=VALUE")
                           ->expected(1)
                           ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
                           ->allow_extra_args(false)
                           ->group(group);
    refuse_unread(*set, kReadSet, command);
  }
  if (!has_option(command, "--quiet")) {
    command.add_flag("--quiet", options.quiet, "results and errors only")->group(group);
  }
  if (!has_option(command, "--json")) {
    command.add_flag("--json", options.json, "tables as JSON")->group(group);
  }
  if (!has_option(command, "--wide")) {
    command
        .add_flag("--wide", options.wide,
                  "tables on a terminal with all digits and whole rows, however wide")
        ->group(group);
  }
  refuse_nonfinite(command);
  for (CLI::App* inner : command.get_subcommands({})) add_global_flags(*inner, options);
}

void expect_flags_read(const CLI::App& command, std::initializer_list<FlagUse> uses) {
  for (const FlagUse& use : uses) {
    if (use.is_read || command.count(use.flag) == 0) continue;
    throw Error(ErrorCode::invalid_argument, "{}: expected it with {}", use.flag, use.with);
  }
}

CLI::Validator as_key(std::string_view path, Zero zero) {
  const ConfigRow* row = find_config_row(path);
  CHECK(row != nullptr);
  const auto why_not = [row, zero](const std::string& text) -> std::string {
    double value = 0;
    const bool is_number = CLI::detail::lexical_cast(text, value);
    if (is_number &&
        (is_within(row->limits.bounds, value) || (value == 0 && zero == Zero::is_allowed)))
      return "";
    return fmt::format("expected {}, got {}", expected_text(*row), text);
  };
  return {why_not, "", std::string(path)};
}

CLI::Validator one_of(std::vector<std::string> names) {
  const std::string listed = fmt::format("{{{}}}", fmt::join(names, ","));
  const auto why_not = [names = std::move(names)](const std::string& text) -> std::string {
    if (std::ranges::find(names, text) != names.end()) return "";
    return fmt::format("expected one of {}, got {}{}", fmt::join(names, ", "), text,
                       nearest_hint("; the nearest is ", text, names));
  };
  return {why_not, listed, "one of"};
}

Log make_log(const GlobalOptions& options) {
  return Log([quiet = options.quiet](LogLevel level, const std::string& message) {
    if (quiet && level != LogLevel::warning) return;
    write_message(level == LogLevel::warning ? "warning: " : "", message);
  });
}

std::string bytes_cell(const GlobalOptions& options, int64_t n_bytes) {
  return options.json ? fmt::to_string(n_bytes) : bytes_text(static_cast<double>(n_bytes));
}

size_t display_width(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char ch) { return (static_cast<unsigned char>(ch) & 0xc0) != 0x80; }));
}

std::string table_text(const Table& given) {
  Table table = given;
  for (auto& row : table.rows)
    for (std::string& cell : row) cell = printable(unsigned_nan_cell(cell));
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

OrderedJson table_json(const Table& table) {
  OrderedJson rows = OrderedJson::array();
  for (const auto& row : table.rows) {
    CHECK(row.size() == table.columns.size());
    OrderedJson object;
    for (size_t i = 0; i < row.size(); ++i)
      object[table.columns[i]] = json_cell(unsigned_nan_cell(row[i]));
    rows.push_back(std::move(object));
  }
  return rows;
}

std::string table_markdown(const Table& table) {
  std::string text = fmt::format("| {} |\n|", fmt::join(table.columns, " | "));
  for (size_t i = 0; i < table.columns.size(); ++i) text += " --- |";
  for (const auto& row : table.rows) text += fmt::format("\n| {} |", fmt::join(row, " | "));
  return text + "\n";
}

std::string json_text(const OrderedJson& json) {
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

void print_table(const GlobalOptions& options, const Table& table) {
  write_out(options.json ? json_text(table_json(table)) : shown_text(options, table));
}

}  // namespace octet
