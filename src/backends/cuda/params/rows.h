// Kernels over the rows of matrices [rows, cols]: norms, activations, rotary embedding, biases.
// The equations stand in ir/ops/{norm,activation,rope,dot,quantize_layers}.cpp. f32 inside, one
// rounding to nearest even on store; codes are formats/quantize.h's arithmetic, bit for bit. Sums
// have an order that the shape alone fixes: no floating-point atomics, same bits on every run. NaN
// and Inf stay in their row, and reach column sums. Any size, empty ones included.
//
// Fast where cols is a multiple of 16 (norms: and at most kFastCols) and types go together: all
// f32, all bf16, or codes e4m3 in groups of 16 with bf16 scales and bf16 for the rest. Otherwise
// element by element, in the same arithmetic.
//
// Operands and results are named by their slot (ir/ops/slots.h), kAbsent where there is none. The
// plan chooses a kernel's form and what is launched; the module launches what it is handed.
#pragma once

#include <cstdint>

#include "backends/cuda/params/row_kernels.h"
#include "formats/dtype.h"

namespace octet {
enum class RowLayer : uint8_t;  // math/row_layers.h; {} is an RMSNorm
}  // namespace octet

namespace octet::cuda {

inline constexpr int8_t kAbsent = -1;

// A matrix operand: f32, bf16 or fp16; or codes (e4m3, e5m2, hif8) with scales in groups along the
// rows, the last of a row may be shorter, or with one scale.
struct RowOperand {
  int8_t at = kAbsent, scales_at = kAbsent;
  Dtype dtype = Dtype::bf16, scales = Dtype::bf16;
  int32_t group = 0;  // 0: unquantized; kOneGroup: one scale
};
inline constexpr int32_t kOneGroup = -1;
// A vector [cols] or a result of any shape, in f32, bf16 or fp16.
struct UnquantizedArg {
  int8_t at = kAbsent;
  Dtype dtype = Dtype::bf16;
};

// Codes of a layer's result with one scale per tensor. Either the scale is an operand, or the
// kernel makes it from the amax of the f32 result, or, where a history [n] of f32 is given and its
// maximum is not 0, from that; the history then moves on. Without padding's help: transposed codes
// are [cols, padded_rows], zero codes behind the last row.
struct CodesArg {
  int8_t rows_at = kAbsent, transposed_at = kAbsent;
  int8_t given_at = kAbsent, history_at = kAbsent;                          // operands
  int8_t scale_at = kAbsent, flag_at = kAbsent, next_history_at = kAbsent;  // results
  Dtype dtype = Dtype::e4m3;
  int32_t n_history = 0;
  float target = 448;  // amax is mapped to it
  float limit = 0;     // QuantizeAttrs::limit, with a given scale
  int32_t reserved = 0;
  int64_t padded_rows = 0;
};

// Codes of an operand, e4m3 in groups of 16 with bf16 scales, that are results too.
struct KeptArg {
  int8_t codes_at = kAbsent, scales_at = kAbsent;
};
inline constexpr float kKeptTarget = 448;

// rms_norm, layer_norm, gated_act and gelu, and each with its quantizer: either y or codes are
// results. x is the gate of a gated activation. mean and rstd [rows] are f32, written where they
// are results. Scratch: layer_scratch_bytes(rows).
struct RowLayerParams {
  int64_t rows = 0, cols = 0;
  RowLayer layer = {};
  int8_t mean_at = kAbsent, rstd_at = kAbsent;
  bool quantized = false;
  float eps = 1e-5f;
  RowOperand x, up;
  UnquantizedArg weight, bias, y;
  int8_t known_mean_at = kAbsent, known_rstd_at = kAbsent;  // operands, where they are given
  KeptArg kept_x, kept_up;  // of activations of bf16 with codes of e4m3, cols a multiple of 16
  bool generic = false;     // element by element, whatever the types
  // Launches, in order: choose_passes() in target/choose/rows.h.
  Form form = Form::any;
  Out out = Out::any;
  uint8_t n_passes = 0;
  CodesArg codes;
  LayerPass passes[2] = {};
};

// Results: amax f32 and flag bool, of what the kernel stores. Scratch, first: u32 for each block.
struct AmaxArg {
  int8_t amax_at = kAbsent, flag_at = kAbsent;
};

// rms_norm_grad, layer_norm_grad: dy, x, mean, rstd, weight, addend -> dx + addend, and dw, db with
// a weight; amax of dx. dx may lie where the addend lies. Scratch: with amax
// amax_arg_scratch_bytes(), then norm_grad_scratch_bytes.
struct NormGradParams {
  int64_t rows = 0, cols = 0;
  RowLayer layer = {};
  int8_t mean_at = kAbsent, rstd_at = kAbsent;
  bool generic = false;
  RowOperand dy, x;
  UnquantizedArg weight, addend, dx, dw, db;
  AmaxArg amax;
  Form form = Form::any;
  RowKernel kernel = RowKernel::norm_grad_any;
  uint8_t reserved[6] = {};
};

// gated_act_grad: dy, gate, up -> dgate, dup; gelu_grad: dy, x -> dx (first). Results may lie where
// operands of their type lie. Scratch, with amax: amax_arg_scratch_bytes().
struct ActGradParams {
  int64_t rows = 0, cols = 0;
  RowLayer layer = {};
  bool generic = false;
  RowOperand dy, x, up;
  UnquantizedArg first, second;
  AmaxArg amax;
  Form form = Form::any;
  RowKernel kernel = RowKernel::act_grad_any;
};

// gated_act_grad_quantize: dy bf16; gate and up both bf16, or both codes e4m3 in groups of 16 with
// bf16 scales; cols a multiple of 16; codes e4m3 or e5m2 of the gradients as bf16 has them. `codes`
// of dgate. Scratch: layer_scratch_bytes(0).
struct GradCodesParams {
  int64_t rows = 0, cols = 0;
  RowOperand dy, x, up;
  CodesArg codes;
  int8_t second_rows_at = kAbsent, second_transposed_at = kAbsent;  // of dup
  Form form = Form::bf16;                                           // of gate and up; or groups
  bool whole = false;  // all tiles lie within the matrix
  uint8_t n_passes = 0;
  uint8_t reserved[3] = {};
  Pass passes[2] = {};
};

// rope: x [rows, heads * head_dim], i32 positions [rows], any non-negative ones. Cosine and sine of
// f64(position) * f64(frequency) in f64, rounded once to f32, as the CPU's tables have them. Behind
// the parameters: the bits of head_dim / 2 frequencies (f64, ir/ops/rope.h). Scratch, with amax:
// amax_arg_scratch_bytes().
inline constexpr int kMaxRopePairs = 256;
struct RopeParams {
  int64_t rows = 0;
  int32_t heads = 1, head_dim = 2;
  bool inverse = false;
  AmaxArg amax;
  UnquantizedArg x, y;
  bool is_any = false;  // rope_any; else rope_short
};

// bias_add: x + bias[cols]; y may be x. column_sum: y[c] = sum_r x[r, c] (bias absent), scratch
// column_sum_scratch_bytes.
struct BiasParams {
  int64_t rows = 0, cols = 0;
  UnquantizedArg x, bias, y;
  bool is_short = false;  // eights of one type of two bytes
  int8_t reserved = 0;
};

inline constexpr int64_t kFastCols = 8192;
// Blocks whose partial results one kernel leaves to the next, at most: one wave of a large GPU.
// More of them where rows, and with them blocks, are short.
inline constexpr int64_t kRowBlocks = 1056;
inline constexpr int64_t kGradBlocks = 264;
inline constexpr int64_t kSumParts = 132;

constexpr int64_t row_blocks(int64_t n_pieces, int64_t most) {
  return n_pieces < 1 ? 1 : n_pieces < most ? n_pieces : most;
}
// One wave: as many blocks of each multiprocessor as it holds.
constexpr int64_t wave_blocks(int64_t n_pieces, int64_t per_sm, int64_t n_sm) {
  const int64_t wave = per_sm * n_sm;
  return row_blocks(n_pieces, wave < kRowBlocks ? wave : kRowBlocks);
}
constexpr int64_t grad_blocks(int64_t rows, int64_t cols) {
  return row_blocks(rows, cols > 2048   ? kGradBlocks
                          : cols > 1024 ? 2 * kGradBlocks
                                        : 4 * kGradBlocks);
}

// u32: AmaxArg's, of a kernel of kRowBlocks blocks at most.
constexpr int64_t amax_arg_scratch_bytes() {
  return 4 * kRowBlocks;
}
// f32: the history's maximum, a partial amax per block, then mean and rstd of every row.
inline constexpr int64_t kLayerPartials = 1088;
static_assert(kLayerPartials > kRowBlocks);
constexpr int64_t layer_scratch_bytes(int64_t rows) {
  return 4 * (kLayerPartials + 2 * rows);
}
// f32 [n_sums, blocks, cols]: the sums of each block's rows, of dw and then of db.
constexpr int64_t norm_grad_scratch_bytes(int64_t rows, int64_t cols, int n_sums) {
  return 4 * n_sums * grad_blocks(rows, cols) * cols;
}
// f32 [kSumParts, cols]: parts of the rows, as many as keep a large GPU busy with the columns'
// blocks.
constexpr int64_t column_sum_scratch_bytes(int64_t cols) {
  return 4 * kSumParts * cols;
}

}  // namespace octet::cuda
