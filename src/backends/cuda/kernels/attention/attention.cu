#include "backends/cuda/kernels/attention/attention.h"

#include "ir/ops/slots.h"

namespace octet::cuda {
namespace {

template <SlotId slot>
const int32_t* documents(const AttentionParams& p, const Launch& args) {
  return p.documents ? args.in<int32_t>(slot) : nullptr;  // shorter operand lists have no slot
}

using ForwardFn = void (*)(const AttentionParams&, const AttentionForward&, cudaStream_t);
using BackwardFn = void (*)(const AttentionParams&, const AttentionBackward&, cudaStream_t);

template <ForwardFn run>
void run_forward(const AttentionParams& p, const Launch& args) {
  using S = octet::Attention;
  run(p,
      {.q = args.operands[S::q],
       .k = args.operands[S::k],
       .v = args.operands[S::v],
       .doc_starts = documents<S::key_begins>(p, args),
       .o = args.results[S::o],
       .lse = args.out<float>(S::lse),
       .positions = p.capacity > 0 ? args.in<int32_t>(S::positions) : nullptr},
      args.stream);
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
       .doc_starts = documents<S::key_begins>(p, args),
       .dq = args.results[S::dq],
       .dk = args.results[S::dk],
       .dv = args.results[S::dv],
       .delta = static_cast<float*>(args.scratch)},
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
                                 {KernelId::attention_cached, kForward<cached_attention>}};

}  // namespace

std::span<const KernelEntry> attention_kernels() {
  return kRows;
}

}  // namespace octet::cuda
