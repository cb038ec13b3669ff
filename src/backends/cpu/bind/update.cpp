#include <algorithm>
#include <cmath>

#include "backends/cpu/adamw/adamw_groups.h"
#include "backends/cpu/adamw/adamw_vectors.h"
#include "backends/cpu/adamw/state.h"
#include "backends/cpu/bind/launch.h"
#include "backends/cpu/elementwise/reduce.h"
#include "base/bytes.h"

namespace octet::cpu {

void write_norm(const Call& call, double norm, bool is_finite) {
  const double clip = *call.data<float>(GlobalNorm::clip);
  *call.result<float>(GlobalNorm::norm) = static_cast<float>(norm);
  *call.result<float>(GlobalNorm::grad_scale) =
      static_cast<float>(clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0);
  *call.result<uint8_t>(GlobalNorm::found_nonfinite) = is_finite ? 0 : 1;
}

namespace {

bool gradients_are_f32_or_bf16(const NodeView& view) {
  for (size_t i = 1; i < view.node.operands.size(); ++i) {
    if (!is_f32_or_bf16(view.in(i).dtype)) return false;
  }
  return true;
}

// The squares of each gradient are summed in double, then those sums in the order of the operands.
LaunchFn prepare_global_norm(const NodeView& view, Context& context) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < view.node.operands.size(); ++i) sizes.push_back(view.in(i).n_elems());
  return launcher(view, context, [sizes](const Call& call) {
    double total = 0;
    bool finite = true;
    for (size_t i = 1; i < sizes.size(); ++i) {
      const SumOfSquares part =
          sum_of_squares(call.in(i), sizes[i], call.scratch<double>(), call.pool);
      total += part.value;
      finite = finite && part.finite;
    }
    write_norm(call, std::sqrt(total), finite);
  });
}

LaunchFn prepare_any_of(const NodeView& view, Context& context) {
  return launcher(view, context, [](const Call& call) {
    uint8_t any = 0;
    for (size_t i = 0; i < call.types.in.size(); ++i) any |= *call.data<uint8_t>(i);
    *call.result<uint8_t>(AnyOf::any) = any;
  });
}

using S = AdamwStep;

// FP16 with one scale is decoded before and stored behind (ir/ops/update.cpp).
bool has_scaled_v(const NodeView& view) {
  return view.has(S::v_meta) && !view.in(S::v).has(Granularity::Kind::run);
}

// Moments in f32; the weight f32, or bf16 with its remainder: a row of its own for its name.
bool f32_adamw_applies(const NodeView& view) {
  const bool weight = view.has(S::master) ? view.in(S::w).dtype == Dtype::bf16 &&
                                                view.in(S::master).dtype == Dtype::i16
                                          : view.in(S::w).dtype == Dtype::f32;
  return weight && !has_scaled_v(view) && is_f32_or_bf16(view.in(S::g).dtype) &&
         view.in(S::m).dtype == Dtype::f32 && view.in(S::v).dtype == Dtype::f32;
}

bool adamw_applies(const NodeView& view) {
  const auto& attrs = view.attrs<AdamwAttrs>();
  const auto storable = [](Dtype dtype) {
    return is_f32_or_bf16(dtype) || is_moment_format(dtype);
  };
  // The maximum is taken of f32 and bf16 alone.
  if ((attrs.amax && !is_f32_or_bf16(view.in(S::w).dtype)) || has_scaled_v(view)) return false;
  return is_high_precision(view.in(S::w).dtype) && is_high_precision(view.in(S::g).dtype) &&
         storable(view.in(S::m).dtype) && storable(view.in(S::v).dtype) &&
         run_size(view.in(S::m), view.in(S::v)) <= kMaxGroup;
}

WeightStore weight_store(const NodeView& view) {
  if (view.has(S::master)) {
    return view.in(S::master).dtype == Dtype::i16 ? WeightStore::remainder : WeightStore::master;
  }
  return view.attrs<AdamwAttrs>().stochastic_w ? WeightStore::stochastic : WeightStore::plain;
}

// 0 where none is given, for what draws nothing.
uint32_t attempt_of(const Call& call, SlotId slot) {
  const auto* attempt = call.data<uint32_t>(slot);
  return attempt == nullptr ? 0 : *attempt;
}
RandomStream stream_of(const Call& call, UpdateDraw draw) {
  const auto& a = call.attrs<AdamwAttrs>();
  return update_stream(static_cast<uint64_t>(a.stream), static_cast<uint32_t>(a.seed),
                       attempt_of(call, S::attempt), draw);
}

MomentPlace moment_of(const Call& call, Moment moment) {
  const auto& a = call.attrs<AdamwAttrs>();
  const bool first = moment == Moment::first;
  const SlotId from = first ? S::m : S::v, to = first ? S::next_m : S::next_v;
  return {.coding = {.dtype = call.in(from).dtype,
                     .moment = moment,
                     .expand = first ? a.expand_m : a.expand_v,
                     .stochastic = first ? a.stochastic_m : a.stochastic_v,
                     .math = a.math == PowerMath::exact ? MathMode::exact : MathMode::fast},
          .from = call.in(from).data,
          .to = call.out(to).data,
          .meta_from = call.data<uint32_t>(first ? S::m_meta : S::v_meta),
          .meta_to = call.result<uint32_t>(first ? S::next_m_meta : S::next_v_meta),
          .random = stream_of(call, first ? UpdateDraw::first : UpdateDraw::second)};
}

