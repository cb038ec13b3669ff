// Products as the library makes them, one sum after another.
#include "backends/cuda/kernels/gemm/gemm_problem.h"

#include <algorithm>

#include "backends/cpu/gemm/tensor_tile.h"
#include "backends/cuda/params/gemm_scratch.h"
#include "faults.h"
#include "formats/decode.h"
#include "formats/encode.h"
#include "math/tensor_epilogue.h"
#include "math/tensor_sums.h"

namespace octet::cuda {
namespace {

float load(const void* data, int64_t i, Dtype dtype) {
  const auto half = [&] { return static_cast<const uint16_t*>(data)[i]; };
  const auto fp8 = [&](__nv_fp8_interpretation_t kind) {
    const auto code = static_cast<const uint8_t*>(data)[i];
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, kind)));
  };
  switch (dtype) {
    case Dtype::f32:
      return static_cast<const float*>(data)[i];
    case Dtype::bf16:
      return emulator::value_of<float>(uint64_t{half()} << 16);
    case Dtype::fp16:
      return __half2float(emulator::value_of<__half>(half()));
    case Dtype::e4m3:
      return fp8(__NV_E4M3);
    case Dtype::e5m2:
      return fp8(__NV_E5M2);
    default:
      throw ModuleError("[cuda] no emulated product of " + std::string(dtype_name(dtype)));
  }
}

void store(void* data, int64_t i, Dtype dtype, float x) {
  if (dtype == Dtype::f32) {
    static_cast<float*>(data)[i] = x;
  } else if (dtype == Dtype::bf16) {
    static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(x);
  } else if (dtype == Dtype::e4m3) {
    static_cast<uint8_t*>(data)[i] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  } else {
    static_cast<__half*>(data)[i] = __float2half_rn(x);
  }
}

// A factor as it lies, [rows, cols] with rows `stride` apart.
struct Factor {
  const void* data;
  int64_t rows, cols, stride;
  Dtype dtype;

  // Values of [cols, rows] where it is transposed.
  std::vector<float> values(bool transposed) const {
    std::vector<float> all(static_cast<size_t>(rows * cols));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c)
        all[static_cast<size_t>(transposed ? c * rows + r : r * cols + c)] =
            load(data, r * stride + c, dtype);
    }
    return all;
  }
};

