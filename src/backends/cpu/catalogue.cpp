#include "backends/cpu/catalogue.h"

#include "backends/cpu/backend.h"
#include "backends/cpu/bind/binding.h"
#include "backends/cpu/bind/codes.h"
#include "backends/cpu/bind/widened.h"
#include "backends/cpu/device.h"
#include "backends/cpu/reference/reference.h"
#include "ir/op_def.h"
#include "ir/ops/quantize_layers.h"
#include "ir/print.h"
#include "plan/kernel_name.h"

namespace octet::cpu {
namespace {

// Equal for two nodes exactly when they want the same kernel.
std::string choice_key(const NodeView& view) {
  Graph types;
  Node node = view.node;
  node.tag = {};
  for (auto* ids : {&node.operands, &node.results}) {
    for (ValueId& id : *ids) {
      if (id == kNoValue) continue;
      types.values.push_back({.type = view.graph.type(id)});
      id = static_cast<ValueId>(types.values.size()) - 1;
    }
  }
  std::string key = print(types, node);
  for (const Value& value : types.values) key += to_string(value.type);
  return key;
}

bool has_block_scales(const NodeView& view) {
  if (view.node.op != OpCode::gemm) return false;
  return !scale_tile(view.in(octet::Gemm::a)).is_all() ||
         !scale_tile(view.in(octet::Gemm::b)).is_all();
}

// Operands of norms and activations with one scale, or a product that is stored as codes.
bool has_one_scale(const NodeView& view) {
  const OpCode op = view.node.op;
  if (op == OpCode::gemm) return view.has(octet::Gemm::scale_y);
  const bool is_layer =
      op_def(op).saves || quantized_layer(op) || op == OpCode::gated_act_grad_quantize;
  return is_layer && std::ranges::any_of(op_def(op).scales, [&](ScalePlace place) {
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
  return n * static_cast<int64_t>(sizeof(double));
}

// Decodes the operands into scratch, calls the scalar kernel, encodes the results.
class ReferenceLaunch {
 public:
  explicit ReferenceLaunch(const NodeView& view)
      : attrs_(view.node.attrs), kernel_(reference::kernel(view.node.op)) {
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
    kernel_({.attrs = attrs_, .in = in, .out = out});
    for (size_t i = 0; i < out_.size(); ++i) {
      if (is_there(out_[i])) reference::store(out_[i].dtype, out[i].data, args.results[i]);
    }
  }

 private:
  static bool is_there(const TensorType& type) { return type != absent_type(); }

  Attrs attrs_;
  reference::Kernel kernel_;
  std::vector<TensorType> in_, out_;  // absent_type() for what is absent
};

}  // namespace

std::optional<KernelChoice> CpuCatalogue::choose(const Graph& graph, const Node& node) const {
  const NodeView view{graph, node};
  if (has_block_scales(view)) return std::nullopt;  // GEMMs read what is dequantized before
  if (isa_ != Isa::scalar && has_one_scale(view)) return std::nullopt;  // likewise
  if (has_scaled_moment(view)) return std::nullopt;
  const RowSumsScope scope(rows_);
  auto key = choice_key(view);
  if (const auto known = choices_.find(key); known != choices_.end()) return known->second;
  KernelChoice choice;
  choice.name = kernel_name(view);
  const int n_threads = context_.pool.n_threads();
  if (const Binding* binding = fast_binding(view)) {
    if (binding->scratch_bytes != nullptr)
      choice.scratch_bytes = binding->scratch_bytes(view, n_threads);
  } else if (const auto widened = widened_node(view)) {
    choice.scratch_bytes = widened->scratch_bytes(n_threads);
  } else if (isa_ != Isa::scalar && emits_amax(node.attrs)) {
    return std::nullopt;  // the maximum is taken apart: of FP16, whose kernels are those of f32
  } else {
    choice.reference = true;
    choice.scratch_bytes = reference_scratch(view);
  }
  return choices_.emplace(std::move(key), std::move(choice)).first->second;
}

LaunchFn CpuCatalogue::prepare(const Graph& graph, const Node& node) {
  const RowSumsScope scope(rows_);
  const NodeView view{graph, node};
  if (const Binding* binding = fast_binding(view)) return binding->prepare(view, context_);
  if (const auto widened = widened_node(view)) return widened->prepare(context_);
  return ReferenceLaunch(view);
}

const Binding* CpuCatalogue::fast_binding(const NodeView& view) const {
  return isa_ == Isa::scalar ? find_rank_binding(view) : find_binding(view);
}

std::optional<WidenedNode> CpuCatalogue::widened_node(const NodeView& view) const {
  return isa_ == Isa::scalar ? std::nullopt : WidenedNode::of(view);
}

Backend make_backend(int n_threads, Isa isa, RowSums rows, Group* group) {
  if (isa != Isa::scalar) limit_isa(isa);
  Backend backend;
  backend.pool = std::make_unique<ThreadPool>(n_threads);
  backend.device = std::make_unique<CpuDevice>(isa, backend.pool->n_threads());
  backend.catalogue = std::make_unique<CpuCatalogue>(isa, rows, *backend.pool, group);
  return backend;
}

}  // namespace octet::cpu