LaunchFn prepare_adamw(const NodeView& view, Context& context) {
  return launcher(view, context,
                  [store = weight_store(view), group = run_size(view.in(S::m), view.in(S::v)),
                   n = view.in(S::w).n_elems()](const Call& call) {
                    const auto& a = call.attrs<AdamwAttrs>();
                    adamw_groups({.grad = call.in(S::g),
                                  .weight_from = call.in(S::w),
                                  .weight_to = call.out(S::next_w),
                                  .store = store,
                                  .master_from = call.data<void>(S::master),
                                  .master_to = call.result<void>(S::next_master),
                                  .weight_random = stream_of(call, UpdateDraw::weight),
                                  .m = moment_of(call, Moment::first),
                                  .v = moment_of(call, Moment::second),
                                  .group = group,
                                  .first = a.first,
                                  .skip = call.data<uint8_t>(S::found_nonfinite),
                                  .amax = call.amax},
                                 {.beta1 = static_cast<float>(a.beta1),
                                  .beta2 = static_cast<float>(a.beta2),
                                  .rest1 = rest_of(a.beta1),
                                  .rest2 = rest_of(a.beta2),
                                  .eps = static_cast<float>(a.eps),
                                  .weight_decay = static_cast<float>(a.weight_decay),
                                  .lr = *call.data<float>(S::lr),
                                  .c1 = *call.data<float>(S::c1),
                                  .c2 = *call.data<float>(S::c2),
                                  .grad_scale = *call.data<float>(S::grad_scale)},
                                 n, call.pool);
                  });
}

bool store_applies(const NodeView& view) {
  return view.in(StoreScaled::x).dtype == Dtype::f32 &&
         view.in(StoreScaled::scale).dtype == Dtype::f32;
}

LaunchFn prepare_store(const NodeView& view, Context& context) {
  return launcher(view, context, [n = view.in(StoreScaled::x).n_elems()](const Call& call) {
    const auto& attrs = call.attrs<StoreScaledAttrs>();
    const auto* const x = call.data<float>(StoreScaled::x);
    auto* const q = call.result<uint16_t>(StoreScaled::q);
    const float inverse = 1 / *call.data<float>(StoreScaled::scale);  // of a power of two
    const RandomStream random{.name = static_cast<uint64_t>(attrs.stream),
                              .seed = static_cast<uint32_t>(attrs.seed),
                              .step = *call.data<uint32_t>(StoreScaled::attempt)};
    for_blocks(call.pool, n, kBlockElems, [&](int64_t begin, int64_t end, int) {
      const AdamwVectors vectors = adamw_vectors();
      alignas(64) uint32_t words[kPad];
      for (int64_t at = begin; at < end; at += kPad) {
        vectors.random(random, attrs.first + at, kPad, words);
        const int64_t n_here = std::min(kPad, end - at);
        for (int64_t i = 0; i < n_here; ++i)
          q[at + i] = store_fp16(x[at + i] * inverse, words[i], attrs.keeps_positive);
      }
    });
  });
}

StateCoding state_coding(const NodeView& view, const TensorType& state) {
  const auto& a = view.attrs<StateAttrs>();
  return {
      .coding = {.dtype = state.dtype,
                 .moment = a.second ? Moment::second : Moment::first,
                 .expand = a.expand,
                 .stochastic = a.stochastic,
                 .math = a.math == PowerMath::exact ? MathMode::exact : MathMode::fast},
      .group = state.is_scaled() ? state.granularity.size : 1,
      .random = {.name = static_cast<uint64_t>(a.stream), .seed = static_cast<uint32_t>(a.seed)},
      .first = a.first};
}

LaunchFn prepare_load_state(const NodeView& view, Context& context) {
  return launcher(view, context,
                  [state = state_coding(view, view.in(LoadState::x)),
                   n = view.out(LoadState::y).n_elems()](const Call& call) {
                    load_state(state,
                               {call.args.operands[LoadState::x], call.data<void>(LoadState::rest)},
                               call.result<float>(LoadState::y), n, call.pool);
                  });
}

LaunchFn prepare_store_state(const NodeView& view, Context& context) {
  using T = StoreState;
  const int64_t rest_bytes = view.has(T::old_rest) ? view.in(T::old_rest).n_bytes() : 0;
  return launcher(view, context,
                  [state = state_coding(view, view.in(T::old)), n = view.in(T::x).n_elems(),
                   bytes = view.in(T::old).n_bytes(), rest_bytes](const Call& call) {
                    std::byte* const y = call.args.results[T::y];
                    auto* const rest = rest_bytes > 0 ? call.result<std::byte>(T::rest) : nullptr;
                    if (*call.data<uint8_t>(T::skip) != 0) {
                      copy_bytes(y, call.args.operands[T::old], bytes);
                      return copy_bytes(rest, call.data<std::byte>(T::old_rest), rest_bytes);
                    }
                    StateCoding now = state;
                    now.random.step = attempt_of(call, T::attempt);
                    store_state(now, call.data<float>(T::x), {y, rest}, n, call.pool);
                  });
}

const Binding kUpdateBindings[] = {
    {{OpCode::load_state, "groups", always}, prepare_load_state},
    {{OpCode::store_state, "groups", always}, prepare_store_state},
    {{OpCode::global_norm, "simd", gradients_are_f32_or_bf16, reduce_bytes}, prepare_global_norm},
    {{OpCode::store_scaled, "simd", store_applies}, prepare_store},
    {{OpCode::any_of, "simd", always}, prepare_any_of},
    {{OpCode::adamw_step, "f32 moments", f32_adamw_applies}, prepare_adamw},
    {{OpCode::adamw_step, "stored moments", adamw_applies}, prepare_adamw},
};

}  // namespace

std::span<const Binding> update_bindings() {
  return kUpdateBindings;
}

}  // namespace octet::cpu
