#include "backends/cpu/attention/delta_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/attention/delta_rows.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

// Rows of a tile of two vectors: with the accumulators, what is loaded fits the registers.
constexpr int kTileRows = HWY_TARGET <= HWY_AVX3 ? 8 : 4;

// kRows rows and kVectors vectors of the result, from row i and column j on.
template <int kRows, int kVectors>
HWY_INLINE void tile(const DeltaProduct& p, int64_t i, int64_t j) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  const Full io;
  VF sums[kRows][kVectors];
  float* const y = p.y.x + i * p.y.stride + j;
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
      const bool is_added = p.sum == DeltaSum::added;
      sums[r][v] = is_added ? io.load(y + r * p.y.stride + v * lanes) : zero();
    }
  }
  const float* a = p.a.a + i * p.a.row;
  const float* b = p.b.x + j;
  for (int64_t k = 0; k < p.k; ++k, a += p.a.column, b += p.b.stride) {
    VF factors[kVectors];
    HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) factors[v] = io.load(b + v * lanes);
    HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
      const VF x = set(a[r * p.a.row]);
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(x, factors[v], sums[r][v]);
      }
    }
  }
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
      io.store(sums[r][v], y + r * p.y.stride + v * lanes);
    }
  }
}

template <int kVectors>
HWY_INLINE void column(const DeltaProduct& p, int64_t j) {
  int64_t i = 0;
  for (; i + kTileRows <= p.m; i += kTileRows) tile<kTileRows, kVectors>(p, i, j);
  if (kTileRows > 4 && i + 4 <= p.m) tile<4, kVectors>(p, i, j), i += 4;
  if (i + 2 <= p.m) tile<2, kVectors>(p, i, j), i += 2;
  if (i < p.m) tile<1, kVectors>(p, i, j);
}

void Product(const DeltaProduct& p) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t j = 0;
  for (; j + 2 * lanes <= p.n; j += 2 * lanes) column<2>(p, j);
  for (; j + lanes <= p.n; j += lanes) column<1>(p, j);
}

template <typename Fn>
HWY_INLINE void for_vectors(int64_t n, Fn&& fn) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  for (int64_t i = 0; i < n; i += lanes) fn(i);
}

void Multiply(const float* x, const float* factors, float* y, int64_t n) {
  const Full io;
  for_vectors(n, [&](int64_t i)
                     HWY_ATTR { io.store(hn::Mul(io.load(x + i), io.load(factors + i)), y + i); });
}

void AddProducts(const float* x, const float* y, float* sums, int64_t n) {
  const Full io;
  for_vectors(n, [&](int64_t i) HWY_ATTR {
    io.store(hn::MulAdd(io.load(x + i), io.load(y + i), io.load(sums + i)), sums + i);
  });
}

void ScaleDelta(float* x, float factor, int64_t n) {
  const Full io;
  for_vectors(n,
              [&](int64_t i) HWY_ATTR { io.store(hn::Mul(io.load(x + i), set(factor)), x + i); });
}

void Decay(float* x, float top, int64_t n) {
  const Full io;
  for_vectors(n, [&](int64_t i) HWY_ATTR {
    const VF difference = hn::Sub(set(top), io.load(x + i));
    const VF least = hn::IfThenElse(hn::Gt(difference, zero()), zero(), difference);
    io.store(exp_f32(least), x + i);
  });
}

void ExpDelta(float* x, int64_t n) {
  const Full io;
  for_vectors(n, [&](int64_t i) HWY_ATTR { io.store(exp_f32(io.load(x + i)), x + i); });
}

float Dot(const float* x, const float* y, int64_t n) {
  HWY_ALIGN float sums[kDeltaLanes] = {};
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  const Full io;
  for (int64_t first = 0; first < kDeltaLanes; first += lanes) {
    VF sum = zero();
    for (int64_t i = first; i < n; i += kDeltaLanes) {
      sum = hn::MulAdd(io.load(x + i), io.load(y + i), sum);
    }
    io.store(sum, sums + first);
  }
  for (int64_t half = kDeltaLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(Product);
HWY_EXPORT(Multiply);
HWY_EXPORT(AddProducts);
HWY_EXPORT(ScaleDelta);
HWY_EXPORT(Decay);
HWY_EXPORT(ExpDelta);
HWY_EXPORT(Dot);

void delta_product(const DeltaProduct& product) {
  HWY_DYNAMIC_DISPATCH(Product)(product);
}
void multiply_delta_row(const float* x, const float* factors, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Multiply)(x, factors, y, n);
}
void add_delta_products(const float* x, const float* y, float* sums, int64_t n) {
  HWY_DYNAMIC_DISPATCH(AddProducts)(x, y, sums, n);
}
void scale_delta_row(float* x, float factor, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ScaleDelta)(x, factor, n);
}
void decay_delta_row(float* x, float top, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Decay)(x, top, n);
}
void exp_delta_row(float* x, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ExpDelta)(x, n);
}
float dot_delta_rows(const float* x, const float* y, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(Dot)(x, y, n);
}

}  // namespace octet::cpu
#endif
