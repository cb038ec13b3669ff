#include "backends/cpu/reference/prepared_op.h"

#include <algorithm>
#include <numeric>

#include "backends/cpu/reference/card.h"
#include "base/error.h"
#include "ir/builder.h"
#include "plan/offsets.h"

namespace octet::reference {
namespace {

constexpr auto kBytes = static_cast<int64_t>(sizeof(double));

}  // namespace

PreparedOp::PreparedOp(const Graph& graph, const Node& node, Arithmetic arithmetic)
    : attrs_(node.attrs), arithmetic_(arithmetic), kernel_(kernel(node.op)) {
  const Kernel card = arithmetic == Arithmetic::own ? nullptr : card_kernel(graph, node);
  if (card != nullptr) kernel_ = card;
  if (kernel_ != nullptr) return;
  decompose(graph, node);
  for (const Node& part : parts_.nodes) steps_.emplace_back(parts_, part, arithmetic);
  place_values();
}

void PreparedOp::decompose(const Graph& graph, const Node& node) {
  parts_.phase = Phase::typed;
  Builder builder(parts_);
  builder.default_dtype = Dtype::f32;
  Node whole = node;
  for (ValueId& id : whole.operands) {
    if (id == kNoValue) continue;
    id = builder.input(InputKind::batch, std::to_string(parts_.inputs.size()), graph.type(id));
  }
  operands_ = whole.operands;
  results_ = op_def(node.op).decompose(builder, whole, result_types(graph, node));
  CHECK(results_.size() == node.results.size());
  for (size_t i = 0; i < results_.size(); ++i) {
    if (node.results[i] == kNoValue) results_[i] = kNoValue;
  }
}

// Operands and results lie where the caller has them. A kernel may write over an operand that it
// reads last, as OpRules::inplace says.
void PreparedOp::place_values() {
  const auto n_values = parts_.values.size();
  std::vector<Buffer> buffers(n_values + steps_.size());
  for (size_t i = 0; i < n_values; ++i) {
    const Value& value = parts_.values[i];
    buffers[i].first_step = buffers[i].last_step = value.producer;
    buffers[i].bytes = value.type.n_stored() * kBytes;
  }
  for (const ValueIds* ids : {&operands_, &results_}) {
    for (const ValueId id : *ids) {
      if (id != kNoValue) buffers[static_cast<size_t>(id)].bytes = 0;
    }
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (const ValueId id : parts_.nodes[i].operands) {
      if (id != kNoValue) buffers[static_cast<size_t>(id)].last_step = static_cast<int>(i);
    }
    Buffer& scratch = buffers[n_values + i];
    scratch.first_step = scratch.last_step = static_cast<int>(i);
    scratch.bytes = steps_[i].n_scratch() * kBytes;
  }
  const std::vector<size_t> owners = share_buffers(buffers);
  std::vector<int> all(buffers.size());
  std::iota(all.begin(), all.end(), 0);
  n_scratch_ = assign_offsets(buffers, all) / kBytes;
  for (const size_t owner : owners) value_offsets_.push_back(buffers[owner].offset / kBytes);
  for (size_t i = n_values; i < buffers.size(); ++i)
    step_offsets_.push_back(buffers[i].offset / kBytes);
}

// By value the one whose buffer it takes.
std::vector<size_t> PreparedOp::share_buffers(std::vector<Buffer>& buffers) const {
  std::vector<size_t> owners(parts_.values.size());
  std::iota(owners.begin(), owners.end(), size_t{0});
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].kernel_ == nullptr) continue;
    const Node& node = parts_.nodes[i];
    for (const InplacePair pair : op_def(node.op).inplace) {
      const ValueId from = node.in(pair.operand), to = node.out(pair.result);
      if (from == kNoValue || to == kNoValue) continue;
      const auto result = static_cast<size_t>(to);
      const size_t owner = owners[static_cast<size_t>(from)];
      const bool is_last = buffers[owner].last_step == static_cast<int>(i);
      if (!is_last || buffers[result].bytes == 0 || buffers[owner].bytes != buffers[result].bytes)
        continue;
      owners[result] = owner;
      buffers[owner].last_step = buffers[result].last_step;
      buffers[result].bytes = 0;
    }
  }
  return owners;
}

void PreparedOp::operator()(std::span<const RefTensor> in, std::span<RefTensor> out,
                            double* scratch) const {
  if (kernel_ != nullptr) return kernel_({.attrs = attrs_, .in = in, .out = out});
  std::vector<RefTensor> values;
  for (size_t i = 0; i < parts_.values.size(); ++i) {
    const TensorType& type = parts_.values[i].type;
    values.push_back({.type = type,
                      .data = {scratch + value_offsets_[i], static_cast<size_t>(type.n_stored())}});
  }
  const auto data = [&](ValueId id) -> std::span<double>& {
    return values[static_cast<size_t>(id)].data;
  };
  for (size_t i = results_.size(); i-- > 0;) {
    if (results_[i] != kNoValue) data(results_[i]) = out[i].data;
  }
  for (size_t i = 0; i < operands_.size(); ++i) {
    if (operands_[i] != kNoValue) data(operands_[i]) = in[i].data;
  }
  const auto tensors = [&](const ValueIds& ids) {
    std::vector<RefTensor> slots;
    for (const ValueId id : ids)
      slots.push_back(id == kNoValue ? RefTensor{} : values[static_cast<size_t>(id)]);
    return slots;
  };
  for (size_t i = 0; i < steps_.size(); ++i) {
    const std::vector<RefTensor> from = tensors(parts_.nodes[i].operands);
    std::vector<RefTensor> to = tensors(parts_.nodes[i].results);
    steps_[i](from, to, scratch + step_offsets_[i]);
    for (const RefTensor& result : to) {
      if (result.type.dtype == Dtype::f32 && arithmetic_ == Arithmetic::own) continue;
      for (double& x : result.data) x = round_to(result.type.dtype, x);
    }
  }
  // Values that are several results, or an operand.
  for (size_t i = 0; i < results_.size(); ++i) {
    if (results_[i] == kNoValue) continue;
    const std::span<const double> made = data(results_[i]);
    if (made.data() != out[i].data.data()) std::ranges::copy(made, out[i].data.begin());
  }
}

}  // namespace octet::reference
