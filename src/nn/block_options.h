// Options that the blocks of models leave open: matrices, linears, attention.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/builder.h"

namespace octet {

// Use of a matrix in its model; decides initialisation and weight decay.
//   matrix     N(0, 0.02), decay
//   residual   N(0, 0.02 / sqrt(2 layers)), decay: projections that end in the residual stream
//   embedding  N(0, 0.02), no decay
enum class MatrixUse : uint8_t { matrix, residual, embedding };

// How Hugging Face stores a linear's weight: [out, in], or [in, out] (its Conv1D).
enum class WeightLayout : uint8_t { out_in, in_out };
enum class WithBias : uint8_t { no, yes };
constexpr WithBias bias_if(bool has_bias) {
  return has_bias ? WithBias::yes : WithBias::no;
}

// Which elements of a head are rotated together: i with i + d/2, or 2i with 2i + 1.
enum class RotaryPairs : uint8_t { halves, neighbours };

struct LinearOptions {
  MatrixUse use = MatrixUse::matrix;
  WeightLayout layout = WeightLayout::out_in;
  WithBias bias = WithBias::no;
  bool whole_path = false;  // the origin is all of the path, where its last part is not enough
  Shape file_shape = {};    // ParameterSpec's, as is:
  bool channels_last = false;
  double std = 0;  // of the first weights; 0: by use
};

// Keys that a query sees, and what is added to its scores. Values by the name of the op's operands.
// keys: unset, those of a causal mask are appended to a cache, those of a full one own. scale: 0:
// 1 / sqrt(head_dim). heads, kv_heads, head_dim: 0: the spec's.
struct AttentionOptions {
  AttentionMask mask = AttentionMask::causal;
  ValueId key_begins = kNoValue, key_ends = kNoValue, bias = kNoValue;
  double scale = 0;
  std::optional<AttentionKeys> keys = {};
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
};

}  // namespace octet
