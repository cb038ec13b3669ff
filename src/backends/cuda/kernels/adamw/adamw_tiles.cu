// The step by tiles, for moments in groups of 128: one loop over tiles for every codec of moments
// (adamw_codec.cuh) and store of weights (adamw_tile.cuh), of one tensor or of a list of them.
//
// A warp takes a tile while the next is on its way: four groups, eight lanes each, of expanded
// E4M3, which nearly every run has and which is made to need few instructions, since in a training
// step the clock is low; else two groups, sixteen lanes each. The extent of a group goes through
// shuffles; one half of its lanes then finds the metadata of m, the other of v. Tiles with anything
// unusual (NaN, Inf, a negative v, magnitudes near the ends of f32, no learning rate) take
// step_group instead, before anything of them is written.
#include <algorithm>
#include <type_traits>

#include "backends/cuda/kernels/adamw/adamw_codes.cuh"
#include "backends/cuda/kernels/adamw/adamw_tile.cuh"
#include "backends/cuda/kernels/common/shared_memory.h"

namespace octet::cuda {
namespace {

static_assert(kExpandedTile == kTileOf<Codec::expanded> && kGroupPair == kTileOf<Codec::codes>);

// How many of four powers of v go by sums: so that neither the unit of powers nor the issue of
// instructions waits for the other.
template <WeightStore S>
constexpr int kBySums = S == WeightStore::stochastic ? 0 : 1;

__device__ __noinline__ void step_each_group(const AdamwCall& call, uint32_t begin, uint32_t end) {
  for (uint32_t i = begin; i < end; i += kMomentGroup)
    step_group<Formats::ieee>(call, i, kMomentGroup);
}

// A lane of a warp that steps tiles. kNotes: the largest new weight is kept.
template <Codec C, WeightStore S, Dtype G, bool kNotes>
class TileStep {
  using R = Raw<C, S, G>;
  using New = NewValues<C>;
  static constexpr int kLanes = kLanesOf<C>;

 public:
  // tables: of Codec::expanded, in shared memory.
  __device__ __forceinline__ explicit TileStep(const char* tables)
      : tables_(tables),
        lane_(opaque(threadIdx.x % 32)),
        offset_(
            opaque(static_cast<uint32_t>(lane_ / kLanes * kMomentGroup + lane_ % kLanes * kRun))) {}

  // Offset of the lane's first element in a tile.
  __device__ __forceinline__ uint32_t offset() const { return offset_; }

  // Calls `ahead` when raw is no longer needed. Of a tile that is not whole, lanes whose group is
  // not there repeat the first group's work and write nothing.
  template <bool kWhole, typename Ahead>
  __device__ __forceinline__ void step(const AdamwCall& call, const Common<C>& common, const R& raw,
                                       uint32_t tile, const Ahead& ahead) {
    New x;
    const bool odd = update(call, common, raw, x);
    ahead();
    const AmaxRounding rounding{is_second() ? common.amax_of_v : common.amax_of_m, false};
    x.up = rounding.up(call.origin + (tile + offset_) / kMomentGroup * kMomentGroup);
    const uint32_t end = kWhole ? tile + kTileOf<C> : static_cast<uint32_t>(call.end);
    Encoding mine;
    if (!settle(call, common, x, odd, mine)) return step_groups(call, tile, end);
    const Encoding of_m = encoding_at<C>(mine, 0), of_v = encoding_at<C>(mine, kLanes / 2);
    const uint32_t i = tile + offset_;
    if (!kWhole && i >= end) return;
#pragma unroll
    for (int first = 0; first < kEachOf<C>; first += kRun) {
      const uint32_t at = i + static_cast<uint32_t>(first / kRun) * kNextRun<C>;
      store_weights<S>(call, common.step, at, x.w + first, top_);
      store_moments<Moment::first>(call, at, of_m, x.m + first);
      store_moments<Moment::second>(call, at, of_v, x.v + first);
    }
    if (lane_ % (kBothCoded<C> ? kLanes / 2 : kLanes) == 0)
      (is_second() ? call.v : call.m).meta_to[i / kMomentGroup] = mine.meta;
  }
  // The whole warp calls it, when all steps are done.
  __device__ __forceinline__ void note(const AdamwCall& call) const {
    if (kNotes && call.amax != nullptr) Top{top_.bits()}.note(call);
  }

 private:
  // True if the lane makes the metadata of v.
  __device__ __forceinline__ bool is_second() const {
    return (lane_ & kLanes / 2) != 0;
  }

