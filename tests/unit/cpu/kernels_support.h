// Tensors with either storage type, filled and compared in double, for the tests of the fast CPU
// kernels.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "backends/cpu/common/operand.h"
#include "backends/cpu/common/simd_targets.h"
#include "base/philox.h"
// After the list of targets.
#include <hwy/highway.h>

namespace octet::cpu {

inline float bf16_to_f32(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  return __builtin_bit_cast(float, wide);
}

// Nearest even by comparing the two neighbours, apart from the kernels' bit trick.
inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  const uint16_t low = static_cast<uint16_t>(bits >> 16);
  const uint32_t rest = bits & 0xFFFFu;
  const bool up = rest > 0x8000u || (rest == 0x8000u && (low & 1u) != 0);
  return static_cast<uint16_t>(low + (up ? 1 : 0));
}

// A buffer of exactly n elements between guards, poisoned with NaN.
class Buffer {
 public:
  Buffer(Dtype dtype, int64_t n) : dtype_(dtype), n_(n), bytes_(bytes() + 2 * kGuard, kPoison) {
    for (int64_t i = 0; i < n; ++i) set(i, std::nanf(""));
  }
  int64_t size() const { return n_; }
  Dtype dtype() const { return dtype_; }
  void* data() { return bytes_.data() + kGuard; }
  const void* data() const { return bytes_.data() + kGuard; }
  In in() const { return {data(), dtype_}; }
  Out out() { return {data(), dtype_}; }
  float* f32() { return reinterpret_cast<float*>(data()); }
  double at(int64_t i) const {
    if (dtype_ == Dtype::f32) {
      float v;
      std::memcpy(&v, bytes_.data() + kGuard + i * 4, 4);
      return v;
    }
    uint16_t v;
    std::memcpy(&v, bytes_.data() + kGuard + i * 2, 2);
    return bf16_to_f32(v);
  }
  void set(int64_t i, float value) {
    const uint16_t narrow = f32_to_bf16(value);
    if (dtype_ == Dtype::f32) {
      std::memcpy(bytes_.data() + kGuard + i * 4, &value, 4);
    } else {
      std::memcpy(bytes_.data() + kGuard + i * 2, &narrow, 2);
    }
  }
  Buffer& randomize(uint32_t seed, double scale = 1.0) {
    const RandomStream random{0x5eed, seed, 0, 0};
    for (int64_t i = 0; i < n_; ++i) {
      set(i, static_cast<float>(scale * random.normal(static_cast<uint64_t>(i))));
    }
    return *this;
  }
  bool guards_intact() const {
    for (size_t i = 0; i < kGuard; ++i) {
      if (bytes_[i] != kPoison || bytes_[bytes_.size() - 1 - i] != kPoison) return false;
    }
    return true;
  }
  bool operator==(const Buffer& other) const { return bytes_ == other.bytes_; }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr unsigned char kPoison = 0xA5;
  size_t bytes() const { return static_cast<size_t>(n_ * dtype_bytes(dtype_)); }
  Dtype dtype_;
  int64_t n_;
  std::vector<unsigned char> bytes_;
};

// |got - want| <= relative * scale + one rounding of the storage type; scale = the largest |want|,
// at least `floor`.
inline void expect_close(const Buffer& got, const std::vector<double>& want, double relative,
                         const std::string& what, double floor = 0) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(want.size())) << what;
  EXPECT_TRUE(got.guards_intact()) << what;
  double scale = floor;
  for (const double w : want) scale = std::max(scale, std::abs(w));
  const double ulp = got.dtype() == Dtype::bf16 ? 0x1p-8 : 0x1p-23;
  for (size_t i = 0; i < want.size(); ++i) {
    const double bound = relative * scale + ulp * std::abs(want[i]) + 1e-37;
    const double got_i = got.at(static_cast<int64_t>(i));
    ASSERT_LE(std::abs(got_i - want[i]), bound)
        << what << " element " << i << " got " << got_i << " want " << want[i];
  }
}

// 64-byte aligned scratch, poisoned.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : data_(bytes + 64, 0xFF) {}
  void* get() {
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(data_.data()) + 63) &
                                   ~uintptr_t{63});
  }

 private:
  std::vector<unsigned char> data_;
};

// Runs a test body once for each vector target that this machine has.
template <typename Fn>
void for_each_target(Fn&& fn) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    fn(std::string(hwy::TargetName(target)));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

inline constexpr Dtype kStorage[] = {Dtype::f32, Dtype::bf16};
inline constexpr int kThreadCounts[] = {1, 2, 3, 5, 8};

}  // namespace octet::cpu
