// The step by tiles, for moments in groups of 128: one loop over tiles for every codec of moments
// and store of weights (adamw_codec.cuh, adamw_tile.cuh), of one tensor or of a list of them.
//
// A warp takes a tile while the next is on its way: four groups, eight lanes each, of expanded
// E4M3, which nearly every run has and which is made to need few instructions, since in a training
// step the clock is low; else two groups, sixteen lanes each. The extent of a group goes through
// shuffles; one half of its lanes then finds the metadata of m, the other of v. Tiles with anything
// unusual (NaN, Inf, a negative v, magnitudes near the ends of f32, no learning rate) take
// step_group instead, before anything of them is written.
#include <algorithm>
#include <type_traits>

#include "backends/cuda/kernels/adamw/adamw_common.cuh"
#include "backends/cuda/kernels/adamw/adamw_store.cuh"

namespace octet::cuda {
namespace {

static_assert(kExpandedTile == kTileOf<Codec::expanded> && kGroupPair == kTileOf<Codec::codes>);

// Whether tiles are staged in shared memory, which leaves registers for more warps, or wait in
// registers. Where more bytes come with an element, memory is what takes time, and gives 4 % more
// of them to the latter.
template <Codec C, WeightStore S>
constexpr bool kStaged = (C == Codec::expanded) && (S == WeightStore::stochastic);
template <Codec C, WeightStore S>
constexpr int kThreadsOf = C != Codec::expanded ? 128
                           : kStaged<C, S>      ? 640
                                                : 512;
template <Codec C>  // on one multiprocessor: registers
constexpr int kBlocksOf = C == Codec::expanded ? 1
                          : C == Codec::codes  ? 5
                                               : 4;

// Every thread of every block calls it, after the block's work.
__device__ __forceinline__ void give_amax(const AdamwCall& call) {
  wait_for_previous();
  if (call.amax == nullptr) return;
  __syncthreads();
  GatheredAmax& all = *call.gathered;
  if (threadIdx.x != 0 || !count_block(&all.n_ended, gridDim.x)) return;
  if (call.origin - call.p.first + call.end != call.p.n) return;
  *call.amax = atomicExch(&all.amax, 0u);
  *call.flag = __ldcg(&all.flag);
  all.flag = 0;
}

template <Codec C, WeightStore S, Dtype G>
__global__ void __launch_bounds__(kThreadsOf<C, S>, kBlocksOf<C>)
    step_tiles(const __grid_constant__ AdamwCall call, const __grid_constant__ RoundKeys keys) {
  extern __shared__ __align__(16) char shared[];
  constexpr int kThreads = kThreadsOf<C, S>;
  start_next();
  const uint32_t end = end_of_whole<C>(call), stride = gridDim.x * (kThreads / 32) * kTileOf<C>;
  uint32_t tile = (threadIdx.x / 32 * gridDim.x + blockIdx.x) * kTileOf<C>;
  Raw<C, S, G> raw;
  Staging<Raw<C, S, G>, kThreads> staging(shared + kTableBytes);
  if (const uint32_t i = tile + offset_of<C>(threadIdx.x % 32); tile < end) {
    if constexpr (kStaged<C, S>) {
      staging.prefetch(call, i);
      end_of_bringing();
    } else {
      raw.load(call, i);
    }
  }
  const AdamwConstants k = constants_of(call);
  const uint8_t found_nonfinite = *call.found_nonfinite;
  if constexpr (C == Codec::expanded) {
    fill_tables(shared);
    __syncthreads();
  }
  if (found_nonfinite != 0) {
    if constexpr (kStaged<C, S>) {
      end_of_bringing();
      wait_for_brought();
    }
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const Steps at{thread, call.end, static_cast<int64_t>(gridDim.x) * kThreads};
    if (call.amax != nullptr) note_weights(call, call.w_from, at);
    copy_states(call);
    return give_amax(call);
  }
  const Place p = place_of<C, S>(call, keys, shared, k);
  std::conditional_t<C == Codec::expanded, TopWeight<S>, NoTop> top;
  for (; tile < end; tile += stride) {
    const bool goes_on = tile + stride < end;
    const uint32_t next = tile + stride + p.offset;
    if constexpr (kStaged<C, S>) staging.take(call, goes_on, next, raw);
    const Raw<C, S, G> now = raw;
    const auto ahead = [&] {
      if (!kStaged<C, S> && goes_on) raw.load(call, next);
    };
    if constexpr (C != Codec::expanded) ahead();  // it has fewer warps to wait for each other
    step_tile<true>(p, now, tile, top, [&] {
      if constexpr (C == Codec::expanded) ahead();
    });
  }
  if constexpr (C == Codec::expanded) {
    top.note(call);
    if (tile == end && tile < call.end)
      step_last_tile<S, G, TopWeight<S>>(call, keys, shared).note(call);
  }
  give_amax(call);
}

// f.template operator()<store, gradient>().
template <typename F>
void visit_weights(WeightStore store, Dtype gradient, F&& f) {
  const auto visit = [&]<WeightStore S>() {
    if (gradient == Dtype::bf16) return f.template operator()<S, Dtype::bf16>();
    f.template operator()<S, Dtype::f32>();
  };
  switch (store) {
    case WeightStore::remainder:
      return visit.template operator()<WeightStore::remainder>();
    case WeightStore::stochastic:
      return visit.template operator()<WeightStore::stochastic>();
    case WeightStore::master:
      return visit.template operator()<WeightStore::master>();
    case WeightStore::plain:
      return visit.template operator()<WeightStore::plain>();
  }
}
constexpr int kMaxShared = 227 << 10;  // of a block, on Hopper
template <typename Kernel>
void allow_shared(Kernel* kernel, int n_bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes),
        "adamw_step's shared memory");
}

