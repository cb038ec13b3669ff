// Parameters of the update's kernels. Equations and order: ir/ops/update.cpp, math/adamw.h.
//
// global_norm: operands clip (f32[]), then the gradients (f32, bf16 or fp16), which the tail lists:
// two entries each, elements and dtype. Results norm f32[], grad_scale f32[], found_nonfinite
// bool[]. The squares of kNormChunk elements make one double, those doubles are summed in a fixed
// order: deterministic. Scratch: norm_scratch_bytes.
//
// adamw_step: the operands and results of the op, by slot. Everything that changes from step to
// step (lr, corrections, grad_scale, found_nonfinite, attempt) is read on the device; with
// found_nonfinite each result is a copy of its operand. Any result may lie on its operand. No
// scratch. With amax, amax and nonfinite are of the weight as it is afterwards.
#pragma once

#include <cstdint>

#include "formats/dtype.h"

namespace octet::cuda {

struct GlobalNormParams {
  int64_t n_gradients = 0;
};

inline constexpr int64_t kNormChunk = 1 << 15;
constexpr int64_t norm_chunks(int64_t n_elems) {
  return (n_elems + kNormChunk - 1) / kNormChunk;
}
inline constexpr int64_t kTensorsPerLaunch = 128;
// One double a chunk.
constexpr int64_t norm_scratch_bytes(int64_t n_chunks) {
  return 8 * (n_chunks > 0 ? n_chunks : 1);
}

enum class WeightStore : uint8_t {
  plain,       // the weight is the master; a narrow one rounds to nearest even
  remainder,   // bf16 and an i16 remainder
  master,      // an f32 master, and the weight rounded to nearest even
  stochastic,  // bf16 alone, rounded stochastically
};

// How a moment is stored (math/moment.h). v in fp16 has a scale in the place of metadata and is
// stored as store_scaled does, with keeps_positive, by words of the step's stream and seed.
struct MomentParams {
  Dtype dtype = Dtype::f32;
  bool expand = false;
  bool stochastic = false;
};

// The kernels of the step, in the order of preference: rows/update.h.
enum class AdamwRow : uint8_t { expanded, groups, wide, generic };

struct AdamwParams {
  int64_t n = 0;        // elements
  int64_t group = 128;  // of codes
  int64_t first = 0;    // the place of element 0 in the parameter, for what is drawn
  uint64_t stream = 0;  // hash of the parameter's name
  uint32_t seed = 0;
  float beta1 = 0, beta2 = 0, rest1 = 0, rest2 = 0;  // math/adamw.h
  float eps = 0, weight_decay = 0;
  Dtype w = Dtype::f32, g = Dtype::f32;
  WeightStore store = WeightStore::plain;
  bool exact = false;  // powers with the same bits everywhere
  bool amax = false;
  MomentParams m = {}, v = {};
  AdamwRow row = AdamwRow::expanded;  // the first that may take elements
  uint8_t reserved[4] = {};
};

// A step by the kernels that take it, each as far as its tiles are whole: adamw_pieces() in
// rows/update.h.
struct AdamwPiece {
  int64_t begin = 0, end = 0;  // elements
  AdamwRow row = AdamwRow::generic;
  uint8_t reserved[7] = {};
};
struct AdamwPieces {
  int64_t n = 0;
  AdamwPiece all[4] = {};

  // True if the step gives the weight's amax.
  constexpr bool give_amax() const { return n == 1 && all[0].row == AdamwRow::expanded; }
};
struct AdamwStepParams {
  AdamwParams step = {};
  AdamwPieces pieces = {};
};
// Elements of a launch of `expanded` or `groups`, at most.
inline constexpr int64_t kMaxRowElements = int64_t{1} << 31;

// store_scaled: FP16 q[i] = x[i] / scale, rounded by word first + i (math/master.h): the bits of
// the CPU's.
struct StoreScaledParams {
  int64_t n = 0, first = 0;
  uint64_t stream = 0;
  uint32_t seed = 0;
  bool keeps_positive = false;
  uint8_t reserved[3] = {};
};

// load_state, store_state: the operands and results of the op, by slot. `state`: how it is stored,
// `bytes` an element; group: of 8-bit data, else 0. A step that is skipped copies the old bytes.
struct StateParams {
  int64_t n = 0, group = 0, first = 0;
  uint64_t stream = 0;
  uint32_t seed = 0;
  Dtype state = Dtype::f32;
  bool second = false, expand = false, stochastic = false, exact = false;
  bool has_remainder = false;  // i16, beside BF16
  uint8_t bytes = 4;
  uint8_t reserved[5] = {};
};

}  // namespace octet::cuda