  // True if something is unusual.
  __device__ __forceinline__ bool update(const AdamwCall& call, const Common<C>& common,
                                         const R& raw, New& x) const {
    if constexpr (C == Codec::expanded)
      return update_expanded(common.k, raw, x);
    else
      return update_exactly(call, common.k, raw, x);
  }
  __device__ __forceinline__ bool update_expanded(const StepConstants& c, const R& raw,
                                                  New& x) const {
    const Decoding of_m(tables_, raw.meta_m, c.beta1), of_v(tables_, raw.meta_v, c.beta2);
    float bad = 0;
#pragma unroll
    for (int first = 0; first < kEachOf<C>; first += 4) {
      float size[4], inverse[4];
      const uint32_t m_codes = raw.words[first / 4], v_codes = raw.words[R::kV + first / 4];
#pragma unroll
      for (int j = first; j < first + 4; ++j) {
        const int byte = j - first;
        const uint32_t sign = (m_codes << (24 - byte * 8)) & kSign;
        const float m = of_m.value<Moment::first>(tables_, lane_, m_codes, byte);
        const float v = of_v.value<Moment::second>(tables_, lane_, v_codes, byte);
        const float g = raw.gradient(j);
        x.m[j] = __fmaf_rn(g, c.g_of_m, __uint_as_float(__float_as_uint(m) ^ sign));
        x.v[j] = opaque(__fmaf_rn(g * c.gg_of_v, g, v));
        size[byte] = __fmaf_rn(fast_sqrt(x.v[j]), c.size_of_v, c.size_eps);
      }
      invert_four(size, inverse);
#pragma unroll
      for (int j = first; j < first + 4; ++j) {
        const float old = raw.weight(j);
        x.w[j] = __fmaf_rn(-x.m[j], inverse[j - first], __fmaf_rn(old, c.minus_decay, old));
      }
      bad = __fmaf_rn(x.w[first], x.w[first + 1], bad);
      bad = __fmaf_rn(x.w[first + 2], x.w[first + 3], bad);
    }
    return of_m.far | of_v.far | !(fabsf(bad) < __uint_as_float(kF32Inf));
  }
  __device__ __forceinline__ bool update_exactly(const AdamwCall& call, const AdamwConstants& k,
                                                 const R& raw, New& x) const {
    bool odd = decode_codes<Moment::first>(call.p.m, raw.words, raw.meta_m, x.m);
    const uint32_t* v = raw.words + R::kV;
    if constexpr (C == Codec::codes)
      odd |= decode_codes<Moment::second>(call.p.v, v, raw.meta_v, x.v);
    const float scale = C == Codec::fp16 ? scale_of_v(call) : 1.0f;
    float bad = 0;
#pragma unroll
    for (int j = 0; j < kRun; ++j) {
      if constexpr (C == Codec::f32) x.v[j] = __uint_as_float(v[j]);
      if constexpr (C == Codec::fp16)
        x.v[j] = to_float<Dtype::fp16>(static_cast<uint16_t>(v[j / 2] >> (j % 2 * 16))) * scale;
      const AdamwElement next = adamw_element(k, {raw.weight(j), x.m[j], x.v[j]}, raw.gradient(j));
      x.w[j] = next.w, x.m[j] = next.m, x.v[j] = next.v;
      bad = __fmaf_rn(next.w, 0.0f, bad);
    }
    return odd | (bad != 0.0f);  // NaN where a new weight is not finite
  }

  // Metadata of a lane's half of a group, and how codes are made with it. False, for the whole
  // warp, where a lane found something unusual: then nothing is to be written.
  __device__ __forceinline__ bool settle(const AdamwCall& call, const Common<C>& common, New& x,
                                         bool odd, Encoding& mine) const {
    Extent extent = group_extent<C, true>(x.m, x.v, is_second());
    const bool zeros = (extent.amin == 0) & (extent.amax != 0);
    if constexpr (C == Codec::expanded) {
      const uint32_t most = __float_as_uint(is_second() ? common.k.most_v : 0x1p100f);
      Choice choice = choice_of(extent, x.up);
      if (__any_sync(~0u, odd | zeros | is_far(extent, most) | choice.doubtful)) {
        if (__any_sync(~0u, zeros)) extent = group_extent<C, false>(x.m, x.v, is_second());
        if (__any_sync(~0u, odd | is_far(extent, most))) return false;
        choice = choice_of(extent, x.up);
        if (!choice.empty) choice.bits = exact_k16(extent, x.up) + 0x1p23f;
      }
      // Not the magnitudes that the extents were made of, held in as many registers.
#pragma unroll
      for (float& m : x.m) m = opaque(m);
      mine = encoding_of(extent, choice, x.up);
    } else {
      const MomentParams& p = is_second() && kBothCoded<C> ? call.p.v : call.p.m;
      if (__any_sync(~0u, zeros)) extent = group_extent<C, false>(x.m, x.v, is_second());
      if (__any_sync(~0u, odd | is_far(p, extent.range()))) return false;
      mine.meta = meta_of<Formats::ieee, Moment::first>({.dtype = p.dtype, .expand = p.expand},
                                                        extent.range(), x.up);
    }
    return true;
  }

