// How the tensor cores of a card make a GEMM: which rule of math/tensor_sums.h adds its products
// and which epilogue of math/tensor_epilogue.h follows. What the CUDA back end's rows for codes and
// 16-bit factors do, asked without a card.
//
// 8-bit floats are multiplied as they are where m, n and k are multiples of 16 (k of a weight
// gradient is padded), with one scale each, a scale for each row of both, or scales of 128 along k.
// Other codes are decoded to 16 bits first, which is exact.
#pragma once

#include <optional>

#include "math/tensor_epilogue.h"
#include "math/tensor_sums.h"
#include "plan/node_view.h"

namespace octet {

struct TensorGemm {
  enum class Scales : uint8_t { one, rows, blocks };

  const TensorSums* rule = nullptr;
  SumMode mode = SumMode::one_chain;
  // Beside the sums, those of decoded factors being in them; blocks: BlockPair::line_and_square.
  Scales scales = Scales::one;
  Dtype factors = Dtype::bf16;  // 8-bit codes, each its own, or what both are decoded to
};

// True if a kernel of its own makes a GEMM of one or two rows
// (src/backends/cuda/kernels/gemm/gemm_few_rows.cu).
bool has_few_rows(const Graph& graph, const Node& node);

// Nothing where the sums have no rule: f32 factors, one or two rows, which a kernel of their own
// adds in f32, scales of 1 x 128 on both sides, which the library's algorithms multiply with in
// different orders, f32 scales of other blocks, addends beside scales of rows, other capabilities.
std::optional<TensorGemm> tensor_gemm(const NodeView& view, int capability);

}  // namespace octet
