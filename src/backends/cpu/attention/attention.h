// Attention with grouped heads. Source: Vaswani et al. 2017; the backward recomputes the softmax
// from its log-sum-exp (Dao et al. 2022).
//   S = scale Q K^T    P = softmax(S)    O = P V    lse = log sum exp S
//   D = rowsum(dO * O)    dV = P^T dO    dS = P * (dO V^T - D)
//   dQ = scale dS K    dK = scale dS^T Q
// Head h reads kv head h / (heads / kv_heads); causal: query i sees keys j <= i + kv_len - q_len,
// with a window w the last w of those.
// With doc_starts [batch * q_len], each token's document's first position in its sequence, a query
// sees keys of its document alone: the bits are those of the document on its own.
// With positions [batch * q_len] (forward) the keys are a cache with room for kv_len, of which
// query i sees those j <= positions[i].
//   q, o, dout, dq: [batch * q_len, heads * head_size]
//   k, v, dk, dv: [batch * kv_len, kv_heads * head_size]    lse: [batch, heads, q_len] f32
//   all but lse of one storage type, f32 or bf16, with row strides in elements
// Softmax and sums in f32; with bf16 storage, products in bf16 where the machine is fast at it (P
// and dS rounded to bf16 for their products), else in f32. A query that sees no key gets O = 0 and
// lse = -Inf. NaN and Inf propagate. Same bits for any number of threads. Scratch grows linearly
// with the sequence; masked blocks are skipped.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "backends/cpu/common/operand.h"

namespace octet::cpu {

enum class AttentionMask { none, causal };
// isolated: every launch comes with doc_starts.
enum class AttentionDocuments { none, isolated };

struct AttentionSpec {
  int64_t batch = 1, q_len = 0, kv_len = 0;
  int64_t heads = 1, kv_heads = 1, head_size = 0;
  AttentionMask mask = AttentionMask::causal;
  int64_t window = 0;  // of a causal mask; 0: none
  float scale = 1.0f;
  Dtype dtype = Dtype::f32;
  std::optional<Dtype> compute = std::nullopt;  // f32 or bf16; unset: the fastest for dtype
  AttentionDocuments documents = AttentionDocuments::none;
};

// A matrix of heads: row stride in elements, 0: dense.
struct HeadsIn {
  const void* data = nullptr;
  int64_t stride = 0;
};
struct HeadsOut {
  void* data = nullptr;
  int64_t stride = 0;
};

struct AttentionArgs {
  HeadsIn q = {}, k = {}, v = {};
  HeadsOut o = {};
  float* lse = nullptr;                 // optional
  const int32_t* doc_starts = nullptr;  // optional; q_len = kv_len, causal
  const int32_t* positions = nullptr;   // optional; without doc_starts
  void* scratch = nullptr;              // scratch_bytes(), aligned to 64 bytes
};

// Prepared once for a shape; throws invalid_argument where it is not possible. launch allocates
// nothing.
class AttentionForward {
 public:
  AttentionForward(const AttentionSpec& spec, int n_threads);
  ~AttentionForward();
  AttentionForward(AttentionForward&&) noexcept;
  AttentionForward& operator=(AttentionForward&&) noexcept;
  size_t scratch_bytes() const;
  void launch(const AttentionArgs& args, ThreadPool& pool) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct AttentionBackwardArgs {
  HeadsIn q = {}, k = {}, v = {}, o = {}, dout = {};
  const float* lse = nullptr;
  const int32_t* doc_starts = nullptr;  // as forward
  HeadsOut dq = {}, dk = {}, dv = {};   // none overlaps an input
  void* scratch = nullptr;
};

// A tile is one kv head of one sequence.
class AttentionBackward {
 public:
  AttentionBackward(const AttentionSpec& spec, int n_threads);
  ~AttentionBackward();
  AttentionBackward(AttentionBackward&&) noexcept;
  AttentionBackward& operator=(AttentionBackward&&) noexcept;
  size_t scratch_bytes() const;
  void launch(const AttentionBackwardArgs& args, ThreadPool& pool) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octet::cpu
