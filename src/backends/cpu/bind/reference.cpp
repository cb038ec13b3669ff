// The reference: a scalar kernel for every op or the steps of its decomposition, over decoded
// doubles.
#include "backends/cpu/reference/prepared_op.h"

#include "backends/cpu/bind/codes.h"

namespace octet::cpu {
namespace {

// GEMMs read what is dequantized before.
bool has_block_scales(const NodeView& view) {
  if (view.node.op != OpCode::gemm) return false;
  return !scale_tile(view.in(octet::Gemm::a)).is_all() ||
         !scale_tile(view.in(octet::Gemm::b)).is_all();
}

// Operands of norms and activations with one scale, which is no factor of the result as a GEMM's
// is, or a product that is stored as codes.
bool has_one_scale(const NodeView& view) {
  const OpDef& def = op_def(view.node.op);
  if (def.takes_factors) return view.has(def.store.given_scale);
  const bool is_layer = def.saves || def.store.given_scale != kNoSlot;
  return is_layer && std::ranges::any_of(def.scales, [&](ScalePlace place) {
           const TensorType& type = view.in(place.operand);
           return type.is_scaled() && !is_in_groups(type);
         });
}

// A moment in FP16 with a scale, which is widened before and stored behind.
bool has_scaled_moment(const NodeView& view) {
  return view.node.op == OpCode::adamw_step && view.has(octet::AdamwStep::v_meta) &&
         view.in(octet::AdamwStep::v).dtype == Dtype::fp16;
}

int64_t reference_scratch(const NodeView& view) {
  int64_t n = 0;
  for (size_t i = 0; i < view.node.operands.size(); ++i)
    n += view.has(i) ? view.in(i).n_stored() : 0;
  for (size_t i = 0; i < view.node.results.size(); ++i)
    n += view.gives(i) ? view.out(i).n_stored() : 0;
  n += reference::PreparedOp(view.graph, view.node, view.target.arithmetic).n_scratch();
  return n * static_cast<int64_t>(sizeof(double));
}

// Decodes the operands into scratch, calls the op on them, encodes the results.
class ReferenceLaunch {
 public:
  explicit ReferenceLaunch(const NodeView& view)
      : op_(view.graph, view.node, view.target.arithmetic) {
    for (size_t i = 0; i < view.node.operands.size(); ++i)
      in_.push_back(view.has(i) ? view.in(i) : absent_type());
    for (size_t i = 0; i < view.node.results.size(); ++i)
      out_.push_back(view.gives(i) ? view.out(i) : absent_type());
  }

  void operator()(const LaunchArgs& args) const {
    auto* next = reinterpret_cast<double*>(args.scratch);
    const auto take = [&](const TensorType& type) {
      if (!is_there(type)) return reference::RefTensor{};
      const std::span<double> data(next, static_cast<size_t>(type.n_stored()));
      next += type.n_stored();
      return reference::RefTensor{.type = type, .data = data};
    };
    std::vector<reference::RefTensor> in, out;
    for (size_t i = 0; i < in_.size(); ++i) {
      in.push_back(take(in_[i]));
      if (is_there(in_[i])) reference::load(in_[i].dtype, args.operands[i], in.back().data);
    }
    for (const TensorType& type : out_) out.push_back(take(type));
    op_(in, out, next);
    for (size_t i = 0; i < out_.size(); ++i) {
      if (is_there(out_[i])) reference::store(out_[i].dtype, out[i].data, args.results[i]);
    }
  }

 private:
  static bool is_there(const TensorType& type) { return type != absent_type(); }

  reference::PreparedOp op_;
  std::vector<TensorType> in_, out_;  // absent_type() for what is absent
};

// Work that fast kernels would do in parts is taken apart for them: operands with one scale,
// maxima of FP16, whose kernels are those of f32.
bool reference_applies(const NodeView& view) {
  const bool is_alone = view.target.architecture == isa_name(Isa::scalar);
  return !has_block_scales(view) && !has_scaled_moment(view) &&
         (is_alone || (!has_one_scale(view) && !emits_amax(view.node.attrs)));
}

}  // namespace

std::span<const Binding> reference_bindings() {
  static const auto all = [] {
    std::vector<Binding> bindings;
    bindings.reserve(kOpCount);
    for (int op = 0; op < kOpCount; ++op) {
      bindings.push_back(
          {{.op = static_cast<OpCode>(op),
            .name = "reference",
            .applies = reference_applies,
            .scratch = reference_scratch,
            .facts = {.reference = true}},
           [](const NodeView& view, Context&) -> LaunchFn { return ReferenceLaunch(view); }});
    }
    return bindings;
  }();
  return all;
}

}  // namespace octet::cpu
