#include "optim/state_format.h"

#include <fmt/ranges.h>

#include "base/error.h"

namespace octet {
namespace {

constexpr StateFormatRow kStateFormats[] = {
    {"f32", {.dtype = Dtype::f32}},
    {"bf16", {.dtype = Dtype::bf16}},
    {"bf16_sr", {.dtype = Dtype::bf16, .stochastic = true}},
    {"e4m3", {.dtype = Dtype::e4m3}},
    {"e4m3+x", {.dtype = Dtype::e4m3, .expand = true}},
    {"e4m3_sr", {.dtype = Dtype::e4m3, .stochastic = true}},
    {"e4m3_sr+x", {.dtype = Dtype::e4m3, .expand = true, .stochastic = true}},
    {"e5m2", {.dtype = Dtype::e5m2}},
    {"e5m2+x", {.dtype = Dtype::e5m2, .expand = true}},
    {"e5m2_sr", {.dtype = Dtype::e5m2, .stochastic = true}},
    {"e5m2_sr+x", {.dtype = Dtype::e5m2, .expand = true, .stochastic = true}},
    {"hif8", {.dtype = Dtype::hif8}},
    {"hif8+x", {.dtype = Dtype::hif8, .expand = true}},
    {"hif8_sr", {.dtype = Dtype::hif8, .stochastic = true}},
    {"hif8_sr+x", {.dtype = Dtype::hif8, .expand = true, .stochastic = true}},
    {"de8", {.dtype = Dtype::de8s}},
    {"de8+x", {.dtype = Dtype::de8s, .expand = true}},
    {"de8_sr", {.dtype = Dtype::de8s, .stochastic = true}},
    {"de8_sr+x", {.dtype = Dtype::de8s, .expand = true, .stochastic = true}},
};

const StateFormatRow* find(std::string_view name) {
  for (const StateFormatRow& row : kStateFormats) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace

std::span<const StateFormatRow> state_formats() {
  return kStateFormats;
}

std::vector<std::string> state_format_names() {
  std::vector<std::string> names;
  for (const StateFormatRow& row : kStateFormats) {
    names.emplace_back(row.name);
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

Dtype first_moment_dtype(const StateFormat& format) {
  return format.dtype;
}
Dtype second_moment_dtype(const StateFormat& format) {
  return format.dtype == Dtype::de8s ? Dtype::de8u : format.dtype;
}

}  // namespace octet
