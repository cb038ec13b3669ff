// GEMMs that read codes beside 16-bit rows (weight-only quantization).
#pragma once

#include "formats/table.h"
#include "ir/graph.h"
#include "ir/ops/slots.h"

namespace octet {

inline bool reads_weight_codes(const Graph& graph, const Node& gemm) {
  const Dtype a = graph.type(gemm.in(Gemm::a)).dtype, b = graph.type(gemm.in(Gemm::b)).dtype;
  return (a == Dtype::bf16 || a == Dtype::fp16) && is_gemm_operand(b);
}

}  // namespace octet
