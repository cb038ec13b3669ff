#include "backends/cuda/kernels/gemm/gemm_sums.h"

#include <algorithm>
#include <cstring>

#include "backends/cuda/launch/kernel.h"
#include "backends/cuda/params/gemm_scratch.h"
#include "formats/decode.h"
#include "formats/encode.h"
#include "math/tensor_epilogue.h"

namespace octet::cuda {
namespace {

constexpr int64_t kSampled = 16;  // at either end

std::vector<int64_t> sampled(int64_t n) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < n; ++i) {
    if (i < kSampled || i >= n - kSampled) all.push_back(i);
  }
  return all;
}

// Scales of the random trial, the first where no bias asks for another one.
constexpr float kScaleA = 0x1.5e9a36p-3f, kScaleB = 1.5f;

void write_code(std::byte* to, Dtype dtype, uint32_t code) {
  std::memcpy(to, &code, static_cast<size_t>(dtype_bytes(dtype)));
}

uint32_t code_at(const std::vector<std::byte>& bytes, int64_t i, Dtype dtype) {
  uint32_t code = 0;
  const auto width = static_cast<size_t>(dtype_bytes(dtype));
  std::memcpy(&code, bytes.data() + static_cast<size_t>(i) * width, width);
  return code;
}

// The value of a factor's code.
float decoded(Dtype dtype, uint32_t code) {
  switch (dtype) {
    case Dtype::e4m3:
      return decode<Dtype::e4m3>(code);
    case Dtype::e5m2:
      return decode<Dtype::e5m2>(code);
    case Dtype::bf16:
      return decode<Dtype::bf16>(code);
    case Dtype::fp16:
      return decode<Dtype::fp16>(code);
    default:
      throw ModuleError("[cuda] no sums of " + std::string(dtype_name(dtype)));
  }
}

// The code of a result.
uint32_t encoded(Dtype dtype, float x) {
  switch (dtype) {
    case Dtype::f32:
      return bits_of(x);
    case Dtype::bf16:
      return encode<Dtype::bf16>(x, Rounding::near, {});
    case Dtype::fp16:
      return encode<Dtype::fp16>(x, Rounding::near, {});
    default:
      return encode<Dtype::e4m3>(x, Rounding::near, {});
  }
}

}  // namespace

GemmSums::GemmSums(int capability, const GemmParams& p, AlphaPlace place, const GemmTrial& trial,
                   cudaStream_t stream)
    : rule_(p.batch == 1 && !p.tf32 && p.a != Dtype::f32 && p.k > 0
                ? find_tensor_sums(capability, p.a, p.b)
                : nullptr),
      params_(p),
      place_(place),
      trial_(trial),
      stream_(stream),
      rows_(sampled(p.m)),
      cols_(sampled(p.n)) {}

void GemmSums::begin(Trial which) {
  const GemmParams& p = params_;
  if (which == Trial::cancelling) trial_.cancel(p);
  call_ = trial_.call();
  const auto a = factors(call_.a, p.a, p.trans_a ? p.lda != 0 ? p.lda : p.m : 1,
                         p.trans_a ? 1 : p.k, rows_),
             b = factors(call_.b, p.b, p.trans_b ? 1 : p.n, p.trans_b ? p.k : 1, cols_);
  // Blocks' sums of 128 are added as promoted ones are, where their scales are 1.
  const bool by_row = p.kind == GemmKind::by_rows;
  const SumMode mode =
      p.fast_accumulate && (by_row || !has_blocks(p)) ? SumMode::one_chain : SumMode::promoted;
  wanted_.clear();
  for (size_t i = 0; i < rows_.size(); ++i) {
    for (size_t j = 0; j < cols_.size(); ++j)
      wanted_.push_back(sum_of_products(*rule_, mode, a.data() + static_cast<int64_t>(i) * p.k,
                                        b.data() + static_cast<int64_t>(j) * p.k, p.k));
  }
  alpha_ = place_ == AlphaPlace::one ? p.factor : 1;
  bias_.assign(cols_.size(), 0);
  const bool has_scales = is_fp8(p.a) && !has_blocks(p);
  if (which == Trial::random && (has_scales || place_ == AlphaPlace::device)) {
    const float scale = p.has_bias ? choose_bias() : kScaleA;
    alpha_ *= scale * kScaleB;
    call_ = has_scales ? trial_.scaled(scale, kScaleB, 1) : trial_.scaled(1, 1, scale * kScaleB);
  }
  if (p.has_bias) write_bias();
}

