// Launches of embedding, cross-entropy, windows of pictures and batch norms: they have no choice.
#pragma once

#include "backends/cuda/params/loss.h"
#include "backends/cuda/params/pictures.h"
#include "backends/cuda/target/choose/kernel_names.h"

namespace octet::cuda {

enum class Direction : uint8_t { forward, backward };

inline KernelNames launches_of(Direction direction, const EmbeddingParams& p) {
  if (direction == Direction::forward)
    return p.tokens * p.cols == 0 ? KernelNames{} : KernelNames{"look_up"};
  if (p.tokens * p.vocabulary * p.cols == 0) return {};
  KernelNames names;
  for (int digit = 0; digit < embedding_digits(p.vocabulary); ++digit)
    names.insert(names.end(), {"count_digits", "sum_counts", "place_digits"});
  names.insert(names.end(), {"sum_runs", "join_runs"});
  return names;
}

inline KernelNames launches_of(Direction direction, const CrossEntropyParams& p) {
  if (direction == Direction::backward)
    return p.rows == 0 ? KernelNames{} : KernelNames{"cross_entropy_grads"};
  return p.rows == 0 ? KernelNames{"sum_loss"} : KernelNames{"cross_entropy_rows", "sum_loss"};
}

inline KernelNames launches_of(Direction direction, const UnfoldParams& p) {
  const int64_t n_windows = int64_t{p.rows.n_windows} * p.columns.n_windows;
  const int64_t n_pixels = int64_t{p.rows.picture} * p.columns.picture;
  const bool unfolds = direction == Direction::forward;
  if (p.n_pictures * p.channels * (unfolds ? n_windows : n_pixels) == 0) return {};
  return {unfolds ? "unfold_rows" : "fold_pixels"};
}

inline KernelNames launches_of(Direction direction, const DepthwiseParams& p) {
  const int64_t n_windows = int64_t{p.rows.n_windows} * p.columns.n_windows;
  const int64_t n_pixels = int64_t{p.rows.picture} * p.columns.picture;
  if (p.n_pictures * p.channels * (p.is_gradient ? n_pixels : n_windows) == 0) return {};
  if (direction == Direction::forward) return {"depthwise_pixels"};
  return {"depthwise_row_sums", "join_depthwise"};
}

inline KernelNames launches_of(const BatchNormParams& p) {
  if (p.rows * p.cols == 0) return {};
  KernelNames names;
  if (p.own) names.emplace_back("block_sums");
  names.emplace_back("statistics");
  if (p.y.at != kAbsent) names.emplace_back("norm_elements");
  return names;
}
inline KernelNames launches_of(const BatchNormGradParams& p) {
  if (p.rows * p.cols == 0) return {};
  KernelNames names = {"block_sums", "gradient_numbers"};
  if (p.dx.at != kAbsent) names.emplace_back("norm_elements");
  return names;
}

}  // namespace octet::cuda
