// Products: FP8 and wide ones as the library has them, all others of codes by exact decoding.
#include "backends/cuda/kernels/element.cuh"
#include "backends/cuda/kernels/gemm_problem.h"
#include "backends/cuda/params/gemm_scratch.h"

namespace octet::cuda {
namespace {

enum Operand { kA, kB, kC, kScaleA, kScaleB };

// Sixteen codes a thread; every code of the three formats is exact in BF16.
template <Dtype D>
__global__ void decode_codes(const uint8_t* codes, uint16_t* to, int64_t n) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 16;
  if (first + 16 <= n) {
    const auto in = load_pack<16>(codes + first);
    Pack<uint16_t, 8> out[2];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      out[i / 8].at[i % 8] = from_float<Dtype::bf16>(to_float<D>(in.at[i]));
    }
    store_pack<8>(to + first, out[0]);
    store_pack<8>(to + first + 8, out[1]);
  } else {
    for (int64_t i = first; i < n; ++i) to[i] = from_float<Dtype::bf16>(to_float<D>(codes[i]));
  }
}

__global__ void make_alpha_beta(const float* scale_a, const float* scale_b, float beta, float* to) {
  to[0] = *scale_a * *scale_b;
  to[1] = beta;
}

void launch_decode(Dtype dtype, const uint8_t* codes, uint16_t* to, int64_t n,
                   cudaStream_t stream) {
  if (n == 0) return;
  const auto blocks = static_cast<unsigned>(ceil_div(n, 16 * 256));
  visit_codes(dtype, [&]<Dtype D>() { decode_codes<D><<<blocks, 256, 0, stream>>>(codes, to, n); });
  check_launch("decode");
}

class PlainGemm : public Prepared {
 public:
  PlainGemm(Context& context, const GemmParams& p)
      : problem_(context, p, AlphaPlace::one, kGemmWorkspace),
        has_c_(p.has_c),
        scaled_(is_gemm_operand(p.a)) {}
  void launch(const Launch& args) override {
    problem_.run({.a = args.operands[kA],
                  .b = args.operands[kB],
                  .c = has_c_ ? args.operands[kC] : nullptr,
                  .y = args.results[0],
                  .scale_a = scaled_ ? args.in<float>(kScaleA) : nullptr,
                  .scale_b = scaled_ ? args.in<float>(kScaleB) : nullptr,
                  .alpha_beta = nullptr,
                  .workspace = args.scratch},
                 args.stream);
  }

 private:
  GemmProblem problem_;
  bool has_c_, scaled_;
};

GemmParams in_bf16(GemmParams p) {
  p.a = p.b = Dtype::bf16;
  p.fast_accumulate = false;  // of FP8 alone
  return p;
}

class DecodedGemm : public Prepared {
 public:
  DecodedGemm(Context& context, const GemmParams& p)
      : params_(p), problem_(context, in_bf16(p), AlphaPlace::device, kGemmWorkspace) {}
  void launch(const Launch& args) override {
    const GemmParams& p = params_;
    auto* scratch = static_cast<std::byte*>(args.scratch);
    auto* alpha_beta = reinterpret_cast<float*>(scratch + kGemmWorkspace);
    auto* a = reinterpret_cast<uint16_t*>(scratch + kGemmWorkspace + 256);
    auto* b =
        reinterpret_cast<uint16_t*>(scratch + kGemmWorkspace + 256 + decoded_bytes(p.m * p.k));
    make_alpha_beta<<<1, 1, 0, args.stream>>>(args.in<float>(kScaleA), args.in<float>(kScaleB),
                                              p.has_c ? 1.0f : 0.0f, alpha_beta);
    check_launch("alpha");
    launch_decode(p.a, args.in<uint8_t>(kA), a, p.m * p.k, args.stream);
    launch_decode(p.b, args.in<uint8_t>(kB), b, p.n * p.k, args.stream);
    problem_.run({.a = a,
                  .b = b,
                  .c = p.has_c ? args.operands[kC] : nullptr,
                  .y = args.results[0],
                  .alpha_beta = alpha_beta,
                  .workspace = args.scratch},
                 args.stream);
  }

 private:
  GemmParams params_;
  GemmProblem problem_;
};

// A product over nothing, or of nothing.
class EmptyGemm : public Prepared {
 public:
  explicit EmptyGemm(const GemmParams& p) : bytes_(p.m * p.n * dtype_bytes(p.y)), copy_(p.has_c) {}
  void launch(const Launch& args) override {
    const auto n = static_cast<size_t>(bytes_);
    if (n == 0) return;
    if (!copy_) {
      check(cudaMemsetAsync(args.results[0], 0, n, args.stream), "filling");
    } else if (args.operands[kC] != args.results[0]) {
      check(cudaMemcpyAsync(args.results[0], args.operands[kC], n, cudaMemcpyDeviceToDevice,
                            args.stream),
            "copying");
    }
  }

 private:
  int64_t bytes_;
  bool copy_;
};

std::unique_ptr<Prepared> prepare_gemm(const Request& request) {
  const auto p = request.get<GemmParams>();
  if (gemm_scratch_bytes(p) > request.scratch_bytes)
    throw ModuleError("[cuda] a product wants more scratch than the plan reserved");
  if (p.m == 0 || p.n == 0 || p.k == 0) return std::make_unique<EmptyGemm>(p);
  if (is_gemm_operand(p.a) && !runs_in_fp8(p))
    return std::make_unique<DecodedGemm>(request.context, p);
  return std::make_unique<PlainGemm>(request.context, p);
}

const KernelRow kRows[] = {{KernelId::gemm, prepare_gemm}};

}  // namespace

std::span<const KernelRow> gemm_kernels() {
  return kRows;
}

}  // namespace octet::cuda