  // A run of a moment.
  template <Moment M>
  __device__ __forceinline__ void store_moments(const AdamwCall& call, uint32_t i,
                                                const Encoding& e, const float* x) const {
    constexpr bool kSecond = M == Moment::second;
    if constexpr (kSecond && C == Codec::fp16) {
      store_scaled_v<kRun>(call, i, x);
    } else if constexpr (kSecond && C == Codec::f32) {
      store_words<kRun>(call.v.to, uint64_t{i} * 4, reinterpret_cast<const uint32_t*>(x));
    } else {
      void* to = (kSecond ? call.v : call.m).to;
      uint2& codes = *reinterpret_cast<uint2*>(static_cast<uint8_t*>(to) + i);
      constexpr int kSums = kSecond ? kBySums<S> : 0;
      if constexpr (C == Codec::expanded)
        codes = encode_expanded<M, kSums>(e, x);
      else
        codes = encode_codes<M>(kSecond ? call.p.v : call.p.m, x, e.meta);
    }
  }

  // Elements [begin, end) by the formulas for any.
  __device__ __forceinline__ void step_groups(const AdamwCall& call, uint32_t begin, uint32_t end) {
    step_each_group(call, begin, end);
    if (kNotes && call.amax != nullptr)
      note_weights(call, call.w_to, {begin + threadIdx.x % 32, end, 32});
  }

  const char* tables_;
  uint32_t lane_, offset_;
  TopWeight<S, kNotes> top_;
};

template <Codec C>
__device__ __forceinline__ uint32_t end_of_whole(const AdamwCall& call) {
  return static_cast<uint32_t>(call.end) / kTileOf<C> * kTileOf<C>;
}

// Part of a tensor in no whole tile: groups by the tile's code, and of a row the rest, which is
// no group. Called, so that the registers of the others' loop are its own.
template <WeightStore S, Dtype G, bool kIsRow>
__device__ __noinline__ void step_rest(const AdamwCall& call, const char* tables) {
  constexpr Codec kC = Codec::expanded;
  const uint32_t begin = end_of_whole<kC>(call);
  TileStep<kC, S, G, !kIsRow> lane(tables);
  if (const uint32_t i = begin + lane.offset(); begin < call.end) {
    Raw<kC, S, G> raw;
    raw.load(call, i < call.end ? i : begin + lane.offset() % kMomentGroup);
    lane.template step<false>(call, common_of<kC, S>(call), raw, begin, [] {});
    __syncwarp();
    lane.note(call);
  }
  if (kIsRow && call.end < call.p.n) step_group<Formats::ieee>(call, call.end, call.p.n - call.end);
}

// A warp's tile: its tensor, with what all tiles of that have in common, and where it begins there.
template <typename Tensor>
struct At {
  const Tensor* tensor;
  uint32_t first;
  bool is_whole;
};

// A warp's way through the whole tiles of one tensor.
template <Codec C, WeightStore S>
class CallWalk {
 public:
  struct Tensor {
    const AdamwCall& call;
    Common<C> common;
  };
  static constexpr int kBytes = 0;
  static constexpr uint32_t kStep = kTileOf<C>;  // a tile is known by its first element

  __device__ __forceinline__ CallWalk(const AdamwCall& call, char*) : tensor_{call, {}} {}
  // Behind the first request for memory.
  __device__ __forceinline__ void prepare() { tensor_.common = common_of<C, S>(tensor_.call); }
  __device__ __forceinline__ bool has(uint32_t first) const {
    return first < end_of_whole<C>(tensor_.call);
  }
  __device__ __forceinline__ At<Tensor> go(uint32_t first) const {
    return {&tensor_, first, has(first)};
  }

 private:
  Tensor tensor_;
};

// The same through the rows of a list: the row of its tile, and that of the next, as copies in
// shared memory, which the whole warp reads at once. Two copies by turns, so that a row can be
// asked for while its predecessor is still in work.
template <Codec C, WeightStore S>
class RowWalk {
 public:
  struct alignas(16) Tensor : UpdateRow {
    Common<C> common;
  };
  static constexpr int kBytes = 2 * static_cast<int>(sizeof(Tensor));  // of a warp
  static constexpr uint32_t kStep = 1;

