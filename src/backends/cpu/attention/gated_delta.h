// The gated delta rule and its gradient: ir/ops/gated_delta.cpp has the equations. Each text is cut
// in chunks of 32 tokens, from each document's first token on, so that a document has the bits that
// it has on its own. Within a chunk, of tokens i and j with G the sums of log_decay from its first
// token on, D_ij = exp(G_i - G_j) for j <= i and S the state before it:
//   N_i = v_i - e^G_i k_i S - sum over j < i of D_ij (k_i k_j) U_j,   U_i = beta_i N_i
//   o_i = e^G_i q_i S + sum over j <= i of D_ij (q_i k_j) U_j
//   S' = e^G_last S + sum over j of e^(G_last - G_j) k_j^T U_j
// The gradient makes N and the states before chunks again, and goes through the chunks backward.
// f32 or bf16 storage for each operand and result; inside f32. Same bits for any number of threads
// and on every vector target; NaN and Inf propagate within their head. Scratch of the gradient
// grows linearly with a text: a state every 32 tokens.
#pragma once

#include "backends/cpu/common/operand.h"

namespace octet::cpu {

// Rows are batch * seq tokens; value head h reads key head h / (heads / key_heads).
struct GatedDeltaShape {
  int64_t batch = 0, seq = 0, key_heads = 1, heads = 1, key_dim = 0, value_dim = 0;
};

// Operands as the op's. The scratch is of gated_delta_floats, 64-byte aligned.
struct GatedDeltaCall {
  In q = {}, k = {}, v = {}, log_decay = {}, beta = {};
  const int32_t* doc_starts = nullptr;  // optional
  In state = {};                        // optional, with next_state
  Out o = {}, next_state = {};
  float* scratch = nullptr;
};
int64_t gated_delta_floats(const GatedDeltaShape& shape, int n_threads);
void gated_delta(const GatedDeltaShape& shape, const GatedDeltaCall& call, ThreadPool& pool);

// `forward` without o and states; its scratch is of gated_delta_grad_floats.
struct GatedDeltaGradCall {
  GatedDeltaCall forward;
  In dout = {};
  Out dq = {}, dk = {}, dv = {}, dlog_decay = {}, dbeta = {};
};
int64_t gated_delta_grad_floats(const GatedDeltaShape& shape, int n_threads);
void gated_delta_gradient(const GatedDeltaShape& shape, const GatedDeltaGradCall& call,
                          ThreadPool& pool);

}  // namespace octet::cpu
