#include "plan/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "ir/op_def.h"
#include "plan/views.h"

namespace octet {
namespace {

std::string offset_text(Arena arena, int64_t offset, Offsets offsets) {
  return offsets == Offsets::no ? "" : fmt::format(" @{}+{}", enum_name(arena), offset);
}

std::string place(const Plan& plan, ValueId id, Offsets offsets) {
  const Buffer& buffer = plan.buffers[plan.buffer_of[id]];
  const std::string where = buffer.name[0] == '%' ? "" : " \"" + buffer.name + "\"";
  return fmt::format("%{}{} {}{}", id, where, to_string(plan.graph.type(id)),
                     offset_text(buffer.arena, place_of(plan, id).offset, offsets));
}

// Relation of a step to the other stream; empty where there is none.
std::string stream_text(const PlanStep& step) {
  std::string text;
  if (step.stream == Stream::transfer) text += " beside computing";
  if (step.begins_collective_group) text += ", barrier before";
  if (step.ends_collective_group) text += ", barrier behind";
  if (step.joins >= 0) text += fmt::format(", when {} has ended", step.joins);
  return text;
}

}  // namespace

MemoryReport report_memory(const Plan& plan) {
  MemoryReport report;
  report.peak_bytes = plan.peak_bytes();
  const int n_steps = static_cast<int>(plan.steps.size());
  ById<int64_t> live(static_cast<size_t>(n_steps) + 2, 0);
  for (const Buffer& buffer : plan.buffers) {
    const int first = std::max(buffer.first_step, 0), last = std::min(buffer.last_step, n_steps);
    live[first] += align_up(buffer.bytes);
    live[last + 1] -= align_up(buffer.bytes);
  }
  int64_t now = 0, most = -1;
  for (int step = 0; step < n_steps; ++step) {
    now += live[step];
    if (now > most) most = now, report.peak_step = step;
  }
  int64_t counted = 0;
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.first_step > report.peak_step || buffer.last_step < report.peak_step) continue;
    report.by_role[static_cast<size_t>(buffer.role)] += align_up(buffer.bytes);
    report.by_layer[buffer.layer] += align_up(buffer.bytes);
    counted += align_up(buffer.bytes);
  }
  report.by_role[static_cast<size_t>(MemoryRole::other)] += report.peak_bytes - counted;
  return report;
}

std::vector<std::string> layer_names(const Graph& graph) {
  ById<std::string> names;
  for (const Node& node : graph.nodes) {
    while (node.tag.layer >= std::ssize(names))
      names.push_back(layer_name({.layer = static_cast<int>(names.size())}));
    if (!node.tag.layer_name.empty()) names[node.tag.layer] = node.tag.layer_name;
  }
  return names;
}

std::vector<int64_t> kept_per_layer(const Graph& graph) {
  int n_layers = 0;
  for (const Node& node : graph.nodes) n_layers = std::max(n_layers, node.tag.layer + 1);
  ById<std::set<ValueId>> kept(static_cast<size_t>(n_layers));
  std::map<ValueId, int> first_reader;  // of values made outside of all layers
  for (const Node& node : graph.nodes) {
    if (node.tag.layer < 0 || node.tag.role != Role::backward) continue;
    for (const ValueId operand : node.operands) {
      if (operand == kNoValue) continue;
      const ValueId id = view_root(graph, operand);
      const Node* producer = graph.producer(id);
      if (producer == nullptr || producer->tag.role != Role::forward) continue;
      kept[node.tag.layer].insert(id);
      if (producer->tag.layer >= 0) continue;
      int& first = first_reader.try_emplace(id, node.tag.layer).first->second;
      first = std::min(first, node.tag.layer);
    }
  }
  for (const auto& [id, first] : first_reader) {
    for (auto layer = static_cast<size_t>(first) + 1; layer < kept.size(); ++layer)
      kept[layer].erase(id);
  }
  std::vector<int64_t> bytes;
  for (const auto& values : kept) {
    int64_t sum = 0;
    for (const ValueId id : values) sum += graph.type(id).n_bytes();
    bytes.push_back(sum);
  }
  return bytes;
}

std::map<std::string, int64_t> count_ops(const Graph& graph, bool layers_only) {
  std::map<std::string, int64_t> counts;
  for (const Node& node : graph.nodes) {
    if (layers_only && node.tag.layer < 0) continue;
    std::string key(op_def(node.op).name);
    if (node.op == OpCode::gemm) {
      key += fmt::format(" {} x {}", dtype_name(graph.type(node.in(Gemm::a)).dtype),
                         dtype_name(graph.type(node.in(Gemm::b)).dtype));
    }
    ++counts[key];
  }
  return counts;
}

std::string program_text(const Plan& plan, Offsets offsets) {
  std::string text = fmt::format("{:>5} {:>5} {:8} {:16} | kernel | results <- operands | bytes\n",
                                 "step", "layer", "role", "module");
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    const Node& node = plan.graph.node(step.node);
    std::vector<std::string> results, operands;
    int64_t n_bytes = 0;
    for (const ValueId id : node.results) {
      if (id == kNoValue) continue;
      results.push_back(place(plan, id, offsets));
      n_bytes += plan.graph.type(id).n_bytes();
    }
    for (const ValueId id : node.operands) {
      if (id != kNoValue) operands.push_back(fmt::format("%{}", id));
    }
    const std::string layer = node.tag.layer < 0 ? "-" : fmt::format("{}", node.tag.layer);
    text += fmt::format("{:5} {:>5} {:8} {:16} | {} | {} <- {} | {}", i, layer,
                        enum_name(node.tag.role), node.tag.origin, step.kernel.name,
                        fmt::join(results, ", "), fmt::join(operands, ", "), n_bytes);
    if (step.scratch >= 0) {
      const Buffer& scratch = plan.buffers[step.scratch];
      text += fmt::format(" scratch {}{}", scratch.bytes,
                          offset_text(scratch.arena, scratch.offset, offsets));
    }
    text += stream_text(step);
    if (step.chains_next) {
      text += ", one launch with the next";
    } else if (!step.chain_kernel.empty()) {
      text += fmt::format(" launches {}", step.chain_kernel);
    } else if (!step.kernel.launches.empty()) {
      text += fmt::format(" launches {}", fmt::join(step.kernel.launches, ", "));
    }
    text += "\n";
  }
  return text;
}

}  // namespace octet