  // memory: kBytes of the warp, shared.
  __device__ __forceinline__ RowWalk(const UpdateRows& list, char* memory)
      : list_(list), at_(reinterpret_cast<Tensor*>(memory)) {
    if (threadIdx.x % 32 == 0) at_->index = at_->end_tile = 0;
    __syncwarp();
  }
  __device__ __forceinline__ void prepare() {}
  __device__ __forceinline__ bool has(uint32_t tile) const { return tile < list_.n_tiles; }
  // To a tile that is not before the last one. The copy of the row before stays until the next call
  // that leaves a row.
  __device__ __forceinline__ At<Tensor> go(uint32_t tile) {
    if (has(tile) && tile >= at_->end_tile) copy_row(tile);
    const uint32_t first = (tile - at_->first_tile) * kTileOf<C>;
    return {at_, first, has(tile) && first < end_of_whole<C>(at_->call)};
  }

 private:
  __device__ __forceinline__ void copy_row(uint32_t tile) {
    const uint32_t from = at_->index;
    const uint32_t index = from + last_reached(list_.first_tile + from, list_.n_rows - from, tile);
    at_ += is_second_ ? -1 : 1;
    is_second_ = !is_second_;
    const uint32_t lane = threadIdx.x % 32;
    __syncwarp();
    if (lane < sizeof(UpdateRow) / 16) {
      reinterpret_cast<uint4*>(at_)[lane] =
          reinterpret_cast<const uint4*>(list_.rows + index)[lane];
    }
    __syncwarp();
    const Common<C> common = common_of<C, S>(at_->call);
    if (lane == 0) at_->common = common;
    __syncwarp();
  }

