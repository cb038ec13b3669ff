// Quantizers of whole tensors and of groups, alone and joined to the op that makes the values.
// The arithmetic is formats/quantize.h's, bit for bit:
//   per tensor   code = encode(f32(x * f32(1 / scale)))
//   groups       scale = bf16(amax * f32(1 / target)), at least 2^-100, 1 for zeros; then as above
// encode is nearest and saturating; NaN is the format's NaN. amax is over finite values.
//
// Matrices are row-major and dense; f32 inside. Codes by row are [rows, cols]; transposed they are
// [cols, padded_rows], the rows from `rows` on being zero codes. Results are the same for any
// number of threads. `scratch` is quantize_scratch(...) floats, uninitialised.
#pragma once

#include "backends/cpu/common/operand.h"
#include "backends/cpu/elementwise/elementwise.h"
#include "backends/cpu/elementwise/quantized_matrix.h"
#include "backends/cpu/norm/norm.h"

namespace octet::cpu {

struct TensorCodes {
  Dtype format = Dtype::e4m3;
  float scale = 1;
  float limit = 0;          // above 0: |x / scale| above it becomes NaN (QuantizeAttrs)
  uint8_t* rows = nullptr;  // either or both
  uint8_t* transposed = nullptr;
  int64_t padded_rows = 0;
  uint8_t zero_code = 0;
};

// `group`: of the stored operands or of the result, the larger; 0 where neither has groups.
int64_t quantize_scratch(RowShape shape, int64_t group, int n_threads);

void quantize(In x, const TensorCodes& out, RowShape shape, float* scratch, ThreadPool& pool);
void quantize_groups(In x, const GroupCodes& out, RowShape shape, float* scratch, ThreadPool& pool);

// y = f32(code * scale), rounded to y's storage; group 0: scales holds the tensor's one scale.
void dequantize(const QuantizedMatrix& codes, Out y, RowShape shape, float* scratch,
                ThreadPool& pool);

// sum = a + b, and codes of the f32 sum. sum may be a or b.
struct AddQuantize {
  In a = {}, b = {};
  Out sum = {};
  GroupCodes out = {};
};
void add_quantize(const AddQuantize& args, RowShape shape, float* scratch, ThreadPool& pool);

// The last maxima of a tensor, the oldest first: where the largest is not 0 a scale is made from
// it, and not from the amax of now, which then joins as the history moves on. next may be values.
struct AmaxHistory {
  const float* values = nullptr;
  float* next = nullptr;
  int64_t n = 0;
};
// The amax that the scale is made from.
float delayed_amax(const AmaxHistory& history, float amax);

// A fused quantizer's own scale: from the amax of its f32 result, which is made
// once for amax and again for the codes, and never stored.
struct OwnScale {
  float target = 448;
  float* scale = nullptr;        // null: TensorCodes::scale is given
  uint8_t* nonfinite = nullptr;  // 1 where the result holds a NaN or Inf
  AmaxHistory history = {};      // n 0: from the amax of now
};

// Codes of (x - mean) rstd w + b (norm.h); a norm of kind rms has no mean. mean and rstd [rows] are
// written where they are not null, or read where they are known.
struct NormQuantize {
  NormKind kind = NormKind::rms;
  QuantizedMatrix x = {};
  In weight = {}, bias = {};
  float eps = 1e-5f;
  float *mean = nullptr, *rstd = nullptr;
  const float *known_mean = nullptr, *known_rstd = nullptr;
  OwnScale own = {};
  TensorCodes out = {};
};
void norm_quantize(const NormQuantize& args, RowShape shape, float* scratch, ThreadPool& pool);

// Codes of an activation (elementwise.h); `up` of a gated one alone.
struct ActivationQuantize {
  RowLayer layer = RowLayer::gated_silu;
  QuantizedMatrix x = {}, up = {};
  OwnScale own = {};
  TensorCodes out = {};
};
void activation_quantize(const ActivationQuantize& args, RowShape shape, float* scratch,
                         ThreadPool& pool);

// Activations and their gradients whose operands are stored as codes in groups: decoded span by
// span to f32, then elementwise.h's arithmetic, whose `io` says all but x and up. Gradients may
// overwrite dy.
struct CodedOperands {
  QuantizedMatrix x = {}, up = {};
};
void activate_codes(const CodedOperands& from, const ActivationArgs& io, RowShape shape,
                    float* scratch, ThreadPool& pool);
void activate_codes_backward(const CodedOperands& from, const ActivationBackward& io,
                             RowShape shape, float* scratch, ThreadPool& pool);

// scale of a tensor by its amax: amax f32(1 / target), at least 2^-100, 1 for amax 0.
float tensor_scale(float amax, float target);

}  // namespace octet::cpu