// In f32, in as many partial sums as a register has.
float dot(const float* a, const float* b, int64_t n) {
  constexpr int64_t kLanes = 8;
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (const float one : sums) sum += one;
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

constexpr int64_t kTile = 16;

// Sums with the bits of the card's tensor cores (math/tensor_sums.h).
class TensorProducts {
 public:
  TensorProducts(const TensorSums& rule, const GemmParams& p, const std::vector<float>& a,
                 const std::vector<float>& b, bool is_fast)
      : rule_(rule), k_(p.k), n_blocks_((p.k + rule.block - 1) / rule.block) {
    chain_ = !is_fast && rule.chain > 0 ? rule.chain / rule.block : n_blocks_;
    a_ = packed(cpu::PackedSide::a, p.m, a, p.a);
    b_ = packed(cpu::PackedSide::b, p.n, b, p.b);
  }

  std::vector<float> sums(int64_t m, int64_t n) const {
    std::vector<float> all(static_cast<size_t>(m * n));
    std::vector<float> panel(static_cast<size_t>(m * cpu::kTensorColumns)), total(panel.size());
    const int64_t a_bytes = cpu::packed_block_bytes(rule_, cpu::PackedSide::a);
    const int64_t b_bytes = cpu::packed_block_bytes(rule_, cpu::PackedSide::b);
    for (int64_t first = 0; first < n; first += cpu::kTensorColumns) {
      std::fill(total.begin(), total.end(), 0.0f);
      for (int64_t block = 0; block < n_blocks_; block += chain_) {
        std::fill(panel.begin(), panel.end(), 0.0f);
        cpu::add_tensor_blocks(
            {.rule = &rule_,
             .a = a_.data() + block * a_bytes,
             .b = b_.data() + (first / cpu::kTensorColumns * n_blocks_ + block) * b_bytes,
             .sums = panel.data(),
             .rows = m,
             .n_blocks = std::min(chain_, n_blocks_ - block),
             .a_stride = n_blocks_ * a_bytes});
        for (size_t i = 0; i < total.size(); ++i) total[i] += panel[i];
      }
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = first; j < std::min(n, first + cpu::kTensorColumns); ++j)
          all[static_cast<size_t>(i * n + j)] =
              total[static_cast<size_t>(i * cpu::kTensorColumns + j - first)];
      }
    }
    return all;
  }

 private:
  std::vector<char> packed(cpu::PackedSide side, int64_t outers, const std::vector<float>& values,
                           Dtype dtype) const {
    const int64_t across = side == cpu::PackedSide::a ? 1 : cpu::kTensorColumns;
    const int64_t bytes = cpu::packed_block_bytes(rule_, side);
    const int64_t padded = (outers + across - 1) / across * across;
    std::vector<char> to(static_cast<size_t>(padded / across * n_blocks_ * bytes));
    for (int64_t o = 0; o < padded; ++o) {
      for (int64_t k = 0; k < n_blocks_ * rule_.block; ++k) {
        SumFactor value;
        if (o < outers && k < k_)
          value = sum_factor(values[static_cast<size_t>(o * k_ + k)], lowest_exponent(dtype),
                             rule_.fraction_of_factors);
        char* const block = to.data() + (o / across * n_blocks_ + k / rule_.block) * bytes;
        const int64_t at = cpu::packed_index(rule_, side, o % across, k % rule_.block);
        cpu::write_packed(cpu::tensor_packing(rule_), {block, cpu::plane_elems(rule_, side), at},
                          cpu::packed_words(rule_, side, value));
      }
    }
    return to;
  }

  const TensorSums& rule_;
  int64_t k_, n_blocks_, chain_;
  std::vector<char> a_, b_;
};

// The value of the code that differs in its lowest bit.
template <Dtype D>
float with_other_bit(float x) {
  return decode<D>(encode<D>(x, Rounding::near, {}) ^ 1);
}
float with_other_bit(Dtype dtype, float x) {
  return dtype == Dtype::e4m3 ? with_other_bit<Dtype::e4m3>(x) : with_other_bit<Dtype::e5m2>(x);
}

// The rule where the emulated card has one for these factors, and all are finite.
const TensorSums* rule_of(const GemmParams& p, const std::vector<float>& a,
                          const std::vector<float>& b) {
  const auto finite = [](const std::vector<float>& all) {
    return std::all_of(all.begin(), all.end(), [](float x) { return is_finite(x); });
  };
  if (p.k == 0 || p.a == Dtype::f32 || !finite(a) || !finite(b)) return nullptr;
  return find_tensor_sums(emulator::capability(), p.a, p.b);
}

