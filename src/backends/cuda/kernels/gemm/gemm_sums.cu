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

uint32_t code_at(const std::vector<std::byte>& bytes, int64_t i, Dtype dtype) {
  uint32_t code = 0;
  const auto width = static_cast<size_t>(dtype_bytes(dtype));
  std::memcpy(&code, bytes.data() + static_cast<size_t>(i) * width, width);
  return code;
}

// Value of a factor's type.
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

// Code of a result's type.
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

GemmSums::GemmSums(int capability, const GemmParams& p, const GemmCall& call, cudaStream_t stream)
    : rule_(p.batch == 1 && !p.tf32 && p.a != Dtype::f32 && p.k > 0
                ? find_tensor_sums(capability, p.a, p.b)
                : nullptr),
      params_(p),
      call_(call),
      stream_(stream),
      rows_(sampled(p.m)),
      cols_(sampled(p.n)) {
  if (rule_ == nullptr) return;
  const auto a = factors(call.a, p.a, !p.trans_a, p.m), b = factors(call.b, p.b, p.trans_b, p.n);
  // Blocks' sums of 128 are added as promoted ones are, where their scales are 1.
  const bool by_row = p.kind == GemmKind::by_rows;
  const SumMode mode =
      p.fast_accumulate && (by_row || !has_blocks(p)) ? SumMode::one_chain : SumMode::promoted;
  for (size_t i = 0; i < rows_.size(); ++i) {
    for (size_t j = 0; j < cols_.size(); ++j)
      wanted_.push_back(sum_of_products(*rule_, mode, a.data() + static_cast<int64_t>(i) * p.k,
                                        b.data() + static_cast<int64_t>(j) * p.k, p.k));
  }
}

std::vector<SumFactor> GemmSums::factors(const void* data, Dtype dtype, bool k_major,
                                         int64_t outers) const {
  const int64_t k = params_.k, stride = k_major ? k : params_.lda != 0 ? params_.lda : outers;
  const auto width = static_cast<size_t>(dtype_bytes(dtype));
  std::vector<std::byte> line(static_cast<size_t>(k) * width);
  std::vector<SumFactor> all;
  for (const int64_t outer : sampled(outers)) {
    const auto* from = static_cast<const std::byte*>(data) +
                       static_cast<size_t>(outer * (k_major ? k : 1)) * width;
    check(
        cudaMemcpy2DAsync(line.data(), k_major ? line.size() : width, from,
                          (k_major ? static_cast<size_t>(k) : static_cast<size_t>(stride)) * width,
                          k_major ? line.size() : width, k_major ? 1 : static_cast<size_t>(k),
                          cudaMemcpyDeviceToHost, stream_),
        "reading a trial");
    check(cudaStreamSynchronize(stream_), "reading a trial");
    for (int64_t i = 0; i < k; ++i)
      all.push_back(sum_factor(decoded(dtype, code_at(line, i, dtype)), lowest_exponent(dtype),
                               rule_->fraction_of_factors));
  }
  return all;
}

void GemmSums::clear() const {
  const auto bytes = static_cast<size_t>(params_.m * params_.n * dtype_bytes(params_.y));
  check(cudaMemsetAsync(call_.y, 0, bytes, stream_), "clearing a trial");
}

bool GemmSums::are_in_y() const {
  const Dtype dtype = params_.y;
  const auto width = static_cast<size_t>(dtype_bytes(dtype));
  std::vector<std::byte> line(static_cast<size_t>(params_.n) * width);
  for (size_t i = 0; i < rows_.size(); ++i) {
    const auto* from =
        static_cast<const std::byte*>(call_.y) + static_cast<size_t>(rows_[i]) * line.size();
    check(cudaMemcpyAsync(line.data(), from, line.size(), cudaMemcpyDeviceToHost, stream_),
          "reading a trial");
    check(cudaStreamSynchronize(stream_), "reading a trial");
    for (size_t j = 0; j < cols_.size(); ++j) {
      const float want = scaled_sum(params_.factor, wanted_[i * cols_.size() + j], 0);
      if (code_at(line, cols_[j], dtype) != encoded(dtype, want)) return false;
    }
  }
  return true;
}

}  // namespace octet::cuda
