// Packs 8-bit codes straight into what the tile products read in bf16: panels of pairs (pack.h,
// interleave 2, width 64) and dense rows. The decoded values never stand anywhere else. Every
// finite code of e4m3, e5m2 and hif8 is exact in bf16; a NaN keeps its sign.
// Everything runs on the calling thread; the same bits on every vector target but for NaN's sign.
#pragma once

#include "backends/cpu/gemm/pack.h"

namespace octet::cpu {

inline constexpr int64_t kCodeBlock = 64;  // rows and columns that are packed at once

// Like pack_panel with a panel of kCodeBlock columns; the range begins at a multiple of kCodeBlock
// rows and ends at one, or at the operand's last row.
void pack_code_panel(const MatrixIn& codes, const PanelLayout& layout, const PanelRange& range,
                     bool last, uint16_t* dst);

// dst[r - row_begin][k - k_begin] = op(A)[r][k] for k in [k_begin, k_end), 0 from there up to
// `end`; rows at `stride` elements. k_begin is a multiple of kCodeBlock, end - k_begin of 32 and
// less than 32 above k_end - k_begin.
struct CodeRows {
  int64_t row_begin = 0, row_end = 0, k_begin = 0, k_end = 0, end = 0, stride = 0;
};
void pack_code_rows(const MatrixIn& codes, const CodeRows& range, uint16_t* dst);

}  // namespace octet::cpu
