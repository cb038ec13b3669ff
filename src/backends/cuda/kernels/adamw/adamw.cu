// The optimizer's step: its launches, and the kernel that takes every format.
#include "backends/cuda/kernels/adamw/adamw.h"

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>

#include "backends/cuda/kernels/adamw/adamw_common.cuh"
#include "ir/ops/slots.h"

namespace octet::cuda {
namespace {

using S = octet::AdamwStep;

constexpr int kWarps = 4;  // of the kernel that takes any group

__global__ void __launch_bounds__(kWarps * 32) step_groups(const __grid_constant__ AdamwCall call) {
  if (*call.found_nonfinite != 0) return copy_states(call);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarps * call.p.group;
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  for (int64_t i = call.begin + warp * call.p.group; i < call.end; i += stride) {
    step_group<Formats::all>(call, i, min(call.p.group, call.end - i));
  }
}

// Moments of f32 or bf16, by the exact formulas: two runs of four elements a thread, so that the
// lanes of a warp lie side by side in f32 and in 16 bits alike: what is not a whole sector of
// memory costs as much as one.
constexpr Formats kWide = Formats::none;
constexpr int kWideThreads = 256;
constexpr int kNextWide = kWideThreads * static_cast<int>(kWideRun);  // from one run to the other
constexpr int kChunk = 2 * kNextWide;                                 // of a block

__global__ void __launch_bounds__(kWideThreads, 4)
    step_wide(const __grid_constant__ AdamwCall call) {
  start_next();
  if (*call.found_nonfinite != 0) {
    copy_states(call);
    return wait_for_previous();
  }
  const AdamwConstants k = constants_of(call);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kChunk;
  int64_t i = call.begin + static_cast<int64_t>(blockIdx.x) * kChunk + threadIdx.x * kWideRun;
  const auto step = [&](const RawElements<kWide>& raw, int64_t at) {
    store_elements(call, at, next_elements(call, k, raw, 0, 0), 0, 0);
  };
  for (; i < call.end; i += stride) {
    const bool both = i + kNextWide < call.end;
    const auto raw = load_elements<kWide>(call, i);
    RawElements<kWide> other{};
    if (both) other = load_elements<kWide>(call, i + kNextWide);
    step(raw, i);
    if (both) step(other, i + kNextWide);
  }
  wait_for_previous();
}

// Amax of the weights as they are afterwards.
template <int N>
__global__ void __launch_bounds__(256) weight_amax(const __grid_constant__ AdamwCall call) {
  Top top;
  for_runs<N>(call.p.n, [&]<int kN>(int64_t i) {
    float w[kN];
    values_of(call.p.w, load_run<kN>(call.p.w, call.w_to, i), w);
#pragma unroll
    for (int j = 0; j < kN; ++j) top.join(w[j]);
  });
  top.note(call.amax, call.flag);
}

// A block for every `each` elements, at most `most`.
unsigned blocks_of(int64_t n, int64_t each, int64_t most) {
  return static_cast<unsigned>(std::min(ceil_div(n, each), most));
}

class AdamwStep : public Prepared {
 public:
  AdamwStep(const AdamwStepParams& params, int n_sm)
      : p_(params.step), pieces_(params.pieces), n_sm_(n_sm) {
    // Nothing is grouped: any.
    if (is_high_precision(p_.m.dtype) && is_high_precision(p_.v.dtype)) p_.group = 128;
  }

  void launch(const Launch& args) override { launch(args, false); }
  void launch_joined(std::span<const Joined> all) override {
    bool is_beside_last = false;
    for (const Joined& one : all) {
      static_cast<AdamwStep*>(one.kernel)->launch(one.args, std::exchange(is_beside_last, true));
    }
  }

 private:
  void launch(const Launch& args, bool is_beside_last) {
    AdamwCall call = call_of(args);
    call.is_beside_last = is_beside_last;
    launch_pieces(pieces_, call, n_sm_, args.stream);
    if (!p_.amax || pieces_.give_amax()) return;
    check(cudaMemsetAsync(call.amax, 0, sizeof(*call.amax), args.stream), "filling");
    check(cudaMemsetAsync(call.flag, 0, sizeof(*call.flag), args.stream), "filling");
    const unsigned blocks = blocks_of(p_.n, 8 * 256, n_sm_ * 8);
    const auto at = reinterpret_cast<uintptr_t>(call.w_to);
    const auto kernel = at % sizeof(Run<8>) == 0 ? weight_amax<8> : weight_amax<1>;
    if (p_.n != 0) kernel<<<blocks, 256, 0, args.stream>>>(call);
    check_launch("adamw_step");
  }
  AdamwCall call_of(const Launch& args) const {
    // Slots that are absent may be none.
    const auto in = [&](bool is_there, SlotId i) { return is_there ? args.operands[i] : nullptr; };
    const auto out = [&](bool is_there, SlotId i) { return is_there ? args.results[i] : nullptr; };
    const auto words = [](const void* at) { return static_cast<const uint32_t*>(at); };
    const bool coded_m = !is_high_precision(p_.m.dtype), coded_v = !is_high_precision(p_.v.dtype);
    const bool scaled_v = p_.v.dtype == Dtype::fp16;
    const bool draws = p_.store == WeightStore::stochastic || p_.m.stochastic || p_.v.stochastic ||
                       coded_m || coded_v;
    const bool beside = p_.store == WeightStore::remainder || p_.store == WeightStore::master;
    return {.p = p_,
            .g = args.operands[S::g],
            .w_from = args.operands[S::w],
            .master_from = in(beside, S::master),
            .w_to = args.results[S::next_w],
            .master_to = out(beside, S::next_master),
            .m = {args.operands[S::m], args.results[S::next_m], words(in(coded_m, S::m_meta)),
                  static_cast<uint32_t*>(out(coded_m, S::next_m_meta))},
            .v = {args.operands[S::v], args.results[S::next_v],
                  words(in(coded_v || scaled_v, S::v_meta)),
                  static_cast<uint32_t*>(out(coded_v, S::next_v_meta))},
            .lr = args.in<float>(S::lr),
            .c1 = args.in<float>(S::c1),
            .c2 = args.in<float>(S::c2),
            .grad_scale = args.in<float>(S::grad_scale),
            .found_nonfinite = args.in<uint8_t>(S::found_nonfinite),
            .attempt = words(in(draws, S::attempt)),
            .amax = static_cast<uint32_t*>(out(p_.amax, S::amax)),
            .flag = static_cast<uint8_t*>(out(p_.amax, S::nonfinite)),
            .gathered = reinterpret_cast<GatheredAmax*>(args.counters),
            .begin = 0,
            .end = p_.n,
            .origin = p_.first};
  }

