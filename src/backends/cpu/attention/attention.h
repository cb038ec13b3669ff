// Attention with grouped heads. Source: Vaswani et al. 2017; the backward recomputes the softmax
// from its log-sum-exp (Dao et al. 2022).
//   S = scale Q K^T + bias    P = softmax(S)    O = P V    lse = log sum exp S
//   With a softcap, and then without a bias, S = softcap tanh(scale Q K^T / softcap).
//   D = rowsum(dO * O)    dV = P^T dO    dS = P * (dO V^T - D)
//   dQ = scale dS K    dK = scale dS^T Q, dS times 1 - tanh^2 of capped scores
//   dbias = dS, summed over what the bias repeats
// Head h reads kv head h / (heads / kv_heads); query i stands at t = i + kv_len - q_len; causal: it
// sees keys j <= t, with a window w the last w of those; a full mask's w: t - w < j < t + w.
// With key_begins or key_ends [batch * q_len] it sees those in [key_begins[i], key_ends[i]) of
// them; neither falls within a sequence. Rows whose keys no others see (a document, the text before
// padding) have the bits that they have on their own.
// With positions [batch * q_len] (forward) the keys are a cache with room for kv_len, of which
// query i sees those j <= positions[i].
//   q, o, dout, dq: [batch * q_len, heads * head_size]
//   k, v, dk, dv: [batch * kv_len, kv_heads * head_size]    lse: [batch, heads, q_len] f32
//   all but lse of one storage type, f32 or bf16, and dense
//   bias, dbias: [1 or batch, 1 or heads, 1 or q_len, kv_len], f32 or bf16, dense; dbias is summed
//   in f32 in the order of sequences, then heads, then queries
// Softmax and sums in f32; with bf16 storage, products in bf16 where the machine is fast at it (P
// and dS rounded to bf16 for their products), else in f32. A query that sees no key gets O = 0 and
// lse = -Inf. NaN and Inf propagate. Same bits for any number of threads. Scratch grows linearly
// with the sequence; masked blocks are skipped.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "backends/cpu/common/operand.h"
#include "ir/attr_enums.h"

namespace octet::cpu {

// given: every launch comes with key_begins, key_ends or both.
enum class KeyRanges : uint8_t { none, given };
enum class BiasGradient : uint8_t { no, yes };

// The axes of 1 repeat.
struct AttentionBias {
  int64_t batch = 1, heads = 1, q_len = 1;
  Dtype dtype = Dtype::f32;
  BiasGradient gradient = BiasGradient::no;
};

struct AttentionSpec {
  int64_t batch = 1, q_len = 0, kv_len = 0;
  int64_t heads = 1, kv_heads = 1, head_size = 0;
  AttentionMask mask = AttentionMask::causal;
  int64_t window = 0;  // 0: none
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none; without a bias
  Dtype dtype = Dtype::f32;
  KeyRanges ranges = KeyRanges::none;
  std::optional<AttentionBias> bias = std::nullopt;
};

struct AttentionArgs {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void* o = nullptr;
  float* lse = nullptr;                 // optional
  const int32_t* key_begins = nullptr;  // optional, as all below
  const int32_t* key_ends = nullptr;
  const int32_t* positions = nullptr;  // without ranges
  const void* bias = nullptr;
  void* scratch = nullptr;  // scratch_bytes(), aligned to 64 bytes
};

// Prepared once for a shape; throws invalid_argument where it is not possible. launch allocates
// nothing.
class AttentionForward {
 public:
  AttentionForward(const AttentionSpec& spec, int n_threads);
  size_t scratch_bytes() const;
  void launch(const AttentionArgs& args, ThreadPool& pool) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // of copies too: launch functions are copied
};

struct AttentionBackwardArgs {
  const void *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr, *dout = nullptr;
  const float* lse = nullptr;
  const int32_t* key_begins = nullptr;  // as forward
  const int32_t* key_ends = nullptr;
  const void* bias = nullptr;
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;  // none overlaps an input
  void* dbias = nullptr;                             // in the bias's type
  void* scratch = nullptr;
};

// A tile is one kv head of one sequence; with a bias's gradient all that add to the same of it.
class AttentionBackward {
 public:
  AttentionBackward(const AttentionSpec& spec, int n_threads);
  size_t scratch_bytes() const;
  void launch(const AttentionBackwardArgs& args, ThreadPool& pool) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // of copies too: launch functions are copied
};

}  // namespace octet::cpu
