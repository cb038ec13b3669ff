#include "backends/cuda/kernels/attention.h"

namespace octet::cuda {
namespace {

class Forward : public Prepared {
 public:
  explicit Forward(const AttentionParams& params) : p_(params) {}
  void launch(const Launch& args) override {
    const AttentionForward x{.q = args.operands[0],
                             .k = args.operands[1],
                             .v = args.operands[2],
                             .o = args.results[0],
                             .lse = args.out<float>(1)};
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
    const AttentionBackward x{.dout = args.operands[0],
                              .q = args.operands[1],
                              .k = args.operands[2],
                              .v = args.operands[3],
                              .o = args.operands[4],
                              .lse = args.in<float>(5),
                              .dq = args.results[0],
                              .dk = args.results[1],
                              .dv = args.results[2],
                              .delta = static_cast<float*>(args.scratch)};
    const bool tensor = tensor_cores_take(p_, {x.dout, x.q, x.k, x.v, x.dq, x.dk, x.dv});
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

constexpr KernelRow kRows[] = {{KernelId::attention, prepare_attention},
                               {KernelId::attention_grad, prepare_attention_grad}};

}  // namespace

std::span<const KernelRow> attention_kernels() {
  return kRows;
}

}  // namespace octet::cuda
