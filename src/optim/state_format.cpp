#include "optim/state_format.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "formats/table.h"

namespace octet {
namespace {

// "e4m3", or what the formats of m and v have in common: "de8".
std::string_view common_name(Dtype m, Dtype v) {
  const std::string_view first = dtype_name(m), second = dtype_name(v);
  size_t n = 0;
  while (n < first.size() && n < second.size() && first[n] == second[n]) ++n;
  return first.substr(0, n);
}

// A row for each way to store a moment in this format.
void append_rows(std::vector<StateFormatRow>& rows, std::string_view name, StateFormat format) {
  const bool can_expand = is_quantized(format.dtype), can_round = format.dtype != Dtype::f32;
  for (const bool stochastic : {false, true}) {
    for (const bool expand : {false, true}) {
      if ((stochastic && !can_round) || (expand && !can_expand)) continue;
      format.stochastic = stochastic;
      format.expand = expand;
      rows.push_back(
          {fmt::format("{}{}{}", name, stochastic ? "_sr" : "", expand ? "+x" : ""), format});
    }
  }
}

// f32, the other formats that need no scale, then quantized ones.
std::vector<StateFormatRow> make_rows() {
  std::vector<StateFormatRow> rows;
  append_rows(rows, dtype_name(Dtype::f32), {.dtype = Dtype::f32});
  for (const bool quantized : {false, true}) {
    for (const FormatRow& row : kFormats) {
      if (row.second_moment == Dtype::real || is_quantized(row.dtype) != quantized) continue;
      append_rows(rows, common_name(row.dtype, row.second_moment), {.dtype = row.dtype});
    }
  }
  return rows;
}

const StateFormatRow* find(std::string_view name) {
  for (const StateFormatRow& row : state_formats()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace

std::span<const StateFormatRow> state_formats() {
  static const std::vector<StateFormatRow> rows = make_rows();
  return rows;
}

std::vector<std::string> state_format_names() {
  std::vector<std::string> names;
  for (const StateFormatRow& row : state_formats()) {
    names.push_back(row.name);
    if (!is_quantized(row.format.dtype)) names.push_back(names.back() + "+x");
  }
  return names;
}

StateFormat state_format_from_name(std::string_view name) {
  if (const StateFormatRow* row = find(name)) return row->format;
  if (name.ends_with("+x")) {
    const StateFormatRow* row = find(name.substr(0, name.size() - 2));
    if (row != nullptr && !is_quantized(row->format.dtype)) return row->format;
  }
  throw Error(ErrorCode::invalid_argument, "[state format] expected one of {}, got {}",
              fmt::join(state_format_names(), ", "), name);
}

std::vector<std::string> run_state_format_names() {
  std::vector<std::string> names = state_format_names();
  names.emplace_back(kScaledHalf);
  return names;
}

StateFormat run_state_format_from_name(std::string_view name) {
  if (name == kScaledHalf) return {.dtype = Dtype::fp16, .stochastic = true};
  return state_format_from_name(name);
}

bool expands_as_named(std::string_view name) {
  return !name.ends_with("+x") || run_state_format_from_name(name).expand;
}

Dtype first_moment_dtype(const StateFormat& format) {
  return format.dtype;
}
Dtype second_moment_dtype(const StateFormat& format) {
  if (is_scaled(format) || !is_format(format.dtype)) return format.dtype;
  return format_row(format.dtype).second_moment;
}

}  // namespace octet
