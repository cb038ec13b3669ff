#include "cli/attention_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/common.h"
#include "ir/builder.h"
#include "plan/kernel_row.h"
#include "plan/node_view.h"

namespace octet {
namespace {

// A node that a row is asked for.
struct Probe {
  AttentionAttrs attrs = {.batch = 2, .q_len = 64, .kv_len = 64, .heads = 4, .kv_heads = 2};
  Dtype dtype = Dtype::bf16;
  bool has_begins = false, has_ends = false, has_bias = false, is_cached = false;
};

Graph graph_of(OpCode op, const Probe& probe) {
  const AttentionAttrs& a = probe.attrs;
  const bool is_gradient = op == OpCode::attention_grad;
  Graph graph;
  graph.phase = Phase::lowered;
  Builder b(graph);
  const auto input = [&](Dtype dtype, const Shape& shape, bool is_there = true) {
    return is_there ? b.input(InputKind::batch, fmt::format("in{}", graph.inputs.size()),
                              {.dtype = dtype, .shape = shape})
                    : kNoValue;
  };
  const int64_t rows = a.batch * a.q_len;
  const Shape q{rows, a.heads * a.head_dim}, kv{a.batch * a.kv_len, a.kv_heads * a.head_dim};
  ValueIds operands;
  if (is_gradient) operands.push_back(input(probe.dtype, q));
  for (const Shape& shape : {q, kv, kv}) operands.push_back(input(probe.dtype, shape));
  if (is_gradient) {
    operands.push_back(input(probe.dtype, q));
    operands.push_back(input(Dtype::f32, {rows * a.heads}));
  }
  operands.push_back(input(Dtype::i32, {rows}, probe.has_begins));
  if (!is_gradient) operands.push_back(input(Dtype::i32, {rows}, probe.is_cached));
  operands.push_back(input(Dtype::i32, {rows}, probe.has_ends));
  operands.push_back(input(probe.dtype, {1, a.heads, a.q_len, a.kv_len}, probe.has_bias));
  b.emit(op, a, operands);
  return graph;
}

bool takes(const KernelRow& row, const Target& target, const Probe& probe) {
  const bool is_own = probe.attrs.mask == AttentionMask::full || probe.has_begins || probe.has_ends;
  if (probe.is_cached && (is_own || row.op == OpCode::attention_grad)) return false;
  const Graph graph = graph_of(row.op, probe);
  return row.applies({.graph = graph, .node = graph.nodes[0], .target = target});
}

struct Form {
  const char* name;
  void (*make)(Probe& probe);
};
constexpr Form kForms[] = {
    {"full", [](Probe& p) { p.attrs.mask = AttentionMask::full; }},
    {"window", [](Probe& p) { p.attrs.window = 8; }},
    {"documents", [](Probe& p) { p.has_begins = true; }},
    {"ranges of both",
     [](Probe& p) {
       p.attrs.mask = AttentionMask::full;
       p.has_begins = p.has_ends = true;
     }},
    {"other number of keys",
     [](Probe& p) { p.attrs.mask = AttentionMask::full, p.attrs.kv_len = 96; }},
    {"bias", [](Probe& p) { p.has_bias = true; }},
    {"its gradient", [](Probe& p) { p.has_bias = p.attrs.bias_gradient = true; }},
    {"cache", [](Probe& p) { p.is_cached = true; }},
};

// The simplest that a row takes: of a cache alone where it takes nothing else.
Probe simplest(const KernelRow& row, const Target& target) {
  Probe probe;
  probe.attrs.head_dim = 64, probe.attrs.scale = 0.125;
  for (const bool is_cached : {false, true}) {
    for (const Dtype dtype : {Dtype::bf16, Dtype::f32, Dtype::fp16}) {
      probe.dtype = dtype, probe.is_cached = is_cached;
      if (takes(row, target, probe)) return probe;
    }
  }
  return probe;
}

std::string head_sizes(const KernelRow& row, const Target& target, Probe probe) {
  const auto takes_size = [&](int64_t size) {
    probe.attrs.head_dim = size;
    return takes(row, target, probe);
  };
  const char* const which = takes_size(20) ? "any" : "multiples of 8";
  int64_t most = 64;
  while (most < 1024 && takes_size(2 * most)) most *= 2;
  return most < 1024 ? fmt::format("{} to {}", which, most) : which;
}

std::string types(const KernelRow& row, const Target& target, Probe probe) {
  std::string text;
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::f32}) {
    probe.dtype = dtype;
    if (takes(row, target, probe))
      text += (text.empty() ? "" : ", ") + std::string(dtype_name(dtype));
  }
  return text;
}

}  // namespace

std::string attention_table(const Target& target) {
  Table table{{"op", "row", "types", "head sizes"}, {}};
  for (const Form& form : kForms) table.columns.emplace_back(form.name);
  for (const KernelRow* row : target.rows) {
    const bool is_attention = row->op == OpCode::attention || row->op == OpCode::attention_grad;
    if (!is_attention || row->facts.reference) continue;
    const Probe base = simplest(*row, target);
    auto& line =
        table.rows.emplace_back(cells(fmt::format("`{}`", op_def(row->op).name), row->name,
                                      types(*row, target, base), head_sizes(*row, target, base)));
    for (const Form& form : kForms) {
      Probe probe = base;
      form.make(probe);
      const bool is_possible = row->op == OpCode::attention_grad || !probe.attrs.bias_gradient;
      line.emplace_back(is_possible && takes(*row, target, probe) ? "yes" : "");
    }
  }
  return table_markdown(table);
}

}  // namespace octet
