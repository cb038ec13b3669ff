#include "backends/cuda/params/update.h"

#include <algorithm>

#include "backends/cuda/rows/update.h"
#include "backends/cuda/target/bind/binding.h"
#include "backends/cuda/target/choose/update.h"
#include "math/adamw.h"

namespace octet::cuda {
namespace {

bool gradients_are_high_precision(const NodeView& view) {
  for (size_t i = 1; i < view.node.operands.size(); ++i) {
    if (!is_high_precision(view.in(i).dtype)) return false;
  }
  return view.in(GlobalNorm::clip).dtype == Dtype::f32 &&
         view.out(GlobalNorm::norm).dtype == Dtype::f32 &&
         view.out(GlobalNorm::grad_scale).dtype == Dtype::f32;
}

int64_t norm_scratch(const NodeView& view) {
  int64_t n_chunks = 0;
  for (size_t i = 1; i < view.node.operands.size(); ++i)
    n_chunks += norm_chunks(view.in(i).n_elems());
  return norm_scratch_bytes(n_chunks);
}

KernelSpec norm_spec(const NodeView& view) {
  const GlobalNormParams params{.n_gradients = std::ssize(view.node.operands) - 1};
  const std::vector<int64_t> list = list_operands(view, 1);
  return launching(make_spec(KernelId::global_norm, params, list), norm_launches(list));
}

constexpr SlotId kMaster = AdamwStep::master;

// In FP16 with a scale (ir/ops/update.cpp).
bool has_scaled_v(const NodeView& view) {
  return view.in(AdamwStep::v).dtype == Dtype::fp16 && view.has(AdamwStep::v_meta);
}

// Weight and gradient in high precision; moments f32, bf16 or codes, v scaled FP16 too; scalars
// f32.
bool adamw_applies(const NodeView& view) {
  const auto storable = [](Dtype dtype) {
    return is_f32_or_bf16(dtype) || is_moment_format(dtype);
  };
  bool scalars = true;
  for (const SlotId i : {AdamwStep::lr, AdamwStep::c1, AdamwStep::c2, AdamwStep::grad_scale})
    scalars = scalars && view.in(i).dtype == Dtype::f32;
  return scalars && is_high_precision(view.in(AdamwStep::w).dtype) &&
         is_high_precision(view.in(AdamwStep::g).dtype) && storable(view.in(AdamwStep::m).dtype) &&
         (storable(view.in(AdamwStep::v).dtype) || has_scaled_v(view));
}

WeightStore weight_store(const NodeView& view) {
  if (view.has(kMaster)) {
    return view.in(kMaster).dtype == Dtype::i16 ? WeightStore::remainder : WeightStore::master;
  }
  return view.attrs<AdamwAttrs>().stochastic_w ? WeightStore::stochastic : WeightStore::plain;
}

AdamwParams adamw_params(const NodeView& view) {
  const auto& a = view.attrs<AdamwAttrs>();
  AdamwParams p;
  p.n = view.in(AdamwStep::w).n_elems();
  p.group = run_size(view.in(AdamwStep::m), view.in(AdamwStep::v));
  p.first = a.first;
  p.stream = static_cast<uint64_t>(a.stream);
  p.seed = static_cast<uint32_t>(a.seed);
  p.beta1 = static_cast<float>(a.beta1);
  p.beta2 = static_cast<float>(a.beta2);
  p.rest1 = rest_of(a.beta1);
  p.rest2 = rest_of(a.beta2);
  p.eps = static_cast<float>(a.eps);
  p.weight_decay = static_cast<float>(a.weight_decay);
  p.w = view.in(AdamwStep::w).dtype;
  p.g = view.in(AdamwStep::g).dtype;
  p.store = weight_store(view);
  p.exact = a.math == PowerMath::exact;
  p.amax = a.amax;
  p.m = {.dtype = view.in(AdamwStep::m).dtype, .expand = a.expand_m, .stochastic = a.stochastic_m};
  p.v = {.dtype = view.in(AdamwStep::v).dtype, .expand = a.expand_v, .stochastic = a.stochastic_v};
  return p;
}
template <AdamwRow kRow>
KernelSpec adamw_spec(const NodeView& view) {
  AdamwStepParams p{.step = adamw_params(view)};
  p.step.row = kRow;
  return chosen_spec(KernelId::adamw_step, p);
}

// Tensors that fill one tile at least.
template <bool (*kTakes)(const AdamwParams&), int64_t kTile>
bool adamw_takes(const NodeView& view) {
  if (!adamw_applies(view)) return false;
  const AdamwParams p = adamw_params(view);
  return p.n >= kTile && kTakes(p);
}

bool store_applies(const NodeView& view) {
  return view.in(StoreScaled::x).dtype == Dtype::f32 &&
         view.in(StoreScaled::scale).dtype == Dtype::f32;
}

KernelSpec store_spec(const NodeView& view) {
  const auto& a = view.attrs<StoreScaledAttrs>();
  const StoreScaledParams p{.n = view.in(StoreScaled::x).n_elems(),
                            .first = a.first,
                            .stream = static_cast<uint64_t>(a.stream),
                            .seed = static_cast<uint32_t>(a.seed),
                            .keeps_positive = a.keeps_positive};
  return launching(make_spec(KernelId::store_scaled, p), launches_of(p));
}

StateParams state_params(const NodeView& view, const TensorType& state, bool has_rest) {
  const auto& a = view.attrs<StateAttrs>();
  return {.n = state.n_elems(),
          .group = state.is_scaled() ? state.granularity.size : 0,
          .first = a.first,
          .stream = static_cast<uint64_t>(a.stream),
          .seed = static_cast<uint32_t>(a.seed),
          .state = state.dtype,
          .second = a.second,
          .expand = a.expand,
          .stochastic = a.stochastic,
          .exact = a.math == PowerMath::exact,
          .has_remainder = has_rest && !state.is_scaled(),
          .bytes = static_cast<uint8_t>(bytes_of(state.dtype, 1))};
}
KernelSpec load_state_spec(const NodeView& view) {
  const StateParams p = state_params(view, view.in(LoadState::x), view.has(LoadState::rest));
  return launching(make_spec(KernelId::load_state, p), load_launches(p));
}
// A state not written over its old value has a launch more that keeps that: told by no parameter.
KernelSpec store_state_spec(const NodeView& view) {
  return make_spec(KernelId::store_state,
                   state_params(view, view.in(StoreState::old), view.has(StoreState::old_rest)));
}

// Most tensors are too small to fill the device: their steps may run beside each other.
const Binding kUpdateBindings[] = {
    {{OpCode::load_state, "groups", always}, load_state_spec},
    {{OpCode::store_state, "groups", always}, store_state_spec},
    {{OpCode::global_norm, "chunks", gradients_are_high_precision, norm_scratch}, norm_spec},
    {{.op = OpCode::adamw_step,
      .name = "expanded",
      .applies = adamw_takes<takes_expanded, kMomentGroup>,
      .may_join = always},
     adamw_spec<AdamwRow::expanded>},
    {{.op = OpCode::adamw_step,
      .name = "groups",
      .applies = adamw_takes<takes_groups, kGroupPair>,
      .may_join = always},
     adamw_spec<AdamwRow::groups>},
    {{.op = OpCode::adamw_step,
      .name = "wide",
      .applies = adamw_takes<takes_wide, kWideRun>,
      .may_join = always},
     adamw_spec<AdamwRow::wide>},
    {{.op = OpCode::adamw_step,
      .name = "generic",
      .applies = adamw_applies,
      .facts = {.generic = true}},
     adamw_spec<AdamwRow::generic>},
    {{OpCode::store_scaled, "elements", store_applies}, store_spec},
};

}  // namespace

std::span<const Binding> update_bindings() {
  return kUpdateBindings;
}

}  // namespace octet::cuda
