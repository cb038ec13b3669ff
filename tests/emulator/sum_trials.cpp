// What GemmSums says of algorithms that add as the card does, and of ones that do not.
#include "backends/cuda/kernels/gemm/gemm_problem.h"
#include "backends/cuda/kernels/gemm/gemm_sums.h"
#include "formats/decode.h"
#include "formats/encode.h"
#include "math/tensor_epilogue.h"

namespace octet::cuda {
namespace {

constexpr int64_t kWorkspace = 4096;

// How an algorithm adds.
enum class Way : int { rule, bias_fused, in_halves };

// Of a BF16 result.
void multiply(const GemmParams& p, AlphaPlace place, const GemmCall& call, Way way) {
  Context context;
  if (way == Way::rule) return GemmProblem(context, p, place, kWorkspace).run(call, nullptr);
  GemmParams part = p;
  part.y = Dtype::f32;
  part.has_bias = false;
  // A fused addition takes the sum as it is and multiplies it by alpha itself.
  const bool fuses = way == Way::bias_fused;
  alignas(16) constexpr float kOnes[2] = {1, 0};
  const float alpha = place == AlphaPlace::device ? call.alpha_beta[0]
                      : is_fp8(p.a)               ? *call.scale_a * *call.scale_b
                                                  : 1;
  const auto n = static_cast<size_t>(p.m * p.n);
  std::vector<float> total(n), sums(n);
  const int64_t n_parts = way == Way::in_halves ? 2 : 1;
  part.k = p.k / n_parts;
  for (int64_t i = 0; i < n_parts; ++i) {
    GemmCall one = call;
    one.a = static_cast<const std::byte*>(call.a) + i * part.k * p.m * dtype_bytes(p.a);
    one.b = static_cast<const std::byte*>(call.b) + i * part.k * p.n * dtype_bytes(p.b);
    one.y = sums.data();
    if (fuses) one.scale_a = one.scale_b = one.alpha_beta = kOnes;
    GemmProblem(context, part, place, kWorkspace).run(one, nullptr);
    for (size_t j = 0; j < n; ++j) total[j] += sums[j];
  }
  for (size_t j = 0; j < n; ++j) {
    const auto* bias = static_cast<const uint16_t*>(call.bias);
    const float c = p.has_bias ? decode<Dtype::bf16>(bias[j % static_cast<size_t>(p.n)]) : 0;
    const float y = fuses ? scaled_sum(alpha, total[j], c) : biased_sum(1, total[j], c);
    static_cast<uint16_t*>(call.y)[j] =
        static_cast<uint16_t>(encode<Dtype::bf16>(y, Rounding::near, {}));
  }
}

}  // namespace

// True if algorithms that add in that way stand; a lies [k, m], b [k, n].
extern "C" __attribute__((visibility("default"))) bool octet_emulated_sums_hold(
    const GemmParams* params, bool alpha_on_device, int way) {
  const AlphaPlace place = alpha_on_device ? AlphaPlace::device : AlphaPlace::one;
  const GemmTrial trial(*params, kWorkspace, {}, nullptr);
  GemmSums sums(90, *params, place, trial, nullptr);
  for (const auto which : {GemmSums::Trial::random, GemmSums::Trial::cancelling}) {
    sums.begin(which);
    if (!sums.holds(
            [&](const GemmCall& call) { multiply(*params, place, call, static_cast<Way>(way)); }))
      return false;
  }
  return true;
}

}  // namespace octet::cuda
