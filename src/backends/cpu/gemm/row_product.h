// A product of few rows, without a library:  c [m, n] (+)= a [m, k] b [k, n], all f32.
//
// Each element is a sum in a fixed order, that of `runs`: chains of fused multiply-adds from zero,
// which are then added one after the other. So a row's bits depend on the row and on b alone, and
// can be those of a library that adds in such an order (TileGemm).
#pragma once

#include <cstdint>

namespace octet::cpu {

// Remainder below two runs: halved where it is more than one, or a whole run and the rest.
enum class LastRuns : uint8_t { halved, rest };

// Runs of `block` elements. block 0: an order that is not known.
struct SumOrder {
  int64_t block = 0;
  LastRuns last = LastRuns::halved;
  bool is_known() const { return block > 0; }
  // How many of `left` elements the next run has.
  int64_t next(int64_t left) const {
    if (left >= 2 * block) return block;
    if (left <= block) return left;
    return last == LastRuns::halved ? (left + 1) / 2 : block;
  }
};

inline constexpr int64_t kRowColumns = 32;  // n is a multiple of it

// Start of a sum: at zero; at zero, and each run is added to c; or c is a chain that the only
// run continues.
enum class RowSum : uint8_t { overwrite, add, carry };

// Row strides in elements; c overlaps neither a nor b.
struct RowProduct {
  const float* a = nullptr;
  int64_t a_stride = 0;
  const float* b = nullptr;
  int64_t b_stride = 0;
  float* c = nullptr;
  int64_t c_stride = 0;
  int64_t m = 0, n = 0, k = 0;
  SumOrder order = {};
  RowSum sum = RowSum::overwrite;
};
void multiply_rows(const RowProduct& product);

}  // namespace octet::cpu
