#include "backends/cuda/kernels/attention/attention.h"

#include "ir/ops/slots.h"

namespace octet::cuda {
namespace {

// Shorter operand lists have no such slots.
template <typename Slots>
KeyRanges ranges(const AttentionParams& p, const Launch& args) {
  return {p.key_begins ? args.in<int32_t>(Slots::key_begins) : nullptr,
          p.key_ends ? args.in<int32_t>(Slots::key_ends) : nullptr};
}
template <typename Slots>
const void* bias(const AttentionParams& p, const Launch& args) {
  return p.bias.is_there ? args.operands[Slots::bias] : nullptr;
}

using ForwardFn = void (*)(const AttentionParams&, const AttentionForward&, cudaStream_t);
using BackwardFn = void (*)(const AttentionParams&, const AttentionBackward&, cudaStream_t);

template <ForwardFn run>
void run_forward(const AttentionParams& p, const Launch& args) {
  run(p, forward_args(p, args), args.stream);
}

template <BackwardFn run>
void run_backward(const AttentionParams& p, const Launch& args) {
  using S = octet::AttentionGrad;
  run(p,
      {.dout = args.operands[S::dout],
       .q = args.operands[S::q],
       .k = args.operands[S::k],
       .v = args.operands[S::v],
       .o = args.operands[S::o],
       .lse = args.in<float>(S::lse),
       .ranges = ranges<S>(p, args),
       .dq = args.results[S::dq],
       .dk = args.results[S::dk],
       .dv = args.results[S::dv],
       .delta = static_cast<float*>(args.scratch),
       .bias = bias<S>(p, args),
       .dbias = p.bias.has_gradient ? args.results[S::dbias] : nullptr},
      args.stream);
}

template <ForwardFn run>
constexpr PrepareFn kForward = stateless<AttentionParams, run_forward<run>>;
template <BackwardFn run>
constexpr PrepareFn kBackward = stateless<AttentionParams, run_backward<run>>;

std::unique_ptr<Prepared> prepare_tensor_grad(const Request& request) {
  if (!tensor_gradient_fits(request.get<AttentionParams>()))
    throw KernelUnavailable("[attention] too little shared memory for the gradient's tiles");
  return kBackward<tensor_attention_grad>(request);
}

constexpr KernelEntry kRows[] = {{KernelId::attention_library, library_attention},
                                 {KernelId::attention_library_grad, library_attention_grad},
                                 {KernelId::attention_tensor, kForward<tensor_attention>},
                                 {KernelId::attention_tensor_grad, prepare_tensor_grad},
                                 {KernelId::attention_plain, kForward<plain_attention>},
                                 {KernelId::attention_plain_grad, kBackward<plain_attention_grad>},
                                 {KernelId::attention_cached, prepare_cached_attention}};

}  // namespace

AttentionForward forward_args(const AttentionParams& p, const Launch& args) {
  using S = octet::Attention;
  return {.q = args.operands[S::q],
          .k = args.operands[S::k],
          .v = args.operands[S::v],
          .ranges = ranges<S>(p, args),
          .o = args.results[S::o],
          .lse = args.out<float>(S::lse),
          .positions = p.cached ? args.in<int32_t>(S::positions) : nullptr,
          .bias = bias<S>(p, args),
          .slices = static_cast<float*>(args.scratch)};
}

std::span<const KernelEntry> attention_kernels() {
  return kRows;
}

}  // namespace octet::cuda
