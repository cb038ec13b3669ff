// Many tensors in one launch (kernels/update_many.h). Where one warp works on tile after tile of
// one tensor in adamw_expanded.cu, it goes from row to row here; a tile's work is the same code.
#include "backends/cuda/kernels/adamw/adamw_many.h"

#include <algorithm>

#include "backends/cuda/kernels/adamw/adamw_store.cuh"
#include "backends/cuda/kernels/adamw/adamw_walk.cuh"

namespace octet::cuda {
namespace {

static_assert(kExpandedTile == kTile);

// What of a row is not a whole tile: groups by the tile's code, and the rest, which is no group.
template <WeightStore S, Dtype G>
__device__ __noinline__ void step_rest(const UpdateRow& row, const char* tables) {
  const AdamwCall& call = row.call;
  if (end_of_whole(call) < call.end) step_last_tile<S, G, NoTop>(call, row.keys, tables);
  if (call.end < call.p.n) step_group<Formats::ieee>(call, call.end, call.p.n - call.end);
}

// What all tiles of a row have in common.
struct RowShared {
  StepConstants c;
  DrawShared draws;
};
using Walk = RowWalk<RowShared>;

template <WeightStore S>
__device__ __forceinline__ void prepare_row(Walk::Slot& slot) {
  const AdamwCall& call = slot.row.call;
  const Place p = place_of<S>(call, slot.row.keys, nullptr, constants_of(call));
  if (threadIdx.x % 32 == 0) slot.beside = {p.c, p.draws};
  __syncwarp();
}

// A warp's tile: the first element in its row; a tile that is not whole is not prefetched.
struct At {
  const Walk::Slot* slot;
  uint32_t first;
  bool is_whole;
};
__device__ __forceinline__ At at_of(const Walk& walk, uint32_t tile, bool is_there) {
  const UpdateRow& row = walk.slot().row;
  const uint32_t first = (tile - row.first_tile) * kTile;
  return {&walk.slot(), first, is_there && first < end_of_whole(row.call)};
}

template <WeightStore S, Dtype G>
__global__ void __launch_bounds__(kThreads<S>, 1)
    step_rows(const __grid_constant__ UpdateRows list) {
  extern __shared__ __align__(16) char shared[];
  fill_tables(shared);
  __syncthreads();
  const uint32_t stride = gridDim.x * (kThreads<S> / 32), lane = kept(threadIdx.x % 32);
  uint32_t tile = threadIdx.x / 32 * gridDim.x + blockIdx.x;
  if (*list.found_nonfinite != 0 || tile >= list.n_tiles) return;  // no barrier follows
  Walk walk(shared + kTableBytes + threadIdx.x / 32 * Walk::kBytes);
  Staging<S, G, kThreads<S>> staging(shared + kTableBytes + kThreads<S> / 32 * Walk::kBytes);
  Raw<S, G> raw;
  NoTop top;
  const uint32_t offset = kept(offset_of(lane));
  const auto ask = [&](const At& at) {
    if constexpr (kStaged<S>) {
      if (at.is_whole) staging.announce(at.slot->row.call, at.first + offset);
      end_of_bringing();
    } else {
      if (at.is_whole) load(at.slot->row.call, at.first + offset, raw);
    }
  };
  walk.go(list, tile);
  prepare_row<S>(walk.slot());
  At now = at_of(walk, tile, true);
  ask(now);
  while (true) {
    tile += stride;
    const bool goes_on = tile < list.n_tiles;
    if (goes_on && walk.go(list, tile)) prepare_row<S>(walk.slot());
    const At next = at_of(walk, tile, goes_on);
    if (now.is_whole) {
      const UpdateRow& row = now.slot->row;
      const Place p{.call = &row.call,
                    .keys = &row.keys,
                    .tables = shared,
                    .c = now.slot->beside.c,
                    .draws = now.slot->beside.draws,
                    .first_draw = static_cast<uint32_t>(row.call.origin / 4),
                    .lane = lane,
                    .offset = offset};
      if constexpr (kStaged<S>) {
        staging.take(next.slot->row.call, next.is_whole, next.first + offset, raw);
      }
      step_tile<true>(p, raw, now.first, top, [&] {
        if constexpr (!kStaged<S>) ask(next);
      });
    } else {
      step_rest<S, G>(now.slot->row, shared);
      __syncwarp();
      ask(next);
    }
    if (!goes_on) return;
    now = next;
  }
}

template <WeightStore S, Dtype G>
void launch_rows(const UpdateRows& list, int n_sm, cudaStream_t stream) {
  const auto kernel = step_rows<S, G>;
  constexpr int kBytes = kTableBytes + kThreads<S> / 32 * Walk::kBytes +
                         (kStaged<S> ? Staging<S, G, kThreads<S>>::kBytes : 0);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
        "adamw_step's shared memory");
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(list.n_tiles, n_sm));
  kernel<<<blocks, kThreads<S>, kBytes, stream>>>(list);
  check_launch("adamw_step");
}

template <Dtype G>
void launch_rows_of(const UpdateRows& list, WeightStore store, int n_sm, cudaStream_t stream) {
  switch (store) {
    case WeightStore::remainder:
      return launch_rows<WeightStore::remainder, G>(list, n_sm, stream);
    case WeightStore::stochastic:
      return launch_rows<WeightStore::stochastic, G>(list, n_sm, stream);
    case WeightStore::master:
      return launch_rows<WeightStore::master, G>(list, n_sm, stream);
    case WeightStore::plain:
      return launch_rows<WeightStore::plain, G>(list, n_sm, stream);
  }
}

constexpr int kAnyWarps = 4;
struct Nothing {};
using AnyWalk = RowWalk<Nothing>;

__global__ void __launch_bounds__(kAnyWarps * 32)
    step_any_rows(const __grid_constant__ UpdateRows list) {
  __shared__ __align__(16) char memory[kAnyWarps * AnyWalk::kBytes];
  if (*list.found_nonfinite != 0) return;
  AnyWalk walk(memory + threadIdx.x / 32 * AnyWalk::kBytes);
  const uint32_t stride = gridDim.x * kAnyWarps;
  for (uint32_t tile = blockIdx.x * kAnyWarps + threadIdx.x / 32; tile < list.n_tiles;
       tile += stride) {
    walk.go(list, tile);
    const UpdateRow& row = walk.slot().row;
    const AdamwCall& call = row.call;
    const int64_t first = static_cast<int64_t>(tile - row.first_tile) * call.p.group;
    step_group<Formats::all>(call, first, min(call.p.group, call.p.n - first));
  }
}

}  // namespace

void launch_expanded_many(const UpdateRows& rows, WeightStore store, Dtype gradient, int n_sm,
                          cudaStream_t stream) {
  if (gradient == Dtype::bf16) {
    launch_rows_of<Dtype::bf16>(rows, store, n_sm, stream);
  } else {
    launch_rows_of<Dtype::f32>(rows, store, n_sm, stream);
  }
}

void launch_any_many(const UpdateRows& rows, int n_sm, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(
      std::min<int64_t>(ceil_div(rows.n_tiles, kAnyWarps), int64_t{n_sm} * 16));
  step_any_rows<<<blocks, kAnyWarps * 32, 0, stream>>>(rows);
  check_launch("adamw_step");
}

}  // namespace octet::cuda
