// Which kernels reductions launch: pure functions of the parameters.
#pragma once

#include "backends/cuda/params/reduce.h"
#include "backends/cuda/target/choose/kernel_names.h"

namespace octet::cuda {

constexpr void choose_kernels(DotParams&) {}
constexpr void choose_kernels(ReduceParams& p) {
  p.is_across = p.gone.rank == 0 || p.kept.rank == 0 || p.gone.stride[p.gone.rank - 1] == 1;
}

inline KernelNames launches_of(const DotParams& p) {
  if (p.batch * p.m * p.n == 0) return {};
  return {"dot_tiles"};
}
inline KernelNames launches_of(const ReduceParams& p) {
  if (p.n_kept == 0) return {};
  KernelNames names = {p.is_across ? "reduce_across" : "reduce_along"};
  if (reduce_pieces(p) > 1) names.emplace_back("join_pieces");
  return names;
}

}  // namespace octet::cuda
