// RMSNorm, LayerNorm and their gradients, of an x that is plain or stored in groups.
#include "backends/cpu/norm/norm.h"
#include "backends/cpu/bind/codes.h"
#include "ir/op_def.h"

namespace octet::cpu {
namespace {

// `slot`: one that LayerNorm alone has.
constexpr NormKind kind_of(SlotId slot) {
  return slot == kNoSlot ? NormKind::rms : NormKind::layer;
}

// A statistic that is known is no result.
bool gives_f32(const NodeView& view, SlotId result) {
  return !view.gives(result) || view.out_is(result, {Dtype::f32});
}

// The slots of RmsNorm or LayerNorm, which alone has a bias and a mean.
template <typename S>
struct Forward {
  static constexpr SlotId kBias = S::operands.find("bias"), kMean = S::results.find("mean");
  static constexpr SlotId kKnownMean = S::operands.find("known_mean");

  static bool applies(const NodeView& view) {
    return reads_codes(view) && gives_f32(view, kMean) && gives_f32(view, S::rstd) &&
           view.in_is(kKnownMean, {Dtype::f32}) && view.in_is(S::known_rstd, {Dtype::f32});
  }
  static int64_t scratch(const NodeView& view) {
    return float_bytes(norm_groups_scratch(rows_of(view.in(S::x)), view.target.n_threads));
  }
  // An absent scale and a group of 0 where x is plain.
  static LaunchFn prepare(const NodeView& view, Context& context) {
    return launcher(view, context,
                    [group = group_size(view), shape = rows_of(view.in(S::x))](const Call& call) {
                      norm({.kind = kind_of(kBias),
                            .x = call.in(S::x),
                            .weight = call.in(S::weight),
                            .bias = call.in(kBias),
                            .y = call.out(S::y),
                            .mean = call.result<float>(kMean),
                            .rstd = call.result<float>(S::rstd),
                            .eps = static_cast<float>(call.attrs<NormAttrs>().eps),
                            .groups = {call.in(S::x_scale), group, call.scratch<float>()},
                            .known_mean = call.data<float>(kKnownMean),
                            .known_rstd = call.data<float>(S::known_rstd)},
                           shape, call.pool);
                    });
  }
};

// Backward pass of RmsNormGrad or LayerNormGrad.
template <typename S>
struct Backward {
  static constexpr SlotId kMean = S::operands.find("mean"), kDbias = S::results.find("dbias");

  static bool applies(const NodeView& view) {
    return reads_codes(view) && view.in_is(kMean, {Dtype::f32}) &&
           view.in(S::rstd).dtype == Dtype::f32;
  }
  static int64_t sums_floats(const NodeView& view) {
    const int n_sums = kDbias == kNoSlot ? 1 : 2;
    return view.has(S::weight) ? norm_backward_scratch(rows_of(view.in(S::x)), n_sums) : 0;
  }
  static int64_t sums_bytes(const NodeView& view) { return float_bytes(sums_floats(view)); }
  // Behind the sums: a decoded row for each thread.
  static int64_t rows_begin(const NodeView& view) { return round_up(sums_floats(view), 16); }
  static int64_t scratch(const NodeView& view) {
    return float_bytes(rows_begin(view) +
                       norm_groups_scratch(rows_of(view.in(S::x)), view.target.n_threads));
  }
  static LaunchFn prepare(const NodeView& view, Context& context) {
    return launcher(view, context,
                    [group = group_size(view), shape = rows_of(view.in(S::x)),
                     rows_at = rows_begin(view)](const Call& call) {
                      auto* const scratch = call.scratch<float>();
                      norm_backward({.kind = kind_of(kMean),
                                     .x = call.in(S::x),
                                     .weight = call.in(S::weight),
                                     .dy = call.in(S::dy),
                                     .residual = call.in(S::addend),
                                     .mean = call.data<float>(kMean),
                                     .rstd = call.data<float>(S::rstd),
                                     .dx = call.out(S::dx),
                                     .dw = call.out(S::dweight),
                                     .db = call.out(kDbias),
                                     .scratch = scratch,
                                     .groups = {call.in(S::x_scale), group, scratch + rows_at},
                                     .amax = call.amax},
                                    shape, call.pool);
                    });
  }
};

using Rms = Forward<RmsNorm>;
using RmsGrad = Backward<RmsNormGrad>;
using Layer = Forward<LayerNorm>;
using LayerGrad = Backward<LayerNormGrad>;

const Binding kNormBindings[] = {
    {{OpCode::rms_norm, "simd", all_f32_or_bf16}, Rms::prepare},
    {{OpCode::rms_norm, "codes", Rms::applies, Rms::scratch}, Rms::prepare},
    {{OpCode::rms_norm_grad, "simd", all_f32_or_bf16, RmsGrad::sums_bytes}, RmsGrad::prepare},
    {{OpCode::rms_norm_grad, "codes", RmsGrad::applies, RmsGrad::scratch}, RmsGrad::prepare},
    {{OpCode::layer_norm, "simd", all_f32_or_bf16}, Layer::prepare},
    {{OpCode::layer_norm, "codes", Layer::applies, Layer::scratch}, Layer::prepare},
    {{OpCode::layer_norm_grad, "simd", all_f32_or_bf16, LayerGrad::sums_bytes}, LayerGrad::prepare},
    {{OpCode::layer_norm_grad, "codes", LayerGrad::applies, LayerGrad::scratch},
     LayerGrad::prepare},
};

}  // namespace

std::span<const Binding> norm_bindings() {
  return kNormBindings;
}

}  // namespace octet::cpu
