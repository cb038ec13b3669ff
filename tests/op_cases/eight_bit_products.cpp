// Cases of products of quantized factors, and of how those lie.

#include "op_cases/families.h"

namespace octet::op_cases {

// Factors that lie transposed, and what changes how a matrix lies.
void add_layouts(Cases& all) {
  const OperandCase a = lying_transposed(codes({32, 5})), b = lying_transposed(codes({32, 7}));
  put_typed(all, "gemm_codes_transposed", OpCode::gemm, GemmAttrs{.trans_a = true},
            {a, b, none(), scales({}), scales({})});
  put_typed(all, "gemm_codes_transposed_b", OpCode::gemm, GemmAttrs{.role = GemmRole::dgrad},
            {codes({5, 32}), b, tensor({5, 7}), scales({}), scales({})});
  const ResultType by_row = Dtype::e4m3, transposed = by_row.transposed(1);
  const TransposeAttrs same{.perm = {0, 1}}, turned{.perm = {1, 0}};
  put_typed(all, "transpose_to_rows", OpCode::transpose, same, {a}, {by_row});
  put_typed(all, "transpose_from_rows", OpCode::transpose, same, {codes({3, 5})}, {transposed});
  put_typed(all, "transpose_view", OpCode::transpose, turned, {a}, {by_row});
  put_typed(all, "transpose_both", OpCode::transpose, turned, {a}, {transposed});
}

void add_scaled_gemms(Cases& all) {
  for (const bool with_c : {false, true}) {
    put_typed(
        all, with_c ? "gemm_codes_c" : "gemm_codes", OpCode::gemm,
        GemmAttrs{.trans_b = true, .role = GemmRole::forward},
        {codes({5, 32}), codes({7, 32}), with_c ? tensor({5, 7}) : none(), scales({}), scales({})});
  }
  put_typed(all, "gemm_codes_bias", OpCode::gemm,
            GemmAttrs{.trans_b = true, .role = GemmRole::forward},
            {codes({32, 32}), codes({16, 32}), tensor({16}), scales({}), scales({})});
  put_as_others(all, "gemm_codes_stored", OpCode::gemm,
                GemmAttrs{.trans_b = true, .role = GemmRole::forward},
                {codes({5, 32}), codes({7, 32}), none(), scales({}), scales({}), scalar(0.25)});
  put_typed(all, "gemm_codes_mixed", OpCode::gemm,
            GemmAttrs{.trans_b = true, .role = GemmRole::dgrad},
            {codes({3, 16}, Dtype::e5m2), codes({5, 16}), none(), scales({}), scales({})});
}

}  // namespace octet::op_cases