  AdamwParams p_;
  AdamwPieces pieces_;
  int n_sm_;
};

std::unique_ptr<Prepared> prepare_adamw(const Request& request) {
  return std::make_unique<AdamwStep>(request.get<AdamwStepParams>(), request.n_sm);
}

constexpr KernelEntry kRows[] = {
    {KernelId::global_norm, prepare_global_norm},
    {KernelId::adamw_step, prepare_adamw},
    {KernelId::store_scaled, stateless<StoreScaledParams, store_scaled>},
    {KernelId::load_state, stateless<StateParams, load_state>},
    {KernelId::store_state, stateless<StateParams, store_state>}};

}  // namespace

bool is_aligned(const AdamwCall& c) {
  const void* const places[] = {c.g,    c.w_from,    c.master_from, c.m.from, c.v.from,
                                c.w_to, c.master_to, c.m.to,        c.v.to};
  return std::all_of(std::begin(places), std::end(places),
                     [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; });
}

AdamwCall slice_of(const AdamwCall& call, int64_t first, int64_t n) {
  AdamwCall part = call;
  const auto move = [&](auto*& at, int64_t n_bytes) {
    using Place = std::remove_reference_t<decltype(at)>;
    if (at != nullptr) at = reinterpret_cast<Place>(reinterpret_cast<uintptr_t>(at) + n_bytes);
  };
  const auto move_values = [&](auto*& from, auto*& to, Dtype dtype) {
    move(from, first * dtype_bytes(dtype)), move(to, first * dtype_bytes(dtype));
  };
  const auto move_moments = [&](MomentPlace& at, Dtype dtype) {
    move_values(at.from, at.to, dtype);
    if (is_high_precision(dtype)) return;
    move(at.meta_from, first / kMomentGroup * 4), move(at.meta_to, first / kMomentGroup * 4);
  };
  move(part.g, first * dtype_bytes(call.p.g));
  move_values(part.w_from, part.w_to, call.p.w);
  move_values(part.master_from, part.master_to,
              call.p.store == WeightStore::remainder ? Dtype::i16 : Dtype::f32);
  move_moments(part.m, call.p.m.dtype), move_moments(part.v, call.p.v.dtype);
  part.origin = call.origin + first, part.begin = 0, part.end = n;
  part.keys = round_keys(update_stream(call.p.stream, call.p.seed, 0, UpdateDraw::weight));
  return part;
}

void launch_adamw_any(const AdamwCall& call, int n_sm, cudaStream_t stream) {
  const unsigned blocks = blocks_of(call.end - call.begin, call.p.group * kWarps, n_sm * 16);
  step_groups<<<blocks, kWarps * 32, 0, stream>>>(call);
  check_launch("adamw_step");
}
void launch_adamw_wide(const AdamwCall& call, int n_sm, cudaStream_t stream) {
  const unsigned blocks = blocks_of(call.end - call.begin, kChunk, n_sm * 16);
  launch_step(step_wide, {blocks, kWideThreads}, stream, call);
}

void launch_pieces(const AdamwPieces& pieces, const AdamwCall& call, int n_sm,
                   cudaStream_t stream) {
  constexpr decltype(&launch_adamw_any) kLaunch[] = {launch_adamw_expanded, launch_adamw_groups,
                                                     launch_adamw_wide, launch_adamw_any};
  AdamwCall part = call;
  if (!pieces.give_amax()) part.amax = nullptr;
  for (int64_t i = 0; i < pieces.n; ++i) {
    const AdamwPiece& piece = pieces.all[i];
    part.begin = piece.begin;
    part.end = piece.end;
    kLaunch[static_cast<size_t>(piece.row)](part, n_sm, stream);
  }
}

std::span<const KernelEntry> adamw_kernels() {
  return kRows;
}

}  // namespace octet::cuda