template <Codec C>
void launch_tiles(const AdamwCall& call, int n_sm, cudaStream_t stream) {
  const RoundKeys keys =
      round_keys(update_stream(call.p.stream, call.p.seed, 0, UpdateDraw::weight));
  visit_weights(call.p.store, call.p.g, [&]<WeightStore S, Dtype G>() {
    constexpr int kThreads = kThreadsOf<C, S>;
    constexpr int kStagedBytes = kStaged<C, S> ? Staging<Raw<C, S, G>, kThreads>::kBytes : 0;
    constexpr int kBytes = C == Codec::expanded ? kTableBytes + kStagedBytes : 0;
    // Of codes a block takes a tile a warp at least.
    constexpr int64_t kTiles = C == Codec::expanded ? 1 : kThreads / 32;
    static_assert(kBytes <= kMaxShared);
    const auto kernel = step_tiles<C, S, G>;
    if (kBytes != 0) allow_shared(kernel, kBytes);
    const auto blocks = static_cast<unsigned>(
        std::min<int64_t>(ceil_div(call.end, kTileOf<C> * kTiles), int64_t{n_sm} * kBlocksOf<C>));
    launch_step(kernel, {blocks, kThreads, kBytes}, stream, call, keys);
  });
}
// In slices that 32 bits count.
template <Codec C>
void launch_slices(const AdamwCall& call, int n_sm, cudaStream_t stream) {
  for (int64_t first = 0; first < call.end; first += kMaxRowElements) {
    launch_tiles<C>(slice_of(call, first, std::min(call.end - first, kMaxRowElements)), n_sm,
                    stream);
  }
}

constexpr Codec kExpanded = Codec::expanded;

// A warp's way through the rows of a launch: the row of its tile, and that of the next, as copies
// in shared memory, which the whole warp reads at once. Two copies by turns, so that a row can be
// asked for while its predecessor is still in work. Beside each, what the kernel makes of it once.
template <typename Beside>
class RowWalk {
 public:
  struct alignas(16) Slot {
    UpdateRow row;
    Beside beside;
  };
  static constexpr int kBytes = 2 * static_cast<int>(sizeof(Slot));  // of a warp

  // memory: kBytes of the warp, shared.
  __device__ __forceinline__ explicit RowWalk(char* memory) : at_(reinterpret_cast<Slot*>(memory)) {
    if (threadIdx.x % 32 == 0) at_->row.index = at_->row.end_tile = 0;
    __syncwarp();
  }

  // To a tile that is not before the last one. Returns whether the row is another; the copy of the
  // one before stays until the next call that returns true.
  __device__ __forceinline__ bool go(const UpdateRows& list, uint32_t tile) {
    if (tile < at_->row.end_tile) return false;
    const uint32_t from = at_->row.index;
    const uint32_t index = from + last_reached(list.first_tile + from, list.n_rows - from, tile);
    at_ += is_second_ ? -1 : 1;
    is_second_ = !is_second_;
    constexpr int kPieces = sizeof(UpdateRow) / 16;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    __syncwarp();
    if (lane < kPieces) {
      reinterpret_cast<uint4*>(&at_->row)[lane] =
          reinterpret_cast<const uint4*>(list.rows + index)[lane];
    }
    __syncwarp();
    return true;
  }
  __device__ __forceinline__ Slot& slot() const { return *at_; }

 private:
  Slot* at_;
  bool is_second_ = false;
};

// What of a row is not a whole tile: groups by the tile's code, and the rest, which is no group.
template <WeightStore S, Dtype G>
__device__ __noinline__ void step_rest(const UpdateRow& row, const char* tables) {
  const AdamwCall& call = row.call;
  if (end_of_whole<kExpanded>(call) < call.end) step_last_tile<S, G, NoTop>(call, row.keys, tables);
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
  const Place p = place_of<kExpanded, S>(call, slot.row.keys, nullptr, constants_of(call));
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
  const uint32_t first = (tile - row.first_tile) * kTileOf<kExpanded>;
  return {&walk.slot(), first, is_there && first < end_of_whole<kExpanded>(row.call)};
}

// Staged tiles of f32 gradients and two rows a warp leave room for fewer warps.
template <WeightStore S, Dtype G>
constexpr int kRowThreads =
    kStaged<kExpanded, S>&& G == Dtype::f32 ? 512 : kThreadsOf<kExpanded, S>;

