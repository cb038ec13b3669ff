// Short hands for bindings of ops on codes.
#pragma once

#include <optional>

#include "backends/cpu/bind/launch.h"
#include "backends/cpu/quantize/quantize.h"
#include "formats/table.h"
#include "ir/op_def.h"

namespace octet::cpu {

// Everything but the last axis is rows.
inline RowShape rows_of(const TensorType& x) {
  const int64_t cols = x.shape.empty() ? 1 : x.shape.back();
  return {.rows = cols == 0 ? 0 : x.n_elems() / cols, .cols = cols};
}

inline int64_t float_bytes(int64_t n) {
  return n * static_cast<int64_t>(sizeof(float));
}

// True if an operand is quantized as these kernels read it: in groups along the rows.
inline bool is_in_groups(const TensorType& type) {
  return has_codec(type.dtype) && type.has(Granularity::Kind::group) &&
         is_f32_or_bf16(type.granularity.scale);
}
// The length of the groups of a node's quantized operands, which are alike; 0 where there are none.
inline int64_t group_size(const NodeView& view) {
  return view.in(op_def(view.node.op).scales[0].operand).granularity.size;
}

// Of a norm or its gradient, alone or with a quantizer.
inline NormKind norm_kind(const NodeView& view) {
  return op_def(view.node.op).is_centred() ? NormKind::layer : NormKind::rms;
}

// True if those of the first n operands that may be quantized are so alike, in groups along the
// rows or not at all, and all others f32 or bf16 (row_layers.cpp).
bool operands_apply(const NodeView& view, size_t n);
// Likewise of all, where they are quantized, and of its results.
bool reads_codes(const NodeView& view);

// The codes that a per-tensor quantizer writes: the first result, or where it writes both layouts
// by row the first, and transposed the result `both`.
struct CodesOf {
  CodesOf(const NodeView& view, const QuantizeAttrs& q, std::optional<SlotId> both)
      : format(view.out(Quantize::q).dtype),
        limit(static_cast<float>(q.limit)),
        rows(!view.out(Quantize::q).layout.transposed),
        transposed(both || !rows) {
    zero_code = static_cast<uint8_t>(find_format(format).zero_code);
    transposed_at = both.value_or(Quantize::q);
    if (transposed) padded_rows = view.out(transposed_at).stored_shape()[1];
  }
  TensorCodes at(const Call& call, float scale) const {
    TensorCodes codes{.format = format,
                      .scale = scale,
                      .limit = limit,
                      .padded_rows = padded_rows,
                      .zero_code = zero_code};
    if (rows) codes.rows = call.result<uint8_t>(Quantize::q);
    if (transposed) codes.transposed = call.result<uint8_t>(transposed_at);
    return codes;
  }
  Dtype format;
  float limit;
  bool rows, transposed;
  size_t transposed_at = 0;
  int64_t padded_rows = 0;
  uint8_t zero_code = 0;
};

}  // namespace octet::cpu
