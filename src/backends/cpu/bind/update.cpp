#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/cpu/adamw/adamw_groups.h"
#include "backends/cpu/adamw/adamw_vectors.h"
#include "backends/cpu/adamw/state.h"
#include "backends/cpu/bind/launch.h"
#include "backends/cpu/elementwise/reduce.h"

namespace octet::cpu {
namespace {

bool gradients_are_f32_or_bf16(const NodeView& view) {
  for (size_t i = 1; i < view.node.operands.size(); ++i) {
    if (!is_f32_or_bf16(view.in(i).dtype)) return false;
  }
  return true;
}

int64_t norm_scratch(const NodeView& view) {
  int64_t largest = 0;
  for (size_t i = 1; i < view.node.operands.size(); ++i)
    largest = std::max(largest, reduce_scratch(view.in(i).n_elems()));
  return largest * static_cast<int64_t>(sizeof(double));
}

// The squares of each gradient are summed in double, then those sums in the order of the operands.
LaunchFn prepare_global_norm(const NodeView& view, Context& context) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < view.node.operands.size(); ++i) sizes.push_back(view.in(i).n_elems());
  return [types = NodeTypes(view), sizes, &pool = context.pool](const LaunchArgs& args) {
    double total = 0;
    bool finite = true;
    for (size_t i = 1; i < sizes.size(); ++i) {
      const SumOfSquares part = sum_of_squares(types.operand(args, i), sizes[i],
                                               reinterpret_cast<double*>(args.scratch), pool);
      total += part.value;
      finite = finite && part.finite;
    }
    const double norm = std::sqrt(total);
    const double clip = *data<float>(args, GlobalNorm::clip);
    *data_out<float>(args, GlobalNorm::norm) = static_cast<float>(norm);
    *data_out<float>(args, GlobalNorm::grad_scale) =
        static_cast<float>(clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0);
    *data_out<uint8_t>(args, GlobalNorm::found_nonfinite) = finite ? 0 : 1;
  };
}

