#include "backends/cuda/kernels/attention/attention.h"

#include "ir/ops/slots.h"

namespace octet::cuda {
namespace {

template <SlotId slot>
const int32_t* documents(const AttentionParams& p, const Launch& args) {
  return p.documents ? args.in<int32_t>(slot) : nullptr;  // shorter operand lists have no slot
}

class Forward : public Prepared {
 public:
  explicit Forward(const AttentionParams& params) : p_(params) {}
  void launch(const Launch& args) override {
    using S = octet::Attention;
    const AttentionForward x{.q = args.operands[S::q],
                             .k = args.operands[S::k],
                             .v = args.operands[S::v],
                             .doc_starts = documents<S::doc_starts>(p_, args),
                             .o = args.results[S::o],
                             .lse = args.out<float>(S::lse)};
    const bool tensor = tensor_cores_take(p_, {x.q, x.k, x.v, x.o});
    (tensor ? tensor_attention : plain_attention)(p_, x, args.stream);
  }

 private:
  AttentionParams p_;
};

class Backward : public Prepared {
 public:
  explicit Backward(const AttentionParams& params) : p_(params) {}
  void launch(const Launch& args) override {
    using S = octet::AttentionGrad;
    const AttentionBackward x{.dout = args.operands[S::dout],
                              .q = args.operands[S::q],
                              .k = args.operands[S::k],
                              .v = args.operands[S::v],
                              .o = args.operands[S::o],
                              .lse = args.in<float>(S::lse),
                              .doc_starts = documents<S::doc_starts>(p_, args),
                              .dq = args.results[S::dq],
                              .dk = args.results[S::dk],
                              .dv = args.results[S::dv],
                              .delta = static_cast<float*>(args.scratch)};
    const bool tensor = tensor_gradient_takes(p_, {x.dout, x.q, x.k, x.v, x.dq, x.dk, x.dv});
    (tensor ? tensor_attention_grad : plain_attention_grad)(p_, x, args.stream);
  }

 private:
  AttentionParams p_;
};

std::unique_ptr<Prepared> prepare_attention(const Request& request) {
  if (auto kernel = library_attention(request)) return kernel;
  return std::make_unique<Forward>(request.get<AttentionParams>());
}
std::unique_ptr<Prepared> prepare_attention_grad(const Request& request) {
  if (auto kernel = library_attention_grad(request)) return kernel;
  return std::make_unique<Backward>(request.get<AttentionParams>());
}

// Queries of a text from which on tiles of them are worth their products on tensor cores.
constexpr int64_t kManyQueries = 32;

void run_cached(const AttentionParams& p, const Launch& args) {
  using S = octet::Attention;
  const AttentionForward x{.q = args.operands[S::q],
                           .k = args.operands[S::k],
                           .v = args.operands[S::v],
                           .doc_starts = nullptr,
                           .o = args.results[S::o],
                           .lse = args.out<float>(S::lse),
                           .positions = args.in<int32_t>(S::positions)};
  const bool tensor = p.seq >= kManyQueries && tensor_cores_take(p, {x.q, x.k, x.v, x.o});
  (tensor ? tensor_attention : cached_attention)(p, x, args.stream);
}

constexpr KernelEntry kRows[] = {
    {KernelId::attention, prepare_attention},
    {KernelId::attention_grad, prepare_attention_grad},
    {KernelId::attention_cached, stateless<AttentionParams, run_cached>}};

}  // namespace

std::span<const KernelEntry> attention_kernels() {
  return kRows;
}

}  // namespace octet::cuda
