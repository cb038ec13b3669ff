// The vector kernels of the gated delta rule: products of small matrices in f32, whose elements are
// added up in the order of k, and rows. Rows are padded to multiples of 16 elements. Bits are the
// same on every vector target.
#pragma once

#include <cstdint>

namespace octet::cpu {

inline constexpr int64_t kDeltaLanes = 16;

// An element (i, k) of the first factor is a[i a_row + k a_column].
struct DeltaFactor {
  const float* a = nullptr;
  int64_t row = 0, column = 0;
};
// A matrix of rows `stride` apart.
struct DeltaRows {
  float* x = nullptr;
  int64_t stride = 0;
};
enum class DeltaSum : uint8_t { fresh, added };

// y[m, n] = a[m, k] b[k, n], added to what y holds or not; n in multiples of 16.
struct DeltaProduct {
  DeltaFactor a;
  DeltaRows b, y;
  int64_t m = 0, n = 0, k = 0;
  DeltaSum sum = DeltaSum::fresh;
};
void delta_product(const DeltaProduct& product);

// y[i] = x[i] factors[i]; y may be x. All n in multiples of 16 from here on.
void multiply_delta_row(const float* x, const float* factors, float* y, int64_t n);
// sums[i] += x[i] y[i].
void add_delta_products(const float* x, const float* y, float* sums, int64_t n);
// x[i] = factor x[i].
void scale_delta_row(float* x, float factor, int64_t n);
// x[i] = exp(min(top - x[i], 0)).
void decay_delta_row(float* x, float top, int64_t n);
// x[i] = exp(x[i]).
void exp_delta_row(float* x, int64_t n);
// sum of x[i] y[i], in 16 sums.
float dot_delta_rows(const float* x, const float* y, int64_t n);

}  // namespace octet::cpu
