#include <algorithm>
#include <cmath>

#include "backends/cpu/adamw.h"
#include "backends/cpu/bind/launch.h"
#include "backends/cpu/reduce.h"

namespace octet::cpu {
namespace {

bool gradients_are_wide(const NodeView& view) {
  for (size_t i = 1; i < view.node.operands.size(); ++i) {
    if (!is_wide(view.in(i).dtype)) return false;
  }
  return true;
}

int64_t norm_scratch(const NodeView& view, int) {
  int64_t largest = 0;
  for (size_t i = 1; i < view.node.operands.size(); ++i) largest = std::max(largest, reduce_scratch(view.in(i).n_elems()));
  return largest * static_cast<int64_t>(sizeof(double));
}

// The squares of each gradient are summed in double, then those sums in the order of the operands.
LaunchFn prepare_global_norm(const NodeView& view, Context& context) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < view.node.operands.size(); ++i) sizes.push_back(view.in(i).n_elems());
  return [types = NodeTypes(view), sizes, &pool = context.pool](const LaunchArgs& args) {
    double total = 0;
    bool finite = true;
    for (size_t i = 1; i < sizes.size(); ++i) {
      const SumOfSquares part =
          sum_of_squares(types.operand(args, i), sizes[i], reinterpret_cast<double*>(args.scratch), pool);
      total += part.value;
      finite = finite && part.finite;
    }
    const double norm = std::sqrt(total);
    const double clip = *data<float>(args, 0);
    *data_out<float>(args, 0) = static_cast<float>(norm);
    *data_out<float>(args, 1) = static_cast<float>(clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0);
    *data_out<uint8_t>(args, 2) = finite ? 0 : 1;
  };
}

LaunchFn prepare_any_of(const NodeView& view, Context&) {
  return [n = view.node.operands.size()](const LaunchArgs& args) {
    uint8_t any = 0;
    for (size_t i = 0; i < n; ++i) any |= *data<uint8_t>(args, i);
    *data_out<uint8_t>(args, 0) = any;
  };
}

// Plain f32 moments; the weight f32, or bf16 with its remainder.
bool adamw_applies(const NodeView& view) {
  const bool weight = view.has(9) ? view.in(0).dtype == Dtype::bf16 && view.in(9).dtype == Dtype::i16
                                  : view.in(0).dtype == Dtype::f32;
  return weight && is_wide(view.in(1).dtype) && view.in(2).dtype == Dtype::f32 && view.in(3).dtype == Dtype::f32 &&
         view.node.operands.size() <= 10;
}

LaunchFn prepare_adamw(const NodeView& view, Context& context) {
  const auto& attrs = view.attrs<AdamwAttrs>();
  AdamWScalars fixed;
  fixed.beta1 = static_cast<float>(attrs.beta1);
  fixed.beta2 = static_cast<float>(attrs.beta2);
  fixed.eps = static_cast<float>(attrs.eps);
  fixed.weight_decay = static_cast<float>(attrs.weight_decay);
  return [types = NodeTypes(view), fixed, n = view.in(0).n_elems(), &pool = context.pool](const LaunchArgs& args) {
    AdamWScalars scalars = fixed;
    scalars.lr = *data<float>(args, 4);
    scalars.correction1 = *data<float>(args, 5);
    scalars.correction2 = *data<float>(args, 6);
    scalars.grad_scale = *data<float>(args, 7);
    adamw_step({.grad = types.operand(args, 1), .weight = types.result(args, 0), .remainder = data_out<int16_t>(args, 3),
                .m = data_out<float>(args, 1), .v = data_out<float>(args, 2), .copy = {},
                .skip = data<uint8_t>(args, 8)}, scalars, n, pool);
  };
}

const Binding kBindings[] = {
    {OpCode::global_norm, gradients_are_wide, norm_scratch, prepare_global_norm},
    {OpCode::any_of, [](const NodeView&) { return true; }, nullptr, prepare_any_of},
    {OpCode::adamw_step, adamw_applies, nullptr, prepare_adamw},
};

}  // namespace

std::span<const Binding> update_bindings() { return kBindings; }

}  // namespace octet::cpu
