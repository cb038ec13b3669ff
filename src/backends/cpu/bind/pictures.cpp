// Windows of pictures, and batch norm.
#include "backends/cpu/bind/codes.h"
#include "backends/cpu/bind/launch.h"
#include "backends/cpu/elementwise/depthwise.h"
#include "backends/cpu/gemm/convolution.h"
#include "backends/cpu/norm/batch_norm.h"

namespace octet::cpu {
namespace {

// Elements of any type are moved.
bool unfold_applies(const NodeView& view) {
  return view.in(Unary::x).dtype == view.out(Unary::y).dtype;
}

Windows windows_of(const NodeView& view, const TensorType& pictures) {
  return {view.attrs<UnfoldAttrs>(), pictures.shape[0], pictures.shape[3]};
}

LaunchFn prepare_unfold(const NodeView& view, Context& context) {
  return launcher(view, context,
                  [windows = windows_of(view, view.in(Unary::x)),
                   bytes = bytes_of(view.in(Unary::x).dtype, 1)](const Call& call) {
                    unfold(windows, call.args.operands[Unary::x], call.args.results[Unary::y],
                           bytes, call.pool);
                  });
}

LaunchFn prepare_fold(const NodeView& view, Context& context) {
  const Windows windows = windows_of(view, view.out(Unary::y));
  return launcher(view, context, [windows, blocks = folded_blocks(windows)](const Call& call) {
    fold(windows, blocks, call.in(Unary::x), call.out(Unary::y), call.pool);
  });
}

ConvolutionSpec convolution_spec(const NodeView& view) {
  const auto& [windows, role] = view.attrs<ConvolutionAttrs>();
  const TensorType &a = view.in(Binary::a), &b = view.in(Binary::b), &y = view.out(Binary::y);
  const Shape& x = role == GemmRole::forward ? a.shape
                   : role == GemmRole::wgrad ? b.shape
                                             : y.shape;
  return {.windows = {windows, x[0], x[3]},
          .n_out = role == GemmRole::forward ? b.shape[0] : a.shape[1],
          .role = role,
          .in = a.dtype,
          .out = y.dtype};
}
// The weight is packed for each task: it must be small.
bool convolution_applies(const NodeView& view) {
  constexpr int64_t kMaxWeight = int64_t{1} << 20;
  if (!all_f32_or_bf16(view) || view.in(Binary::a).dtype != view.in(Binary::b).dtype) return false;
  const ConvolutionSpec spec = convolution_spec(view);
  return spec.windows.n_pictures > 0 && spec.windows.channels > 0 && spec.n_out > 0 &&
         spec.n_out * spec.window_elems() <= kMaxWeight;
}
int64_t convolution_scratch(const NodeView& view) {
  return static_cast<int64_t>(
      Convolution(convolution_spec(view), 1).scratch_bytes(view.target.n_threads));
}
LaunchFn prepare_convolution(const NodeView& view, Context& context) {
  return launcher(view, context,
                  [convolution = Convolution(convolution_spec(view), context.pool.n_threads())](
                      const Call& call) {
                    convolution.launch({.a = call.args.operands[Binary::a],
                                        .b = call.args.operands[Binary::b],
                                        .y = call.args.results[Binary::y],
                                        .scratch = call.args.scratch},
                                       call.pool);
                  });
}

Windows depthwise_windows(const NodeView& view) {
  const auto& [attrs, role] = view.attrs<ConvolutionAttrs>();
  const bool is_forward = role == GemmRole::forward;
  const int64_t n_each =
      is_forward ? attrs.picture[0] * attrs.picture[1] : attrs.n_windows(0) * attrs.n_windows(1);
  const Shape& first = view.in(Binary::a).shape;
  return {attrs, first[0] / n_each, first[1]};
}
template <bool kIsWeight>
bool depthwise_applies(const NodeView& view) {
  const Windows windows = depthwise_windows(view);
  const bool is_weight = view.attrs<ConvolutionAttrs>().role == GemmRole::wgrad;
  return is_weight == kIsWeight && all_f32_or_bf16(view) && windows.n_pictures > 0 &&
         windows.channels > 0;
}
int64_t depthwise_scratch(const NodeView& view) {
  return float_bytes(depthwise_weight_floats(depthwise_windows(view)));
}
int64_t depthwise_sum_scratch(const NodeView& view) {
  return float_bytes(depthwise_sum_floats(depthwise_windows(view)));
}
DepthwiseCall depthwise_call(const Call& call) {
  return {.first = call.in(Binary::a),
          .second = call.in(Binary::b),
          .result = call.out(Binary::y),
          .scratch = call.scratch<float>()};
}
LaunchFn prepare_depthwise(const NodeView& view, Context& context) {
  const auto& [attrs, role] = view.attrs<ConvolutionAttrs>();
  return launcher(
      view, context,
      [windows = depthwise_windows(view),
       terms = role == GemmRole::forward ? depthwise_terms(attrs)
                                         : depthwise_gradient_terms(attrs)](const Call& call) {
        depthwise(windows, terms, depthwise_call(call), call.pool);
      });
}
LaunchFn prepare_depthwise_weight(const NodeView& view, Context& context) {
  return launcher(view, context, [windows = depthwise_windows(view)](const Call& call) {
    depthwise_weight_gradient(windows, depthwise_call(call), call.pool);
  });
}

template <typename Op>
int64_t norm_scratch(const NodeView& view) {
  return float_bytes(batch_norm_scratch(rows_of(view.in(Op::x))));
}

LaunchFn prepare_norm(const NodeView& view, Context& context) {
  using Op = octet::BatchNorm;
  return launcher(view, context, [shape = rows_of(view.in(Op::x))](const Call& call) {
    const auto& attrs = call.attrs<BatchNormAttrs>();
    batch_norm({.x = call.in(Op::x),
                .weight = call.in(Op::weight),
                .bias = call.in(Op::bias),
                .mean = call.in(Op::mean),
                .variance = call.in(Op::variance),
                .y = call.out(Op::y),
                .own = attrs.own,
                .own_mean = call.result<float>(Op::own_mean),
                .own_variance = call.result<float>(Op::own_variance),
                .next_mean = call.out(Op::next_mean),
                .next_variance = call.out(Op::next_variance),
                .eps = static_cast<float>(attrs.eps),
                .momentum = attrs.momentum,
                .scratch = call.scratch<float>()},
               shape, call.pool);
  });
}

LaunchFn prepare_norm_grad(const NodeView& view, Context& context) {
  using Op = BatchNormGrad;
  return launcher(view, context, [shape = rows_of(view.in(Op::x))](const Call& call) {
    batch_norm_backward({.dy = call.in(Op::dy),
                         .x = call.in(Op::x),
                         .own_mean = call.in(Op::own_mean),
                         .own_variance = call.in(Op::own_variance),
                         .weight = call.in(Op::weight),
                         .dx = call.out(Op::dx),
                         .dw = call.out(Op::dweight),
                         .db = call.out(Op::dbias),
                         .eps = static_cast<float>(call.attrs<BatchNormAttrs>().eps),
                         .scratch = call.scratch<float>()},
                        shape, call.pool);
  });
}

// Own statistics are f32.
bool norm_applies(const NodeView& view) {
  using Op = octet::BatchNorm;
  const auto is_f32 = [&](SlotId result) {
    return !view.gives(result) || view.out_is(result, {Dtype::f32});
  };
  return all_f32_or_bf16(view) && is_f32(Op::own_mean) && is_f32(Op::own_variance);
}

// Own statistics alone.
bool norm_grad_applies(const NodeView& view) {
  return all_f32_or_bf16(view) && view.attrs<BatchNormAttrs>().own;
}

const Binding kPictureBindings[] = {
    {{OpCode::unfold, "lines", unfold_applies}, prepare_unfold},
    {{OpCode::fold, "simd", all_f32_or_bf16}, prepare_fold},
    {{OpCode::convolution, "pictures", convolution_applies, convolution_scratch},
     prepare_convolution},
    {{OpCode::depthwise, "rows", depthwise_applies<true>, depthwise_sum_scratch},
     prepare_depthwise_weight},
    {{OpCode::depthwise, "lines", depthwise_applies<false>, depthwise_scratch}, prepare_depthwise},
    {{OpCode::batch_norm, "simd", norm_applies, norm_scratch<octet::BatchNorm>}, prepare_norm},
    {{OpCode::batch_norm_grad, "simd", norm_grad_applies, norm_scratch<BatchNormGrad>},
     prepare_norm_grad},
};

}  // namespace

std::span<const Binding> picture_bindings() {
  return kPictureBindings;
}

}  // namespace octet::cpu
