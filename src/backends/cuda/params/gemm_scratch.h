// Scratch of a product beside its operands: one formula for the plan and for the kernel.
//
// FP8 products run as they are where the device and the library take them: e4m3 x e4m3, e4m3 x e5m2
// and e5m2 x e4m3, both factors K-major, m, n and k multiples of 16. So do those with scales of 128
// elements along k, or of 128 x 128, one factor at least of the former kind; what is not K-major is
// transposed before; and those with f32 scales of rows along k on either side. Every other product
// of codes decodes both factors into scratch: to BF16, or to FP16 for a result of that type, which
// is exact with one scale and with scales that are powers of two; with f32 scales of blocks to f32,
// which is rounded to TF32. Where the addend's type is not the result's, or the library does not
// round to the result's, sums are f32 in scratch, in runs of rows.
#pragma once

#include <algorithm>

#include "backends/cuda/kernel_id.h"
#include "backends/cuda/params/gemm.h"
#include "formats/table.h"

namespace octet::cuda {

inline constexpr int64_t kGemmWorkspace = int64_t{32} << 20;
inline constexpr int64_t kMaxSums = int64_t{64} << 20;  // bytes
inline constexpr int64_t kLibraryBlock = 128;
inline constexpr int64_t kFewRows = 2;
// Of gemm_weight_only.cu: rows at most; columns of a block, which makes one of the slices of k;
// elements of k a step.
inline constexpr int64_t kWeightRows = 64, kWeightColumns = 128;
inline constexpr int kWeightSlices = 4, kWeightDepth = 64;

constexpr bool has_blocks(const GemmParams& p) {
  return !p.a_blocks.none() || !p.b_blocks.none();
}
constexpr bool fp8_pair(const GemmParams& p) {
  return is_fp8(p.a) && is_fp8(p.b) && !(p.a == Dtype::e5m2 && p.b == Dtype::e5m2) &&
         p.m % 16 == 0 && p.n % 16 == 0 && p.k % 16 == 0;
}
constexpr bool runs_in_fp8(const GemmParams& p) {
  return p.fp8_products && !has_blocks(p) && fp8_pair(p) && !p.trans_a && p.trans_b;
}

constexpr bool has_f32_blocks(const GemmParams& p) {
  return (!p.a_blocks.none() && p.a_scales == Dtype::f32) ||
         (!p.b_blocks.none() && p.b_scales == Dtype::f32);
}

// Sums that the library rounds to codes: powers of two, as factor, change no rounding.
constexpr bool stores_e4m3(const GemmParams& p) {
  return runs_in_fp8(p) && p.a == Dtype::e4m3 && p.b == Dtype::e4m3 && !p.has_c && p.m > kFewRows;
}

// A high-precision operand and codes with one scale: multiplied as they are where there are few
// rows.
constexpr bool mixes_types(const GemmParams& p) {
  return (p.a == Dtype::bf16 || p.a == Dtype::fp16) && p.b == Dtype::e4m3;
}
// So few rows that reading b is all that counts (gemm_few_rows.cu): b K-major, both factors bf16,
// fp16, or e4m3 with one scale each; or a bf16 or fp16, and b e4m3.
constexpr bool has_few_rows(const GemmParams& p) {
  const bool is_half = p.a == Dtype::bf16 || p.a == Dtype::fp16;
  const bool high_precision = is_half && p.b == p.a && !p.has_scale_a && !p.has_scale_b;
  const bool mixed = mixes_types(p) && !p.has_scale_a && p.has_scale_b && !has_blocks(p);
  const bool codes = p.a == Dtype::e4m3 && p.b == Dtype::e4m3 && !has_blocks(p);
  return (high_precision || mixed || codes) && p.m <= kFewRows && p.batch == 1 && p.factor == 1 &&
         !p.trans_a && p.trans_b && p.k % 16 == 0 && (!p.has_c || p.c == p.y);
}

// 16-bit rows and codes with one scale, of more rows (gemm_weight_only.cu); each tile of columns
// has a counter.
constexpr bool is_weight_only(const GemmParams& p) {
  return mixes_types(p) && !p.has_scale_a && p.has_scale_b && !has_blocks(p) && p.m > kFewRows &&
         p.m <= kWeightRows && p.n > 0 && p.n <= kWeightColumns * kCounters && p.batch == 1 &&
         p.factor == 1 && !p.trans_a && p.trans_b && p.k > 0 && p.k % kWeightDepth == 0 &&
         (!p.has_c || p.c == p.y);
}
// Rows that the kernel is made for.
constexpr int64_t weight_rows(int64_t m) {
  return m <= 16 ? 16 : m <= 32 ? 32 : kWeightRows;
}
// Elements of k of a slice; the last ones may have fewer, or none.
constexpr int64_t weight_slice(int64_t k) {
  const int64_t steps = k / kWeightDepth;
  return (steps + kWeightSlices - 1) / kWeightSlices * kWeightDepth;
}
constexpr int64_t weight_slices_bytes(const GemmParams& p) {
  const int64_t columns = (p.n + kWeightColumns - 1) / kWeightColumns * kWeightColumns;
  return 4 * kWeightSlices * columns * weight_rows(p.m);
}

// Type that decoded factors are stored as, and that the library multiplies.
constexpr Dtype decoded_type(const GemmParams& p) {
  if (has_f32_blocks(p)) return Dtype::f32;
  return p.y == Dtype::fp16 && !has_blocks(p) ? Dtype::fp16 : Dtype::bf16;
}
// A GEMM of high-precision operands with a scale: alpha is made on the device.
constexpr bool scales_high_precision(const GemmParams& p) {
  return (p.has_scale_a || p.has_scale_b) && !is_gemm_operand(p.a);
}
// True if the GEMM of what is decoded has a factor: a scale of a whole operand, which data in f32
// have been multiplied with.
constexpr bool has_whole_scale(const GemmParams& p) {
  if (decoded_type(p) == Dtype::f32) return false;
  return (p.has_scale_a && p.a_blocks.none()) || (p.has_scale_b && p.b_blocks.none());
}
constexpr bool adds_another_type(const GemmParams& p) {
  return p.has_c && p.c != p.y;
}
// Scales of 128 along k, or of 128 x 128; b's as if it lay [k, n] where it is not transposed.
constexpr bool is_line(const GemmBlocks& blocks, bool k_major) {
  return k_major ? blocks.is(1, kLibraryBlock) : blocks.is(kLibraryBlock, 1);
}
constexpr bool is_square(const GemmBlocks& blocks) {
  return blocks.is(kLibraryBlock, kLibraryBlock);
}
constexpr bool may_run_in_blocks(const GemmParams& p) {
  const bool line_a = is_line(p.a_blocks, !p.trans_a), line_b = is_line(p.b_blocks, p.trans_b);
  return p.fp8_blocks && fp8_pair(p) && !adds_another_type(p) &&
         (line_a || is_square(p.a_blocks)) && (line_b || is_square(p.b_blocks)) &&
         (line_a || line_b);
}

// A scale for each row of a and for each of b, both K-major.
constexpr bool may_run_by_rows(const GemmParams& p) {
  const auto by_row = [&](const GemmBlocks& blocks, Dtype scales) {
    return blocks.rows == 1 && blocks.cols == p.k && scales == Dtype::f32;
  };
  return p.fp8_blocks && fp8_pair(p) && !adds_another_type(p) && !p.trans_a && p.trans_b &&
         by_row(p.a_blocks, p.a_scales) && by_row(p.b_blocks, p.b_scales);
}

// The first row that takes the product; decoded takes all data in eight bits.
constexpr GemmKind kind_of(const GemmParams& p) {
  if (has_few_rows(p)) return GemmKind::few_rows;
  if (is_weight_only(p)) return GemmKind::weight_only;
  if (!is_gemm_operand(p.a)) return GemmKind::high_precision;
  if (runs_in_fp8(p)) return GemmKind::fp8;
  if (may_run_by_rows(p)) return GemmKind::by_rows;
  return may_run_in_blocks(p) ? GemmKind::blocks : GemmKind::decoded;
}

// True if sums are made apart from the result.
constexpr bool has_own_sums(const GemmParams& p) {
  const Dtype factors = p.kind == GemmKind::decoded ? decoded_type(p) : p.a;
  return adds_another_type(p) || (p.y != Dtype::f32 && p.y != factors && !is_fp8(factors));
}

constexpr int64_t aligned_bytes(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}
// Bytes of one factor decoded.
constexpr int64_t decoded_bytes(const GemmParams& p, int64_t n_elems) {
  return aligned_bytes(dtype_bytes(decoded_type(p)) * n_elems);
}

// f32 entries of a factor's scales as the library reads them: [ceil(k / 128), outer], or a line of
// ceil(k / 128) padded to four for each 128 of outer.
constexpr int64_t scale_entries(bool square, int64_t outer, int64_t k) {
  const int64_t deep = (k + kLibraryBlock - 1) / kLibraryBlock;
  const int64_t across = (outer + kLibraryBlock - 1) / kLibraryBlock;
  return square ? across * ((deep + 3) / 4 * 4) : deep * outer;
}
constexpr int64_t block_bytes(const GemmParams& p) {
  return aligned_bytes(p.trans_a ? p.m * p.k : 0) + aligned_bytes(p.trans_b ? 0 : p.n * p.k) +
         aligned_bytes(4 * scale_entries(is_square(p.a_blocks), p.m, p.k)) +
         aligned_bytes(4 * scale_entries(is_square(p.b_blocks), p.n, p.k));
}

// Rows of y whose sums are made at once, where they are made apart.
constexpr int64_t rows_of_sums(const GemmParams& p) {
  if (p.y == Dtype::f32) return p.m;  // in y itself
  const int64_t fit = kMaxSums / (4 * std::max<int64_t>(p.n, 1)) / 128 * 128;
  return std::min(p.m, std::max<int64_t>(fit, 128));
}
constexpr int64_t sums_bytes(const GemmParams& p) {
  return has_own_sums(p) && p.y != Dtype::f32 ? aligned_bytes(4 * rows_of_sums(p) * p.n) : 0;
}

// Workspace, then alpha and beta, then sums, then the factors as they are multiplied.
constexpr int64_t gemm_scratch_bytes(const GemmParams& p) {
  switch (p.kind) {
    case GemmKind::few_rows:
      return 0;
    case GemmKind::weight_only:
      return weight_slices_bytes(p);
    case GemmKind::blocks:
      return kGemmWorkspace + 256 + block_bytes(p);
    case GemmKind::decoded:
      return kGemmWorkspace + 256 + sums_bytes(p) + decoded_bytes(p, p.m * p.k) +
             decoded_bytes(p, p.n * p.k);
    default:
      return kGemmWorkspace +
             (has_own_sums(p) || scales_high_precision(p) ? 256 + sums_bytes(p) : 0);
  }
}

}  // namespace octet::cuda
