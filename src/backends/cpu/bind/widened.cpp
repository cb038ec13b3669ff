// Nodes with FP16 operands or results on the kernels of f32: the operands are decoded, which is
// exact, and each result is rounded once to nearest even, keeping overflow as Inf, when it is
// stored. NaN is the canonical one of FP16.
//
// Scratch: an f32 copy of every FP16 operand and result, then the kernel's own.
#include <optional>

#include "backends/cpu/bind/binding.h"

#include "backends/cpu/codec/codec.h"
#include "backends/cpu/common/operand.h"
#include "ir/op_def.h"

namespace octet::cpu {
namespace {

const uint16_t* halves(const std::byte* data) {
  return reinterpret_cast<const uint16_t*>(data);
}

class WidenedNode {
 public:
  // Nothing where the node has no FP16 values.
  static std::optional<WidenedNode> of(const NodeView& view);

  // The fast row that applies with f32 in the place of FP16; nothing where there is none.
  std::optional<RowChoice> choose() const;
  int64_t copies_bytes() const { return copies_bytes_; }
  LaunchFn prepare(const KernelRow& row, Context& context) const;

 private:
  explicit WidenedNode(const NodeView& view) : node_(view.node), target_(view.target) {}
  NodeView view() const { return {graph_, node_, target_}; }

  // An FP16 value: its length and where its copy lies in the scratch.
  struct Copy {
    size_t index;
    int64_t n, offset;
  };
  Graph graph_;
  Node node_;
  const Target& target_;
  std::vector<Copy> operands_, results_;
  int64_t copies_bytes_ = 0;
};

std::optional<WidenedNode> WidenedNode::of(const NodeView& view) {
  if (emits_amax(view.node.attrs)) return std::nullopt;  // of results as they are stored
  WidenedNode result(view);
  const auto take = [&](ValueIds& ids, std::vector<Copy>& copies) {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == kNoValue) continue;
      TensorType type = view.graph.type(ids[i]);
      if (type.dtype == Dtype::fp16) {
        type.dtype = Dtype::f32;
        copies.push_back({i, type.n_elems(), result.copies_bytes_});
        result.copies_bytes_ += round_up(type.n_elems() * static_cast<int64_t>(sizeof(float)), 64);
      }
      result.graph_.values.push_back({.type = type});
      ids[i] = static_cast<ValueId>(result.graph_.values.size()) - 1;
    }
  };
  take(result.node_.operands, result.operands_);
  take(result.node_.results, result.results_);
  if (result.operands_.empty() && result.results_.empty()) return std::nullopt;
  return result;
}

std::optional<RowChoice> WidenedNode::choose() const {
  const auto choice = choose_row(view());
  return !choice || choice->row->facts.reference ? std::nullopt : choice;
}

LaunchFn WidenedNode::prepare(const KernelRow& row, Context& context) const {
  return [launch = binding_of(row).prepare(view(), context), operands = operands_,
          results = results_, after = copies_bytes_, codec = simd_codec(Dtype::fp16),
          &pool = context.pool](const LaunchArgs& args) {
    std::vector<std::byte*> from(args.operands.begin(), args.operands.end());
    std::vector<std::byte*> to(args.results.begin(), args.results.end());
    for (const Copy& copy : operands) {
      auto* const wide = reinterpret_cast<float*>(args.scratch + copy.offset);
      for_blocks(pool, copy.n, kBlockElems, [&](int64_t begin, int64_t end, int) {
        codec.decode_16(halves(from[copy.index]) + begin, static_cast<size_t>(end - begin),
                        wide + begin);
      });
    }
    for (const Copy& copy : operands) from[copy.index] = args.scratch + copy.offset;
    for (const Copy& copy : results) to[copy.index] = args.scratch + copy.offset;
    launch({.operands = from, .results = to, .scratch = args.scratch + after});
    for (const Copy& copy : results) {
      const auto* const wide = reinterpret_cast<const float*>(to[copy.index]);
      auto* const codes = reinterpret_cast<uint16_t*>(args.results[copy.index]);
      for_blocks(pool, copy.n, kBlockElems, [&](int64_t begin, int64_t end, int) {
        codec.encode_16(wide + begin, static_cast<size_t>(end - begin), codes + begin);
      });
    }
  };
}

std::optional<RowChoice> choose_widened(const NodeView& view) {
  const auto node = WidenedNode::of(view);
  return node ? node->choose() : std::nullopt;
}

}  // namespace

LaunchFn prepare_widened(const NodeView& view, const KernelRow& row, Context& context) {
  return WidenedNode::of(view)->prepare(row, context);
}

std::span<const Binding> widened_bindings() {
  static const auto all = [] {
    std::vector<Binding> bindings;
    for (int op = 0; op < kOpCount; ++op) {
      const KernelRow row{
          .op = static_cast<OpCode>(op),
          .name = "as f32",
          .applies = [](const NodeView& view) { return choose_widened(view).has_value(); },
          .scratch =
              [](const NodeView& view) {
                return WidenedNode::of(view)->copies_bytes() + choose_widened(view)->scratch_bytes;
              },
          .factor = 2,
          .runs_on = [](const NodeView& view) { return choose_widened(view)->row; }};
      bindings.push_back({row, nullptr});
    }
    return bindings;
  }();
  return all;
}

}  // namespace octet::cpu
