// How much a pair of quantized moments disturbs AdamW's direction: the mean square of
//   d_i = m_i / (sqrt(v_i) + eps) - m'_i / (sqrt(v'_i) + eps)
// with m, v in f32 and m', v' what their stored forms decode to (math/moment.h), in double. Source:
// Xi et al., COAT, ICLR 2025, tables 1 and 8.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "math/moment.h"

namespace octet {

struct StateErrorOptions {
  int64_t group = 128;
  double eps = 1e-8;
  MathMode math = MathMode::exact;
};

struct MomentKind {
  Dtype dtype = Dtype::e4m3;
  bool expand = false;
};

// What x becomes when it is stored and read again, rounded to nearest. f32 gives x.
std::vector<float> store_and_load(const MomentCoding& coding, int64_t group,
                                  std::span<const float> x);

// Throws ErrorCode::invalid_argument where m and v differ in size, or hold nothing.
double state_mse(std::span<const float> m, std::span<const float> v, MomentKind first,
                 MomentKind second, const StateErrorOptions& options = {});

// Rows: kinds of m, columns: kinds of v; kinds {e4m3, e4m3+x, e5m2, e5m2+x} give the paper's
// table 1.
struct StateErrorTable {
  std::vector<MomentKind> first, second;
  std::vector<double> mse;  // [first, second] row-major
};
StateErrorTable state_error_table(std::span<const float> m, std::span<const float> v,
                                  std::span<const MomentKind> kinds,
                                  const StateErrorOptions& options = {});

}  // namespace octet