template <WeightStore S, Dtype G>
__global__ void __launch_bounds__(kRowThreads<S, G>, 1)
    step_rows(const __grid_constant__ UpdateRows list) {
  extern __shared__ __align__(16) char shared[];
  constexpr int kWarps = kRowThreads<S, G> / 32;
  fill_tables(shared);
  __syncthreads();
  const uint32_t stride = gridDim.x * kWarps, lane = opaque(threadIdx.x % 32);
  uint32_t tile = threadIdx.x / 32 * gridDim.x + blockIdx.x;
  if (*list.found_nonfinite != 0 || tile >= list.n_tiles) return;  // no barrier follows
  Walk walk(shared + kTableBytes + threadIdx.x / 32 * Walk::kBytes);
  Staging<Raw<kExpanded, S, G>, 32 * kWarps> staging(shared + kTableBytes + kWarps * Walk::kBytes);
  Raw<kExpanded, S, G> raw;
  NoTop top;
  const uint32_t offset = opaque(offset_of<kExpanded>(lane));
  const auto ask = [&](const At& at) {
    if constexpr (kStaged<kExpanded, S>) {
      if (at.is_whole) staging.prefetch(at.slot->row.call, at.first + offset);
      end_of_bringing();
    } else {
      if (at.is_whole) raw.load(at.slot->row.call, at.first + offset);
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
                    .k = {},
                    .c = now.slot->beside.c,
                    .draws = now.slot->beside.draws,
                    .first_draw = static_cast<uint32_t>(row.call.origin / 4),
                    .lane = lane,
                    .offset = offset};
      if constexpr (kStaged<kExpanded, S>) {
        staging.take(next.slot->row.call, next.is_whole, next.first + offset, raw);
      }
      step_tile<true>(p, raw, now.first, top, [&] {
        if constexpr (!kStaged<kExpanded, S>) ask(next);
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

void launch_adamw_expanded(const AdamwCall& call, int n_sm, cudaStream_t stream) {
  launch_slices<Codec::expanded>(call, n_sm, stream);
}
void launch_adamw_groups(const AdamwCall& call, int n_sm, cudaStream_t stream) {
  if (call.p.v.dtype == Dtype::f32) return launch_slices<Codec::f32>(call, n_sm, stream);
  if (call.p.v.dtype == Dtype::fp16) return launch_slices<Codec::fp16>(call, n_sm, stream);
  launch_slices<Codec::codes>(call, n_sm, stream);
}

void launch_expanded_many(const UpdateRows& rows, WeightStore store, Dtype gradient, int n_sm,
                          cudaStream_t stream) {
  visit_weights(store, gradient, [&]<WeightStore S, Dtype G>() {
    constexpr int kThreads = kRowThreads<S, G>;
    constexpr int kStagedBytes =
        kStaged<kExpanded, S> ? Staging<Raw<kExpanded, S, G>, kThreads>::kBytes : 0;
    constexpr int kBytes = kTableBytes + kThreads / 32 * Walk::kBytes + kStagedBytes;
    static_assert(kBytes <= kMaxShared);
    const auto kernel = step_rows<S, G>;
    allow_shared(kernel, kBytes);
    const auto blocks = static_cast<unsigned>(std::min<int64_t>(rows.n_tiles, n_sm));
    kernel<<<blocks, kThreads, kBytes, stream>>>(rows);
    check_launch("adamw_step");
  });
}

void launch_any_many(const UpdateRows& rows, int n_sm, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(
      std::min<int64_t>(ceil_div(rows.n_tiles, kAnyWarps), int64_t{n_sm} * 16));
  step_any_rows<<<blocks, kAnyWarps * 32, 0, stream>>>(rows);
  check_launch("adamw_step");
}

AdamwCall slice_of(const AdamwCall& call, int64_t first, int64_t n) {
  const auto ahead = [&]<typename T>(T* at, Dtype dtype) -> T* {
    using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
    return at == nullptr ? nullptr : static_cast<Byte*>(at) + first * dtype_bytes(dtype);
  };
  const Dtype rest = call.p.store == WeightStore::remainder ? Dtype::i16 : Dtype::f32;
  AdamwCall part = call;
  part.g = ahead(call.g, call.p.g);
  part.w_from = ahead(call.w_from, call.p.w), part.w_to = ahead(call.w_to, call.p.w);
  part.master_from = ahead(call.master_from, rest), part.master_to = ahead(call.master_to, rest);
  const auto move = [&](MomentPlace& at, Dtype dtype) {
    at.from = ahead(at.from, dtype), at.to = ahead(at.to, dtype);
    if (is_high_precision(dtype)) return;
    at.meta_from += first / kMomentGroup, at.meta_to += first / kMomentGroup;
  };
  move(part.m, call.p.m.dtype), move(part.v, call.p.v.dtype);
  part.origin = call.origin + first, part.begin = 0, part.end = n;
  return part;
}

}  // namespace octet::cuda
