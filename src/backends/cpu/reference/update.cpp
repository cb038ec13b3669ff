#include <algorithm>
#include <cmath>

#include "backends/cpu/reference/kernels.h"
#include "base/error.h"
#include "base/philox.h"
#include "formats/codec.h"
#include "math/adamw.h"
#include "math/master.h"
#include "math/moment.h"

namespace octet::reference {
namespace {

using Floats = std::vector<float>;

using S = AdamwStep;

float scalar(const RefCall& call, size_t i) {
  return static_cast<float>(call.in[i].data[0]);
}

AdamwConstants constants(const RefCall& call) {
  const auto& a = std::get<AdamwAttrs>(call.attrs);
  return {.beta1 = static_cast<float>(a.beta1),
          .beta2 = static_cast<float>(a.beta2),
          .rest1 = rest_of(a.beta1),
          .rest2 = rest_of(a.beta2),
          .eps = static_cast<float>(a.eps),
          .weight_decay = static_cast<float>(a.weight_decay),
          .lr = scalar(call, S::lr),
          .c1 = scalar(call, S::c1),
          .c2 = scalar(call, S::c2),
          .grad_scale = scalar(call, S::grad_scale)};
}

RandomStream stream(const RefCall& call, UpdateDraw draw) {
  const auto& a = std::get<AdamwAttrs>(call.attrs);
  const auto attempt = optional(call.in, S::attempt);
  return update_stream(static_cast<uint64_t>(a.stream), static_cast<uint32_t>(a.seed),
                       attempt.empty() ? 0u : static_cast<uint32_t>(attempt[0]), draw);
}

MomentCoding coding(const RefCall& call, Moment moment) {
  const auto& a = std::get<AdamwAttrs>(call.attrs);
  const bool first = moment == Moment::first;
  return {.dtype = call.in[first ? SlotId{S::m} : SlotId{S::v}].type.dtype,
          .moment = moment,
          .expand = first ? a.expand_m : a.expand_v,
          .stochastic = first ? a.stochastic_m : a.stochastic_v,
          .math = a.math == PowerMath::exact ? MathMode::exact : MathMode::fast};
}

// The place of element 0 in the parameter, for what is drawn.
uint64_t first_of(const RefCall& call) {
  return static_cast<uint64_t>(std::get<AdamwAttrs>(call.attrs).first);
}

// The data of a result, empty where it is absent.
std::span<double> result(const RefCall& call, size_t slot) {
  return slot < call.out.size() ? call.out[slot].data : std::span<double>();
}

struct MomentView {
  MomentCoding coding;
  std::span<const double> stored;  // what the codes decode to
  std::span<const double> meta;
  size_t group;
  uint64_t first;  // the place of element 0 in the parameter
};

MomentView moment_view(const RefCall& call, Moment moment) {
  const bool first = moment == Moment::first;
  return {coding(call, moment), call.in[first ? SlotId{S::m} : SlotId{S::v}].data,
          optional(call.in, first ? SlotId{S::m_meta} : SlotId{S::v_meta}),
          size(run_size(call.in[S::m].type, call.in[S::v].type)), first_of(call)};
}

Floats load_moment(const MomentView& view) {
  Floats values(view.stored.begin(), view.stored.end());
  if (!is_quantized(view.coding.dtype)) return values;
  for (size_t first = 0; first < values.size(); first += view.group) {
    const size_t n = std::min(view.group, values.size() - first);
    std::vector<uint8_t> codes(n);
    for (size_t i = 0; i < n; ++i) {
      codes[i] = static_cast<uint8_t>(encode(view.coding.dtype, values[first + i]));
    }
    decode_moments(view.coding, static_cast<uint32_t>(view.meta[first / view.group]), codes,
                   std::span(values).subspan(first, n));
  }
  return values;
}

double wide_moment(const MomentCoding& coding, float x, uint32_t random) {
  if (coding.dtype != Dtype::bf16) return stored_moment(x);
  return f32_from_bf16(moment_bf16(coding, x, random));
}

void store_moment(const MomentView& view, const Floats& values, const RandomStream& random,
                  std::span<double> out, std::span<double> meta_out) {
  if (!is_quantized(view.coding.dtype)) {
    for (size_t i = 0; i < values.size(); ++i) {
      out[i] = wide_moment(view.coding, values[i],
                           view.coding.stochastic ? random.bits(view.first + i) : 0);
    }
    return;
  }
  for (size_t first = 0; first < values.size(); first += view.group) {
    const size_t n = std::min(view.group, values.size() - first);
    std::vector<uint8_t> codes(n);
    uint32_t meta = 0;
    encode_moments(view.coding, std::span(values).subspan(first, n),
                   {random, static_cast<int64_t>(view.first + first)}, codes, meta);
    for (size_t i = 0; i < n; ++i) {
      out[first + i] = static_cast<double>(decode(view.coding.dtype, codes[i]));
    }
    meta_out[first / view.group] = meta;
  }
}

// A bf16 weight held as a double has the upper half of its f32's bits and no lower half.
float with_remainder(double weight, double remainder) {
  const auto hi = static_cast<uint16_t>(bits_of(static_cast<float>(weight)) >> 16);
  return join_master({hi, static_cast<int16_t>(remainder)});
}

Floats load_master(const RefCall& call) {
  const auto w = call.in[S::w].data, master = optional(call.in, S::master);
  if (master.empty()) return Floats(w.begin(), w.end());
  if (call.in[S::master].type.dtype == Dtype::f32) return Floats(master.begin(), master.end());
  Floats masters;
  for (size_t i = 0; i < w.size(); ++i) masters.push_back(with_remainder(w[i], master[i]));
  return masters;
}

void store_weight(const RefCall& call, const Floats& w) {
  const RandomStream random = stream(call, UpdateDraw::weight);
  const bool draws = std::get<AdamwAttrs>(call.attrs).stochastic_w;
  const auto master = result(call, S::next_master);
  for (size_t i = 0; i < w.size(); ++i) {
    double& stored = call.out[S::next_w].data[i];
    stored = draws ? f32_from_bf16(stochastic_bf16(w[i], random.bits(first_of(call) + i))) : w[i];
    if (master.empty()) continue;
    if (call.in[S::master].type.dtype == Dtype::f32) {
      master[i] = w[i];
    } else {
      const MasterBits parts = split_master(w[i]);
      stored = float_of(static_cast<uint32_t>(parts.hi) << 16);
      master[i] = parts.lo;
    }
  }
}

void copy_states(const RefCall& call) {
  const auto keep = [&](size_t operand, size_t next) {
    const auto from = optional(call.in, operand);
    std::copy(from.begin(), from.end(), result(call, next).begin());
  };
  keep(S::w, S::next_w), keep(S::m, S::next_m), keep(S::v, S::next_v);
  keep(S::master, S::next_master), keep(S::m_meta, S::next_m_meta);
  keep(S::v_meta, S::next_v_meta);
}

void step(const RefCall& call) {
  if (call.in[S::found_nonfinite].data[0] != 0) return copy_states(call);
  const AdamwConstants k = constants(call);
  const MomentView first = moment_view(call, Moment::first);
  const MomentView second = moment_view(call, Moment::second);
  const bool are_unquantized =
      !is_quantized(first.coding.dtype) && !is_quantized(second.coding.dtype);
  Floats w = load_master(call), m = load_moment(first), v = load_moment(second);
  for (size_t i = 0; i < w.size(); ++i) {
    const AdamwElement next =
        adamw_element(k, {w[i], m[i], v[i]}, static_cast<float>(call.in[S::g].data[i]));
    w[i] = next.w, m[i] = next.m, v[i] = next.v;
    if (are_unquantized) m[i] = first_beside(next.m, next.v);
  }
  store_weight(call, w);
  store_moment(first, m, stream(call, UpdateDraw::first), result(call, S::next_m),
               result(call, S::next_m_meta));
  store_moment(second, v, stream(call, UpdateDraw::second), result(call, S::next_v),
               result(call, S::next_v_meta));
}

MomentView state_view(const RefCall& call, const RefTensor& x, std::span<const double> rest) {
  const auto& a = std::get<StateAttrs>(call.attrs);
  return {{.dtype = x.type.dtype,
           .moment = a.second ? Moment::second : Moment::first,
           .expand = a.expand,
           .stochastic = a.stochastic,
           .math = a.math == PowerMath::exact ? MathMode::exact : MathMode::fast},
          x.data,
          rest,
          static_cast<size_t>(x.type.is_scaled() ? x.type.granularity.size : 1),
          static_cast<uint64_t>(a.first)};
}

}  // namespace

// expand_updates leaves none.
void update(const RefCall&) {
  CHECK(false);
}

void load_state(const RefCall& call) {
  const RefTensor& x = call.in[LoadState::x];
  const auto rest = optional(call.in, LoadState::rest);
  const auto y = call.out[LoadState::y].data;
  if (x.type.is_scaled()) {
    const Floats values = load_moment(state_view(call, x, rest));
    std::copy(values.begin(), values.end(), y.begin());
    return;
  }
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = rest.empty() ? x.data[i] : with_remainder(x.data[i], rest[i]);
}

void store_state(const RefCall& call) {
  using T = StoreState;
  const auto& a = std::get<StateAttrs>(call.attrs);
  const RefTensor& old = call.in[T::old];
  const auto x = call.in[T::x].data, old_rest = optional(call.in, T::old_rest);
  const auto y = call.out[T::y].data, rest = result(call, T::rest);
  if (call.in[T::skip].data[0] != 0) {
    std::copy(old.data.begin(), old.data.end(), y.begin());
    std::copy(old_rest.begin(), old_rest.end(), rest.begin());
    return;
  }
  const auto attempt = optional(call.in, T::attempt);
  const RandomStream random{.name = static_cast<uint64_t>(a.stream),
                            .seed = static_cast<uint32_t>(a.seed),
                            .step = attempt.empty() ? 0u : static_cast<uint32_t>(attempt[0])};
  if (old.type.is_scaled())
    return store_moment(state_view(call, old, old_rest), Floats(x.begin(), x.end()), random, y,
                        rest);
  for (size_t i = 0; i < y.size(); ++i) {
    const auto value = static_cast<float>(x[i]);
    if (!rest.empty()) {
      const MasterBits parts = split_master(value);
      y[i] = float_of(static_cast<uint32_t>(parts.hi) << 16);
      rest[i] = parts.lo;
    } else if (a.stochastic && old.type.dtype == Dtype::bf16) {
      y[i] = f32_from_bf16(stochastic_bf16(value, random.bits(static_cast<uint64_t>(a.first) + i)));
    } else {
      y[i] = value;
    }
  }
}

void adamw_step(const RefCall& call) {
  step(call);
  if (!std::get<AdamwAttrs>(call.attrs).amax) return;
  const RefTensor& w = call.out[S::next_w];
  std::vector<double> stored(w.data.begin(), w.data.end());
  for (double& x : stored) x = round_to(w.type.dtype, x);
  const RefTensor in[] = {{.type = w.type, .data = stored}};
  amax({.attrs = call.attrs, .in = in, .out = call.out.last(2)});
}

void store_scaled(const RefCall& call) {
  const auto& a = std::get<StoreScaledAttrs>(call.attrs);
  const auto scale = static_cast<float>(call.in[StoreScaled::scale].data[0]);
  const RandomStream random{.name = static_cast<uint64_t>(a.stream),
                            .seed = static_cast<uint32_t>(a.seed),
                            .step = static_cast<uint32_t>(call.in[StoreScaled::attempt].data[0])};
  for (size_t i = 0; i < call.out[0].data.size(); ++i) {
    const float x = static_cast<float>(call.in[0].data[i]) / scale;
    const uint32_t word = random.bits(static_cast<uint64_t>(a.first) + i);
    const uint32_t code = store_fp16(x, word, a.keeps_positive);
    call.out[0].data[i] = static_cast<double>(decode(Dtype::fp16, code));
  }
}

}  // namespace octet::reference