  const UpdateRows& list_;
  Tensor* at_;
  bool is_second_ = false;
};

// True if tiles are staged in shared memory, which leaves registers for more warps; false if they
// wait in registers. Where more bytes come with an element, memory is what takes time, and gives
// 4 % more of them to the latter.
template <Codec C, WeightStore S>
constexpr bool kStaged = C == Codec::expanded&& S == WeightStore::stochastic;
template <typename List>
constexpr bool kIsList = std::is_same_v<List, UpdateRows>;
// Staged tiles of f32 gradients and two rows a warp leave room for fewer warps.
template <Codec C, WeightStore S, Dtype G, typename List>
constexpr int kThreadsOf = C != Codec::expanded               ? 128
                           : !kStaged<C, S>                   ? 512
                           : kIsList<List> && G == Dtype::f32 ? 512
                                                              : 640;
template <Codec C>  // on one multiprocessor: registers
constexpr int kBlocksOf = C == Codec::expanded ? 1
                          : C == Codec::codes  ? 5
                                               : 4;

template <Codec C, WeightStore S, Dtype G, typename List>
struct Kernel {
  static constexpr int kThreads = kThreadsOf<C, S, G, List>, kWarps = kThreads / 32;
  using R = Raw<C, S, G>;
  using Walk = std::conditional_t<kIsList<List>, RowWalk<C, S>, CallWalk<C, S>>;
  using Stage = Staging<R, kThreads>;
  static constexpr int kWalkAt = C == Codec::expanded ? kTableBytes : 0;
  static constexpr int kStageAt = kWalkAt + kWarps * Walk::kBytes;
  static constexpr int kBytes = kStageAt + (kStaged<C, S> ? Stage::kBytes : 0);
};

template <Codec C, WeightStore S, Dtype G, typename List>
__global__ void __launch_bounds__(kThreadsOf<C, S, G, List>, kBlocksOf<C>)
    step_tiles(const __grid_constant__ List list) {
  extern __shared__ __align__(16) char shared[];
  using K = Kernel<C, S, G, List>;
  constexpr bool kIsExpanded = C == Codec::expanded;
  if constexpr (!kIsList<List>) start_next();
  const uint32_t warp = threadIdx.x / 32, stride = gridDim.x * (K::kWarps * K::Walk::kStep);
  typename K::Walk walk(list, shared + K::kWalkAt + warp * K::Walk::kBytes);
  typename K::Stage staging(shared + K::kStageAt);
  typename K::R raw;
  TileStep<C, S, G, kIsExpanded && !kIsList<List>> lane(shared);
  const auto ask = [&](const auto& at) {
    if constexpr (kStaged<C, S>) {
      if (at.is_whole) staging.prefetch(at.tensor->call, at.first + lane.offset());
      end_group();
    } else {
      if (at.is_whole) raw.load(at.tensor->call, at.first + lane.offset());
    }
  };
  uint32_t tile = (warp * gridDim.x + blockIdx.x) * K::Walk::kStep;
  auto now = walk.go(tile);
  ask(now);
  walk.prepare();
  const uint8_t found_nonfinite = *list.found_nonfinite;
  if constexpr (kIsExpanded) {
    fill_tables(shared);
    __syncthreads();
  }
  if (found_nonfinite != 0) {
    end_group();
    wait_for_groups_but<1>();
    if constexpr (!kIsList<List>) keep_all(list);
    return;
  }
  while (walk.has(tile)) {
    tile += stride;
    const auto next = walk.go(tile);
    if (!kIsList<List> || now.is_whole) {
      if constexpr (kStaged<C, S>)
        staging.take(next.tensor->call, next.is_whole, next.first + lane.offset(), raw);
      const typename K::R taken = raw;
      if constexpr (!kIsExpanded) ask(next);  // it has fewer warps to wait for each other
      lane.template step<true>(now.tensor->call, now.tensor->common, taken, now.first, [&] {
        if constexpr (kIsExpanded && !kStaged<C, S>) ask(next);
      });
    } else if constexpr (kIsList<List>) {
      step_rest<S, G, true>(now.tensor->call, shared);
      __syncwarp();
      ask(next);
    }
    now = next;
  }
  if constexpr (!kIsList<List>) {
    lane.note(list);
    if (kIsExpanded && now.first < list.end) step_rest<S, G, false>(list, shared);
    give_amax(list);
  }
}

constexpr int kAnyWarps = 4;
__global__ void __launch_bounds__(kAnyWarps * 32)
    step_any_rows(const __grid_constant__ UpdateRows list) {
  using Walk = RowWalk<Codec::codes, WeightStore::plain>;
  __shared__ __align__(16) char memory[kAnyWarps * Walk::kBytes];
  if (*list.found_nonfinite != 0) return;
  Walk walk(list, memory + threadIdx.x / 32 * Walk::kBytes);
  const uint32_t stride = gridDim.x * kAnyWarps * Walk::kStep;
  for (uint32_t tile = blockIdx.x * kAnyWarps + threadIdx.x / 32; tile < list.n_tiles;
       tile += stride) {
    const UpdateRow& row = *walk.go(tile).tensor;
    const AdamwCall& call = row.call;
    const int64_t first = static_cast<int64_t>(tile - row.first_tile) * call.p.group;
    step_group<Formats::all>(call, first, min(call.p.group, call.p.n - first));
  }
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
struct Grid {
  int64_t n_tiles;
  int n_sm;
  cudaStream_t stream;
};
template <Codec C, typename List>
void launch_tiles(const List& list, WeightStore store, Dtype gradient, const Grid& grid) {
  visit_weights(store, gradient, [&]<WeightStore S, Dtype G>() {
    using K = Kernel<C, S, G, List>;
    static_assert(K::kBytes <= kMaxShared);
    const auto kernel = step_tiles<C, S, G, List>;
    if (K::kBytes != 0) allow_shared(kernel, K::kBytes);
    // For codes a block takes a tile a warp at least.
    const int64_t n_blocks = ceil_div(grid.n_tiles, C == Codec::expanded ? 1 : K::kWarps);
    const auto blocks =
        static_cast<unsigned>(std::min<int64_t>(n_blocks, int64_t{grid.n_sm} * kBlocksOf<C>));
    launch_step(kernel, {blocks, K::kThreads, K::kBytes}, grid.stream, list);
  });
}
// In slices that 32 bits count.
template <Codec C>
void launch_slices(const AdamwCall& call, int n_sm, cudaStream_t stream) {
  for (int64_t first = 0; first < call.end; first += kMaxRowElements) {
    const AdamwCall part = slice_of(call, first, std::min(call.end - first, kMaxRowElements));
    launch_tiles<C>(part, call.p.store, call.p.g, {ceil_div(part.end, kTileOf<C>), n_sm, stream});
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
  launch_tiles<Codec::expanded>(rows, store, gradient, {rows.n_tiles, n_sm, stream});
}

void launch_any_many(const UpdateRows& rows, int n_sm, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(
      std::min<int64_t>(ceil_div(rows.n_tiles, kAnyWarps), int64_t{n_sm} * 16));
  step_any_rows<<<blocks, kAnyWarps * 32, 0, stream>>>(rows);
  check_launch("adamw_step");
}

}  // namespace octet::cuda