float GemmSums::choose_bias() {
  for (size_t j = 0; j < cols_.size(); ++j) {
    // With alpha as near to bias / sum as it can be, their product is the bias once it is rounded.
    const float sum = wanted_[j];
    const uint32_t code = encoded(params_.y, -sum);
    const float bias = params_.y == Dtype::f32 ? float_of(code) : decoded(params_.y, code);
    const float scale = -bias / sum / kScaleB / alpha_, alpha = alpha_ * (scale * kScaleB);
    const float fused = scaled_sum(alpha, sum, bias), apart = biased_sum(alpha, sum, bias);
    if (!is_finite(scale) || encoded(params_.y, fused) == encoded(params_.y, apart)) continue;
    bias_[j] = bias;
    return scale;
  }
  return kScaleA;
}

void GemmSums::write_bias() const {
  const auto width = static_cast<size_t>(dtype_bytes(params_.y));
  std::vector<std::byte> row(static_cast<size_t>(params_.n) * width);
  for (size_t j = 0; j < cols_.size(); ++j)
    write_code(row.data() + static_cast<size_t>(cols_[j]) * width, params_.y,
               encoded(params_.y, bias_[j]));
  trial_.set_bias(row);
}

std::vector<SumFactor> GemmSums::factors(const void* data, Dtype dtype, int64_t k_stride,
                                         int64_t line_step,
                                         const std::vector<int64_t>& lines) const {
  const int64_t k = params_.k;
  const auto width = static_cast<size_t>(dtype_bytes(dtype)), step = width * k_stride;
  std::vector<std::byte> line(static_cast<size_t>(k) * width);
  const size_t piece = k_stride == 1 ? line.size() : width;
  std::vector<SumFactor> all;
  for (const int64_t outer : lines) {
    const auto* from =
        static_cast<const std::byte*>(data) + static_cast<size_t>(outer * line_step) * width;
    check(cudaMemcpy2DAsync(line.data(), piece, from, k_stride == 1 ? piece : step, piece,
                            line.size() / piece, cudaMemcpyDeviceToHost, stream_),
          "reading a trial");
    check(cudaStreamSynchronize(stream_), "reading a trial");
    for (int64_t i = 0; i < k; ++i)
      all.push_back(sum_factor(decoded(dtype, code_at(line, i, dtype)), lowest_exponent(dtype),
                               rule_->fraction_of_factors));
  }
  return all;
}

bool GemmSums::holds(const std::function<void(const GemmCall&)>& multiply) const {
  const Dtype dtype = params_.y;
  const auto width = static_cast<size_t>(dtype_bytes(dtype));
  std::vector<std::byte> line(static_cast<size_t>(params_.n) * width);
  // With y 0, an addend that lies there is 0.
  const int64_t bytes =
      params_.m * params_.n * std::max(dtype_bytes(dtype), dtype_bytes(params_.c));
  check(cudaMemsetAsync(call_.y, 0, static_cast<size_t>(bytes), stream_), "clearing a trial");
  multiply(call_);
  for (size_t i = 0; i < rows_.size(); ++i) {
    const auto* from =
        static_cast<const std::byte*>(call_.y) + static_cast<size_t>(rows_[i]) * line.size();
    check(cudaMemcpyAsync(line.data(), from, line.size(), cudaMemcpyDeviceToHost, stream_),
          "reading a trial");
    check(cudaStreamSynchronize(stream_), "reading a trial");
    for (size_t j = 0; j < cols_.size(); ++j) {
      const float want = biased_sum(alpha_, wanted_[i * cols_.size() + j], bias_[j]);
      if (code_at(line, cols_[j], dtype) != encoded(dtype, want)) return false;
    }
  }
  return true;
}

}  // namespace octet::cuda
