// Matrices that kernels read by pieces of rows, whatever they are stored as: f32, bf16, or one-byte
// codes with scales in groups along the rows (formats/quantize.h). Everything runs on the calling
// thread; results are bit-identical on every vector target.
#pragma once

#include "backends/cpu/codec/codec.h"
#include "backends/cpu/common/operand.h"

namespace octet::cpu {

struct QuantizedMatrix {
  In x = {};          // unquantized where group is 0, else codes
  In scales = {};     // f32 or bf16, [rows, ceil(cols / group)]
  int64_t group = 0;  // elements that share a scale; the last group of a row may be shorter
};

// Codes that are written, in groups along the rows.
struct GroupCodes {
  Dtype format = Dtype::e4m3;
  float target = 448;
  int64_t group = 16;
  uint8_t* codes = nullptr;
  uint16_t* scales = nullptr;  // bf16, [rows, ceil(cols / group)]
};

// Elements [col, col + n) of a row of `cols` elements.
struct RowSpan {
  int64_t row = 0, col = 0, n = 0, cols = 0;
};

// The span's values: unquantized data itself, or f32(code * scale) in `buffer` of n floats. The
// span of codes begins at a group.
In read_span(const QuantizedMatrix& matrix, const RowSpan& span, float* buffer);

// Columns for a piece of work on `want` columns or so: whole groups.
constexpr int64_t group_chunk(int64_t group, int64_t want) {
  return group == 0 ? want : group * std::max<int64_t>(1, want / group);
}

struct EncodeScale {
  float inv_scale = 1;
  float limit = 0;  // above 0: |x inv_scale| above it becomes NaN
};
// codes[i] = encode(f32(x[i]) * inv_scale)
void encode_span(const Codec& codec, In x, int64_t n, const EncodeScale& scale, uint8_t* codes);

// The leaves below work on short spans, in f32 inside.

// y[i] = x[i], rounded once.
void convert_span(In x, int64_t n, Out y);
// y[i] = a[i] + b[i] in f32, and the same in the storage of `sum`, which may be a or b.
struct SumSpan {
  In a = {}, b = {};
  Out sum = {};
  float* y = nullptr;
};
void add_span(const SumSpan& args, int64_t n);
// y[i] = (x[i] - mean) * rstd * weight[i] + bias[i] (from left to right, weight and bias optional).
// y may be x.
struct NormalizeSpan {
  In x = {}, weight = {}, bias = {};
  float mean = 0, rstd = 1;
  float* y = nullptr;
};
void normalize_span(const NormalizeSpan& args, int64_t n);
// The largest finite |x|; negative (or -0.0) where some x is NaN or Inf.
float signed_amax(In x, int64_t n);
// The largest finite |x| of each group.
void group_amax(const float* x, int64_t n, int64_t group, float* amax);
// amax -> the stored scale of each group as bf16 bits; amax becomes 1 / scale.
void group_scales(float* amax, int64_t n_groups, float target, uint16_t* scales);
// x[i] *= factors[i / group]
void scale_groups(float* x, int64_t n, int64_t group, const float* factors);

// out[c * out_stride + r] = block[r * stride + c] for r < n_rows <= kPanelRows, c < n_cols. Of the
// block, kPanelRows rows of n_cols rounded up to 16 are read.
inline constexpr int64_t kPanelRows = 64;
struct CodePanel {
  const uint8_t* block = nullptr;
  int64_t stride = 0;
  uint8_t* out = nullptr;
  int64_t out_stride = 0;
};
void transpose_codes(const CodePanel& panel, int64_t n_rows, int64_t n_cols);

}  // namespace octet::cpu
