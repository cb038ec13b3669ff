#include "backends/cuda/target/choose/update.h"

#include "backends/cuda/rows/update.h"
#include "formats/table.h"

namespace octet::cuda {
namespace {

// Values in runs of eight, which begin at a block of words that a 32-bit counter finds, and the
// rest one by one.
KernelNames value_launches(int64_t n, int64_t first) {
  const bool takes_eights = first % 4 == 0 && (first + n) / 4 < int64_t{1} << 32;
  const int64_t n_eights = takes_eights ? n / 8 * 8 : 0;
  return repeated("move_values", (n_eights != 0 ? 1 : 0) + (n_eights != n ? 1 : 0));
}

}  // namespace

// Addresses of a plan are multiples of kAlignment, and shards begin at multiples of 256 elements.
void choose_kernels(AdamwStepParams& p) {
  p.pieces = adamw_pieces(p.step, true);
}

KernelNames launches_of(const AdamwStepParams& p) {
  KernelNames names;
  for (int64_t i = 0; i < p.pieces.n; ++i) {
    const AdamwPiece& piece = p.pieces.all[i];
    if (piece.row == AdamwRow::generic || piece.row == AdamwRow::wide) {
      names.emplace_back(piece.row == AdamwRow::wide ? "step_wide" : "step_groups");
      continue;
    }
    for (int64_t first = 0; first < piece.end; first += kMaxRowElements)
      names.emplace_back("step_tiles");
  }
  if (p.step.amax && !p.pieces.give_amax() && p.step.n != 0) names.emplace_back("weight_amax");
  return names;
}

KernelNames norm_launches(std::span<const int64_t> list) {
  int64_t n_tensors = 0;
  for (size_t i = 0; i < list.size(); i += 2) n_tensors += list[i] > 0 ? 1 : 0;
  KernelNames names = repeated("sum_chunks", launches_for(n_tensors, kTensorsPerLaunch));
  names.emplace_back("finish_norm");
  return names;
}

KernelNames load_launches(const StateParams& p) {
  if (is_moment_format(p.state)) return {"load_codes"};
  return value_launches(p.n, p.first);
}
KernelNames launches_of(const StoreScaledParams& p) {
  return value_launches(p.n, p.first);
}

}  // namespace octet::cuda