void multiply(const GemmParams& p, const GemmCall& call, bool has_alpha) {
  const int64_t a_rows = p.trans_a ? p.k : p.m, a_cols = p.trans_a ? p.m : p.k;
  const int64_t b_rows = p.trans_b ? p.n : p.k, b_cols = p.trans_b ? p.k : p.n;
  const Factor a{call.a, a_rows, a_cols, p.lda == 0 ? a_cols : p.lda, p.a};
  const Factor b{call.b, b_rows, b_cols, b_cols, p.b};
  auto a_values = a.values(p.trans_a), b_values = b.values(!p.trans_b);  // k lies together
  float alpha = has_alpha ? call.alpha_beta[0] : p.factor;
  const float beta = has_alpha ? call.alpha_beta[1] : p.has_c ? 1.0f : 0.0f;
  float scale = 1;
  if (call.scale_a != nullptr) scale *= *call.scale_a;
  if (call.scale_b != nullptr) scale *= *call.scale_b;
  alpha *= scale;
  // Origin of the last tile.
  const int64_t m = (p.m - 1) / kTile * kTile, n = (p.n - 1) / kTile * kTile;
  const emulator::Omitted omitted = emulator::omitted();
  bool is_wrong = omitted == emulator::Omitted::all || omitted == emulator::Omitted::last;
  bool is_fast = p.fast_accumulate;
  const TensorSums* const rule = rule_of(p, a_values, b_values);
  if (rule != nullptr && rule->fp8) {
    if (omitted == emulator::Omitted::promotion && !is_fast && p.k > rule->chain)
      is_fast = is_wrong = true;
    if (omitted == emulator::Omitted::one_bit) {
      const float other = with_other_bit(p.a, a_values[0]);
      if (is_finite(other)) a_values[0] = other, is_wrong = true;
    }
    if (omitted == emulator::Omitted::last_factors) {
      for (int64_t i = 0; i < p.m; ++i) a_values[static_cast<size_t>((i + 1) * p.k - 1)] = 0;
      is_wrong = true;
    }
  }
  emulator::note_omitted(is_wrong ? 1 : 0);
  std::vector<float> sums;
  if (rule != nullptr) sums = TensorProducts(*rule, p, a_values, b_values, is_fast).sums(p.m, p.n);
  const bool adds_later = call.c == call.y;  // an addend in y's own memory
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      if (omitted == emulator::Omitted::all) continue;
      if (omitted == emulator::Omitted::last && i >= m && j >= n) continue;
      const int64_t at = i * p.n + j;
      const float sum = rule != nullptr
                            ? sums[static_cast<size_t>(at)]
                            : dot(a_values.data() + i * p.k, b_values.data() + j * p.k, p.k);
      const bool adds = beta != 0 && call.c != nullptr;
      const float c = adds ? beta * load(call.c, at, p.c) : 0;
      if (adds && adds_later) {
        store(call.y, at, p.y, alpha * sum);
        store(call.y, at, p.y, load(call.y, at, p.y) + c);
      } else if (!adds && p.has_bias) {
        store(call.y, at, p.y, biased_sum(alpha, sum, load(call.bias, j, p.y)));
      } else {
        store(call.y, at, p.y, scaled_sum(alpha, sum, c));
      }
    }
  }
}

void* at(const void* from, int64_t n, Dtype dtype) {
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(from));
  return bytes == nullptr ? nullptr : bytes + n * dtype_bytes(dtype);
}

// One matrix after another.
void multiply_all(const GemmParams& p, const GemmCall& call, bool has_alpha) {
  for (int64_t i = 0; i < p.batch; ++i) {
    GemmCall one = call;
    one.a = at(call.a, i * p.m * p.k, p.a), one.b = at(call.b, i * p.n * p.k, p.b);
    one.c = at(call.c, i * p.m * p.n, p.c), one.y = at(call.y, i * p.m * p.n, p.y);
    multiply(p, one, has_alpha);
  }
}

}  // namespace

GemmProblem::GemmProblem(Context& context, const GemmParams& params, AlphaPlace place,
                         int64_t workspace)
    : context_(context), params_(params), place_(place), workspace_(workspace) {
  if (has_blocks(params)) throw ModuleError("[cuda] products of blocks are not emulated");
}
GemmProblem::~GemmProblem() = default;

void GemmProblem::run(const GemmCall& call, const cublasLtMatmulAlgo_t&, cudaStream_t) {
  // As cuBLASLt 13 refuses them, of FP8 factors.
  constexpr uintptr_t kScaleBytes = 16;
  for (const float* scale : {call.scale_a, call.scale_b}) {
    if (is_fp8(params_.a) && reinterpret_cast<uintptr_t>(scale) % kScaleBytes != 0)
      throw ModuleError("[cuda] expected scales at multiples of 16 bytes");
  }
  emulator::note_launch("cublasLt");
  emulator::enqueue([p = params_, call, has_alpha = place_ == AlphaPlace::device] {
    multiply_all(p, call, has_alpha);
  });
}

}  // namespace octet::cuda
