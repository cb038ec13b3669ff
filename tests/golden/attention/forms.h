// The problems of attention.json, which PyTorch solved (make_golden.py), as graphs of one node.
#pragma once

#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "backends/cpu/reference/reference.h"
#include "golden/golden_text.h"
#include "ir/builder.h"

namespace octet::test {

// A hash of i, in 15 bits: exact in f32.
inline double attention_value(uint32_t seed, size_t i) {
  uint32_t x = static_cast<uint32_t>(i + 1) * 0x9E3779B1u + seed * 0x85EBCA77u;
  x ^= x >> 15, x *= 0x2C1B3C6Du;
  x ^= x >> 12, x *= 0x297A2D39u;
  x ^= x >> 15;
  return (x >> 17) / 16384.0 - 1;
}
inline std::vector<double> attention_values(uint32_t seed, int64_t n) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(attention_value(seed, static_cast<size_t>(i)));
  return values;
}

struct AttentionForm {
  AttentionAttrs attrs;
  std::vector<double> begins = {}, ends = {};  // empty: not there
  Shape bias = {};
  bool has_holes = false;
  std::map<std::string, std::array<double, 2>> sums = {};  // of each result
  std::string text = {};

  Shape q() const { return {attrs.batch * attrs.q_len, attrs.heads * attrs.head_dim}; }
  Shape kv() const { return {attrs.batch * attrs.kv_len, attrs.kv_heads * attrs.head_dim}; }
};

inline std::vector<double> unpacked(const nlohmann::json& runs) {
  std::vector<double> values;
  if (runs.is_null()) return values;
  for (const auto& run : runs)
    values.insert(values.end(), run[1].get<size_t>(), run[0].get<double>());
  return values;
}

inline AttentionForm attention_form(const nlohmann::json& at) {
  const auto number = [&](const char* key) { return at.at(key).get<int64_t>(); };
  AttentionForm form{
      .attrs = {.batch = number("batch"),
                .q_len = number("q_len"),
                .kv_len = number("kv_len"),
                .heads = number("heads"),
                .kv_heads = number("kv_heads"),
                .head_dim = number("head_dim"),
                .scale = at.at("scale").get<double>(),
                .mask = at.at("mask") == "full" ? AttentionMask::full : AttentionMask::causal,
                .window = number("window")},
      .begins = unpacked(at.at("begins")),
      .ends = unpacked(at.at("ends")),
      .has_holes = at.at("holes").get<bool>()};
  if (!at.at("bias").is_null()) form.bias = at.at("bias").get<Shape>();
  at.at("sums").get_to(form.sums);
  nlohmann::json shown = at;
  shown.erase("sums");
  form.text = shown.dump();
  return form;
}

inline std::vector<AttentionForm> attention_forms() {
  const auto list =
      nlohmann::json::parse(posix_files().read_text(golden_path("attention/attention.json")));
  std::vector<AttentionForm> forms;
  for (const auto& at : list) forms.push_back(attention_form(at));
  return forms;
}

// real: in the logical phase. Statistics and, where that is said, the bias are f32 otherwise.
struct FormTypes {
  Dtype dtype = Dtype::real;
  Dtype bias = Dtype::real;
};

enum class Pass { forward, gradient };

// Inputs and outputs have the names of the op's operands and results.
inline Graph form_graph(const AttentionForm& form, Pass pass, const FormTypes& types) {
  const OpCode op = pass == Pass::forward ? OpCode::attention : OpCode::attention_grad;
  Graph graph;
  graph.phase = types.dtype == Dtype::real ? Phase::logical : Phase::typed;
  Builder b(graph);
  AttentionAttrs attrs = form.attrs;
  attrs.bias_gradient = pass == Pass::gradient && !form.bias.empty();
  const Dtype statistic = types.dtype == Dtype::real ? Dtype::real : Dtype::f32;
  const int64_t rows = attrs.batch * attrs.q_len;
  const std::map<std::string_view, TensorType> given = {
      {"dout", {types.dtype, form.q()}},
      {"q", {types.dtype, form.q()}},
      {"k", {types.dtype, form.kv()}},
      {"v", {types.dtype, form.kv()}},
      {"o", {types.dtype, form.q()}},
      {"lse", {statistic, {rows * attrs.heads}}},
      {"key_begins", {Dtype::i32, {form.begins.empty() ? 0 : rows}}},
      {"key_ends", {Dtype::i32, {form.ends.empty() ? 0 : rows}}},
      {"bias", {types.bias, form.bias}}};
  ValueIds operands;
  const SlotList& slots = op_def(op).operands;
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto found = given.find(slots[i].name);
    const bool is_there =
        found != given.end() && !found->second.shape.empty() && found->second.shape != Shape{0};
    operands.push_back(
        is_there ? b.input(InputKind::batch, std::string(found->first), found->second) : kNoValue);
  }
  ResultTypes results(4, types.dtype);
  if (pass == Pass::forward) results[1] = statistic;
  results[3] = types.bias;
  const ValueIds made = b.emit_typed(op, attrs, operands, results);
  for (size_t i = 0; i < made.size(); ++i)
    b.output(std::string(op_def(op).results[i].name), made[i]);
  return graph;
}

// All inputs but o and lse, which the forward pass gives.
inline reference::Tensors form_inputs(const AttentionForm& form) {
  reference::Tensors inputs = {{"q", attention_values(0, n_elems(form.q()))},
                               {"k", attention_values(1, n_elems(form.kv()))},
                               {"v", attention_values(2, n_elems(form.kv()))},
                               {"dout", attention_values(3, n_elems(form.q()))},
                               {"key_begins", form.begins},
                               {"key_ends", form.ends}};
  if (form.bias.empty()) return inputs;
  std::vector<double> bias = attention_values(4, n_elems(form.bias));
  for (size_t i = 0; form.has_holes && i < bias.size(); ++i) {
    if (attention_value(5, i) > 0.5) bias[i] = -HUGE_VAL;
  }
  inputs["bias"] = std::move(bias);
  return inputs;
}

// The largest difference, relative to the largest finite value of the result, or to a tenth of the
// largest of all where that is more (one key has no gradient but v's: rounding errors are all there
// is); infinite where one alone is not finite.
inline double form_error(const reference::Tensors& got, const reference::Tensors& want) {
  double error = 0, least = 0;
  for (const auto& [name, values] : want) {
    for (const double x : values) least = std::max(least, std::isfinite(x) ? std::abs(x) / 10 : 0);
  }
  for (const auto& [name, values] : want) {
    double largest = least, off = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double x = got.at(name)[i];
      if (std::isfinite(values[i])) largest = std::max(largest, std::abs(values[i]));
      if (x == values[i]) continue;
      off = std::max(off, std::isfinite(x - values[i]) ? std::abs(x - values[i]) : HUGE_VAL);
    }
    if (off > 0) error = std::max(error, off / largest);
  }
  return error;
}

}  // namespace octet::test
