#include "plan/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "ir/op_def.h"
#include "plan/views.h"

namespace octet {
namespace {

std::string place(const Plan& plan, ValueId id) {
  const Buffer& buffer = plan.buffers[static_cast<size_t>(plan.buffer_of[static_cast<size_t>(id)])];
  const std::string where = buffer.name[0] == '%' ? "" : " \"" + buffer.name + "\"";
  return fmt::format("%{}{} {} @{}+{}", id, where, to_string(plan.graph.type(id)),
                     enum_name(buffer.lane), place_of(plan, id).offset);
}

// What a step has to do with the other stream; empty where there is nothing.
std::string stream_text(const PlanStep& step) {
  std::string text;
  if (step.stream == Stream::transfer) text += " beside computing";
  if (step.begins_run) text += ", ranks meet before";
  if (step.ends_run) text += ", ranks meet behind";
  if (step.joins >= 0) text += fmt::format(", when {} has ended", step.joins);
  return text;
}

}  // namespace

MemoryReport report_memory(const Plan& plan) {
  MemoryReport report;
  report.peak_bytes = plan.peak_bytes();
  const int n_steps = static_cast<int>(plan.steps.size());
  std::vector<int64_t> live(static_cast<size_t>(n_steps) + 2, 0);
  for (const Buffer& buffer : plan.buffers) {
    const int first = std::max(buffer.first_step, 0), last = std::min(buffer.last_step, n_steps);
    live[static_cast<size_t>(first)] += align_up(buffer.bytes);
    live[static_cast<size_t>(last) + 1] -= align_up(buffer.bytes);
  }
  int64_t now = 0, most = -1;
  for (int step = 0; step < n_steps; ++step) {
    now += live[static_cast<size_t>(step)];
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

std::vector<int64_t> kept_per_layer(const Graph& graph) {
  int n_layers = 0;
  for (const Node& node : graph.nodes) n_layers = std::max(n_layers, node.tag.layer + 1);
  std::vector<std::set<ValueId>> kept(static_cast<size_t>(n_layers));
  for (const Node& node : graph.nodes) {
    if (node.tag.layer < 0 || node.tag.role != Role::backward) continue;
    for (const ValueId operand : node.operands) {
      if (operand == kNoValue) continue;
      const ValueId id = view_root(graph, operand);
      const Node* producer = graph.producer(id);
      if (producer == nullptr || producer->tag.role != Role::forward) continue;
      if (producer->op == OpCode::all_gather) continue;  // a weight
      kept[static_cast<size_t>(node.tag.layer)].insert(id);
    }
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

std::string program_text(const Plan& plan) {
  std::string text;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    const Node& node = plan.graph.node(step.node);
    std::vector<std::string> results, operands;
    for (const ValueId id : node.results) {
      if (id != kNoValue) results.push_back(place(plan, id));
    }
    for (const ValueId id : node.operands) {
      if (id != kNoValue) operands.push_back(fmt::format("%{}", id));
    }
    const std::string layer = node.tag.layer < 0 ? "-" : fmt::format("{}", node.tag.layer);
    text += fmt::format("{:5} {:>3} {:8} {:16} {} = {}({})", i, layer, enum_name(node.tag.role),
                        node.tag.origin, fmt::join(results, ", "), step.kernel.name,
                        fmt::join(operands, ", "));
    if (step.scratch >= 0) {
      const Buffer& scratch = plan.buffers[static_cast<size_t>(step.scratch)];
      text +=
          fmt::format(" scratch {} @{}+{}", scratch.bytes, enum_name(scratch.lane), scratch.offset);
    }
    text += stream_text(step) + "\n";
  }
  return text;
}

}  // namespace octet