LaunchFn prepare_any_of(const NodeView& view, Context&) {
  return [n = view.node.operands.size()](const LaunchArgs& args) {
    uint8_t any = 0;
    for (size_t i = 0; i < n; ++i) any |= *data<uint8_t>(args, i);
    *data_out<uint8_t>(args, AnyOf::any) = any;
  };
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

MomentPlace moment_place(const NodeView& view, Moment moment) {
  const auto& a = view.attrs<AdamwAttrs>();
  const bool first = moment == Moment::first;
  return {.coding = {.dtype = view.in(first ? SlotId{S::m} : SlotId{S::v}).dtype,
                     .moment = moment,
                     .expand = first ? a.expand_m : a.expand_v,
                     .stochastic = first ? a.stochastic_m : a.stochastic_v,
                     .math = a.math == PowerMath::exact ? MathMode::exact : MathMode::fast}};
}

LaunchFn prepare_adamw(const NodeView& view, Context& context) {
  AdamWGroups fixed{.grad = {},
                    .weight_from = {},
                    .weight_to = {},
                    .store = weight_store(view),
                    .m = moment_place(view, Moment::first),
                    .v = moment_place(view, Moment::second),
                    .group = run_size(view.in(S::m), view.in(S::v)),
                    .first = view.attrs<AdamwAttrs>().first};
  return with_amax_sink(view, [types = NodeTypes(view), fixed, attrs = view.attrs<AdamwAttrs>(),
                               n = view.in(S::w).n_elems(),
                               &pool = context.pool](const LaunchArgs& args, AmaxSink* amax) {
    AdamWGroups call = fixed;
    call.grad = types.operand(args, S::g);
    call.weight_from = types.operand(args, S::w);
    call.weight_to = types.result(args, S::next_w);
    call.master_from = data<void>(args, S::master);
    call.master_to = data_out<void>(args, S::next_master);
    call.m.from = args.operands[S::m], call.m.to = args.results[S::next_m];
    call.v.from = args.operands[S::v], call.v.to = args.results[S::next_v];
    call.m.meta_from = data<uint32_t>(args, S::m_meta);
    call.v.meta_from = data<uint32_t>(args, S::v_meta);
    call.m.meta_to = data_out<uint32_t>(args, S::next_m_meta);
    call.v.meta_to = data_out<uint32_t>(args, S::next_v_meta);
    const uint32_t* attempt = data<uint32_t>(args, S::attempt);
    const auto stream = [&](UpdateDraw draw) {
      return update_stream(static_cast<uint64_t>(attrs.stream), static_cast<uint32_t>(attrs.seed),
                           attempt == nullptr ? 0u : *attempt, draw);
    };
    call.weight_random = stream(UpdateDraw::weight);
    call.m.random = stream(UpdateDraw::first);
    call.v.random = stream(UpdateDraw::second);
    call.skip = data<uint8_t>(args, S::found_nonfinite);
    call.amax = amax;
    adamw_groups(call,
                 {.beta1 = static_cast<float>(attrs.beta1),
                  .beta2 = static_cast<float>(attrs.beta2),
                  .eps = static_cast<float>(attrs.eps),
                  .weight_decay = static_cast<float>(attrs.weight_decay),
                  .lr = *data<float>(args, S::lr),
                  .c1 = *data<float>(args, S::c1),
                  .c2 = *data<float>(args, S::c2),
                  .grad_scale = *data<float>(args, S::grad_scale)},
                 n, pool);
  });
}

bool store_applies(const NodeView& view) {
  return view.in(StoreScaled::x).dtype == Dtype::f32 &&
         view.in(StoreScaled::scale).dtype == Dtype::f32;
}

LaunchFn prepare_store(const NodeView& view, Context& context) {
  const auto attrs = view.attrs<StoreScaledAttrs>();
  return
      [attrs, n = view.in(StoreScaled::x).n_elems(), &pool = context.pool](const LaunchArgs& args) {
        const auto* const x = data<float>(args, StoreScaled::x);
        auto* const q = data_out<uint16_t>(args, StoreScaled::q);
        const float inverse = 1 / *data<float>(args, StoreScaled::scale);  // of a power of two
        const RandomStream random{.name = static_cast<uint64_t>(attrs.stream),
                                  .seed = static_cast<uint32_t>(attrs.seed),
                                  .step = *data<uint32_t>(args, StoreScaled::attempt)};
        for_blocks(pool, n, kBlockElems, [&](int64_t begin, int64_t end, int) {
          const AdamwVectors vectors = adamw_vectors();
          alignas(64) uint32_t words[kPad];
          for (int64_t at = begin; at < end; at += kPad) {
            vectors.random(random, attrs.first + at, kPad, words);
            const int64_t n_here = std::min(kPad, end - at);
            for (int64_t i = 0; i < n_here; ++i)
              q[at + i] = store_fp16(x[at + i] * inverse, words[i], attrs.keeps_positive);
          }
        });
      };
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
  return [state = state_coding(view, view.in(LoadState::x)), n = view.out(LoadState::y).n_elems(),
          &pool = context.pool](const LaunchArgs& args) {
    load_state(state, {args.operands[LoadState::x], data<void>(args, LoadState::rest)},
               data_out<float>(args, LoadState::y), n, pool);
  };
}

LaunchFn prepare_store_state(const NodeView& view, Context& context) {
  using T = StoreState;
  const bool has_rest = view.has(T::old_rest);
  return [state = state_coding(view, view.in(T::old)), n = view.in(T::x).n_elems(),
          bytes = view.in(T::old).n_bytes(),
          rest_bytes = has_rest ? view.in(T::old_rest).n_bytes() : 0,
          &pool = context.pool](const LaunchArgs& args) {
    auto* const rest = rest_bytes > 0 ? data_out<std::byte>(args, T::rest) : nullptr;
    if (*data<uint8_t>(args, T::skip) != 0) {
      std::memmove(args.results[T::y], args.operands[T::old], static_cast<size_t>(bytes));
      if (rest != nullptr)
        std::memmove(rest, args.operands[T::old_rest], static_cast<size_t>(rest_bytes));
      return;
    }
    StateCoding call = state;
    const uint32_t* const attempt = data<uint32_t>(args, T::attempt);
    if (attempt != nullptr) call.random.step = *attempt;
    store_state(call, data<float>(args, T::x), {args.results[T::y], rest}, n, pool);
  };
}

const Binding kUpdateBindings[] = {
    {{OpCode::load_state, "groups", always}, prepare_load_state},
    {{OpCode::store_state, "groups", always}, prepare_store_state},
    {{OpCode::global_norm, "simd", gradients_are_f32_or_bf16, norm_scratch}, prepare_global_norm},
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
