// The kernels of layers and their gradients, and what they are made for (params/rows.h).
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace octet::cuda {

inline constexpr int kRowChunk = 16;   // elements of a row that a thread takes
inline constexpr int kCodeTile = 128;  // rows and columns of codes that are transposed at one time

// The types of a kernel's operands: all f32; all bf16; all fp16; e4m3 codes in groups of 16 with
// bf16 scales, and bf16 for the others; or whatever the operands say, element by element.
enum class Form : uint8_t { f32, bf16, fp16, groups, any };
// Output of a layer kernel: an unquantized result, or codes of one type; Out::any does both, by
// the arguments' types.
enum class Out : uint8_t { unquantized, e4m3, hif8, any };
OCTET_HOST_DEVICE constexpr bool is_short(Form form) {
  return form == Form::bf16 || form == Form::fp16;
}

// The kernels of layers and their gradients; target/choose/rows.h says what each takes, and names
// them. `_any`: Form::any or Out::any.
enum class RowKernel : uint8_t {
  norm_rows,
  norm_rows_any,
  norm_amax,   // of codes, the amax alone
  norm_once,   // of codes, statistics with amax or codes
  norm_codes,  // codes of codes, with statistics that are there
  act_rows,
  act_rows_any,
  act_amax,    // of codes, by the bounds that their scales are
  gated_rows,  // codes of codes
  layer_tiles,
  layer_tiles_any,
  norm_tiles,  // of codes, as gated_tiles
  gated_tiles,
  norm_grad,
  norm_grad_any,
  act_grad,
  act_grad_any,
  gated_grad_codes,
  gated_grad_tiles,
};

// Work of a pass over the values beside making them.
enum class Pass : int32_t {
  none,    // neither amax nor codes
  given,   // codes with the scale that is an operand
  first,   // amax; codes too where the history gives a scale
  second,  // the scale from the first pass's amax; codes unless the first made them
};

// One launch of a layer.
struct LayerPass {
  Pass pass = Pass::none;
  RowKernel kernel = RowKernel::norm_rows;
  bool known = false;          // mean and rstd are given, not made
  bool keeps = true;           // groups of operands
  bool bounded = false;        // the first pass goes by bounds: the second finds codes of NaN
  bool first_encodes = false;  // where the history gives a scale
  uint8_t reserved[3] = {};
};

}  // namespace octet::cuda
