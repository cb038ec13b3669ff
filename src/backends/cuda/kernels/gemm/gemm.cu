// Products: those of FP8 and of high precision as the library has them, those of a few rows by a
// kernel of our own, all others of codes by exact decoding.
#include <algorithm>

#include "backends/cuda/kernels/common/element.cuh"
#include "backends/cuda/kernels/gemm/gemm.cuh"
#include "backends/cuda/kernels/move/move.cuh"
#include "backends/cuda/kernels/quantize/quantize.cuh"
#include "backends/cuda/params/gemm_scratch.h"

namespace octet::cuda {
namespace {

using Slot = GemmOperand;

// Sixteen codes a thread; every code of the three formats is exact in BF16 and in FP16.
template <Dtype D, Dtype To>
__global__ void decode_codes(const uint8_t* codes, uint16_t* to, int64_t n) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 16;
  if (first + 16 <= n) {
    const auto in = load_pack<16>(codes + first);
    Pack<uint16_t, 8> out[2];
#pragma unroll
    for (int i = 0; i < 16; ++i) out[i / 8].at[i % 8] = from_float<To>(to_float<D>(in.at[i]));
    store_pack<8>(to + first, out[0]);
    store_pack<8>(to + first + 8, out[1]);
  } else {
    for (int64_t i = first; i < n; ++i) to[i] = from_float<To>(to_float<D>(codes[i]));
  }
}

// nullptr: 1.
__global__ void make_alpha_beta(const float* scale_a, const float* scale_b, float beta, float* to) {
  to[0] = (scale_a == nullptr ? 1.0f : *scale_a) * (scale_b == nullptr ? 1.0f : *scale_b);
  to[1] = beta;
}

// Alpha and beta from scales of a whole factor; those of blocks are in what is decoded.
void launch_alpha_beta(const GemmParams& p, const Launch& args, float* to) {
  const bool whole_a = p.has_scale_a && p.a_blocks.none();
  const bool whole_b = p.has_scale_b && p.b_blocks.none();
  make_alpha_beta<<<1, 1, 0, args.stream>>>(whole_a ? args.in<float>(Slot::scale_a) : nullptr,
                                            whole_b ? args.in<float>(Slot::scale_b) : nullptr,
                                            p.has_c ? 1.0f : 0.0f, to);
  check_launch("alpha");
}

// A factor as it lies, and what it is decoded to.
struct Decoded {
  Dtype codes, to;
  int64_t rows, cols;
  GemmBlocks blocks;
  Dtype scales;
};

void launch_decode(const Decoded& f, const DequantizeCall& call) {
  const int64_t n = f.rows * f.cols;
  if (!f.blocks.none() || f.to == Dtype::f32) {
    const DequantizeParams p{.rows = f.rows,
                             .cols = f.cols,
                             .group = f.blocks.cols,
                             .block_rows = std::max(f.blocks.rows, 1),
                             .codes = f.codes,
                             .scales = f.scales,
                             .y = f.to};
    return launch_dequantize(p, call);
  }
  const auto blocks = static_cast<unsigned>(ceil_div(n, 16 * 256));
  const auto* codes = static_cast<const uint8_t*>(call.codes);
  auto* to = static_cast<uint16_t*>(call.y);
  visit_codes(f.codes, [&]<Dtype D>() {
    f.to == Dtype::fp16
        ? decode_codes<D, Dtype::fp16><<<blocks, 256, 0, call.stream>>>(codes, to, n)
        : decode_codes<D, Dtype::bf16><<<blocks, 256, 0, call.stream>>>(codes, to, n);
  });
  check_launch("decode");
}

// FP8 factors, whose scales the library takes: one each, or one a row.
class Fp8Gemm : public Prepared {
 public:
  Fp8Gemm(Context& context, const GemmParams& p)
      : params_(p), product_(context, p, AlphaPlace::one) {}
  void launch(const Launch& args) override {
    product_.run({.a = args.operands[Slot::a],
                  .b = args.operands[Slot::b],
                  .c = params_.has_c ? args.operands[Slot::c] : nullptr,
                  .bias = params_.has_bias ? args.operands[Slot::c] : nullptr,
                  .y = args.results[0],
                  .scale_a = args.in<float>(Slot::scale_a),
                  .scale_b = args.in<float>(Slot::scale_b),
                  .alpha_beta = nullptr,
                  .workspace = args.scratch},
                 gemm_scratch(params_, args.scratch).sums, args.stream);
  }

 private:
  GemmParams params_;
  GemmProduct product_;
};

// High-precision operands; alpha is on the device where there is a scale.
class HighPrecisionGemm : public Prepared {
 public:
  HighPrecisionGemm(Context& context, const GemmParams& p)
      : params_(p),
        product_(context, p, scales_high_precision(p) ? AlphaPlace::device : AlphaPlace::one) {}
  void launch(const Launch& args) override {
    const GemmScratch scratch = gemm_scratch(params_, args.scratch);
    if (scales_high_precision(params_)) launch_alpha_beta(params_, args, scratch.alpha_beta);
    product_.run({.a = args.operands[Slot::a],
                  .b = args.operands[Slot::b],
                  .c = params_.has_c ? args.operands[Slot::c] : nullptr,
                  .bias = params_.has_bias ? args.operands[Slot::c] : nullptr,
                  .y = args.results[0],
                  .alpha_beta = scratch.alpha_beta,
                  .workspace = scratch.workspace},
                 scratch.sums, args.stream);
  }

 private:
  GemmParams params_;
  GemmProduct product_;
};

GemmParams decoded(GemmParams p) {
  p.a = p.b = decoded_type(p);
  p.tf32 = p.a == Dtype::f32;
  p.a_blocks = p.b_blocks = {};
  p.kind = GemmKind::high_precision;
  p.fast_accumulate = false;  // of FP8 alone
  return p;
}

class DecodedGemm : public Prepared {
 public:
  DecodedGemm(Context& context, const GemmParams& p)
      : params_(p),
        product_(context, decoded(p), has_whole_scale(p) ? AlphaPlace::device : AlphaPlace::one) {}
  void launch(const Launch& args) override {
    const GemmParams& p = params_;
    const GemmScratch scratch = gemm_scratch(p, args.scratch);
    auto* const a = scratch.factors;
    auto* const b = a + decoded_bytes(p, p.m * p.k);
    if (has_whole_scale(p)) launch_alpha_beta(p, args, scratch.alpha_beta);
    const Dtype to = decoded_type(p);
    launch_decode({p.a, to, p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k, p.a_blocks, p.a_scales},
                  {args.operands[Slot::a], args.operands[Slot::scale_a], a, args.stream});
    launch_decode({p.b, to, p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n, p.b_blocks, p.b_scales},
                  {args.operands[Slot::b], args.operands[Slot::scale_b], b, args.stream});
    product_.run({.a = a,
                  .b = b,
                  .c = p.has_c ? args.operands[Slot::c] : nullptr,
                  .bias = p.has_bias ? args.operands[Slot::c] : nullptr,
                  .y = args.results[0],
                  .alpha_beta = scratch.alpha_beta,
                  .workspace = scratch.workspace},
                 scratch.sums, args.stream);
  }

 private:
  GemmParams params_;
  GemmProduct product_;
};

// A product over nothing, or of nothing.
class EmptyGemm : public Prepared {
 public:
  explicit EmptyGemm(const GemmParams& p) : params_(p) {}
  void launch(const Launch& args) override {
    const int64_t n = params_.batch * params_.m * params_.n;
    if (n == 0) return;
    if (!params_.has_c) {
      const auto bytes = static_cast<size_t>(n * dtype_bytes(params_.y));
      check(cudaMemsetAsync(args.results[0], 0, bytes, args.stream), "filling");
    } else if (args.operands[Slot::c] != args.results[0]) {
      launch_cast({args.operands[Slot::c], args.results[0], n, params_.c, params_.y}, args.stream);
    }
  }

 private:
  GemmParams params_;
};

// A machine, or a version of the library, may be without it.
template <typename F>
std::unique_ptr<Prepared> where_available(F&& make) {
  try {
    return make();
  } catch (const ModuleError& error) {
    throw KernelUnavailable(error.what());
  }
}

std::unique_ptr<Prepared> prepare_gemm(const Request& request) {
  const auto p = request.get<GemmParams>();
  if (gemm_scratch_bytes(p) > request.scratch_bytes)
    throw ModuleError("[cuda] a product wants more scratch than the plan reserved");
  if (p.m == 0 || p.n == 0 || p.k == 0 || p.batch == 0) return std::make_unique<EmptyGemm>(p);
  switch (p.kind) {
    case GemmKind::few_rows:
      return prepare_few_rows(p);
    case GemmKind::weight_only:
      return prepare_weight_only(p);
    case GemmKind::high_precision:
      return std::make_unique<HighPrecisionGemm>(request.context, p);
    case GemmKind::fp8:
      return std::make_unique<Fp8Gemm>(request.context, p);
    case GemmKind::by_rows:
      return where_available([&] { return std::make_unique<Fp8Gemm>(request.context, p); });
    case GemmKind::blocks:
      return where_available([&] { return prepare_gemm_blocks(request.context, p); });
    case GemmKind::decoded:
      break;
  }
  return std::make_unique<DecodedGemm>(request.context, p);
}

const KernelEntry kRows[] = {{KernelId::gemm, prepare_gemm}};

}  // namespace

std::span<const KernelEntry> gemm_kernels() {
  return kRows;
}

}  // namespace octet::cuda
