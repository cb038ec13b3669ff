#include <algorithm>
#include <cmath>

#include "backends/cpu/reference/kernels.h"
#include "formats/codec.h"
#include "math/adamw.h"
#include "math/moment.h"

namespace octet::reference {
namespace {

using Floats = std::vector<float>;

constexpr size_t kMaster = 9, kMeta = 10, kAttempt = 12;

float scalar(const RefCall& call, size_t i) {
  return static_cast<float>(call.in[i].data[0]);
}

AdamwConstants constants(const RefCall& call) {
  const auto& a = std::get<AdamwAttrs>(call.attrs);
  return {.beta1 = static_cast<float>(a.beta1),
          .beta2 = static_cast<float>(a.beta2),
          .eps = static_cast<float>(a.eps),
          .weight_decay = static_cast<float>(a.weight_decay),
          .lr = scalar(call, 4),
          .c1 = scalar(call, 5),
          .c2 = scalar(call, 6),
          .grad_scale = scalar(call, 7)};
}

RandomStream stream(const RefCall& call, UpdateDraw draw) {
  const auto& a = std::get<AdamwAttrs>(call.attrs);
  const auto attempt = optional(call.in, kAttempt);
  return update_stream(static_cast<uint64_t>(a.stream), static_cast<uint32_t>(a.seed),
                       attempt.empty() ? 0u : static_cast<uint32_t>(attempt[0]), draw);
}

MomentCoding coding(const RefCall& call, Moment moment) {
  const auto& a = std::get<AdamwAttrs>(call.attrs);
  const bool first = moment == Moment::first;
  return {.dtype = call.in[first ? 2 : 3].type.dtype,
          .moment = moment,
          .expand = first ? a.expand_m : a.expand_v,
          .stochastic = first ? a.stochastic_m : a.stochastic_v,
          .math = a.math == PowerMath::exact ? MathMode::exact : MathMode::fast};
}

// Where the result of an optional operand stands; SIZE_MAX where the operand is absent.
size_t result_of(const RefCall& call, size_t operand) {
  if (optional(call.in, operand).data() == nullptr) return SIZE_MAX;
  size_t result = 3;
  for (size_t i = kMaster; i < operand; ++i) result += optional(call.in, i).data() != nullptr;
  return result;
}

struct MomentView {
  MomentCoding coding;
  std::span<const double> stored;  // what the codes decode to
  std::span<const double> meta;
  size_t group;
};

MomentView moment_view(const RefCall& call, Moment moment) {
  const size_t i = moment == Moment::first ? 0 : 1;
  return {coding(call, moment), call.in[2 + i].data, optional(call.in, kMeta + i),
          size(std::get<AdamwAttrs>(call.attrs).group)};
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
  if (coding.dtype != Dtype::bf16) return x;
  return f32_from_bf16(moment_bf16(coding, x, random));
}

void store_moment(const MomentView& view, const Floats& values, const RandomStream& random,
                  std::span<double> out, std::span<double> meta_out) {
  if (!is_quantized(view.coding.dtype)) {
    for (size_t i = 0; i < values.size(); ++i) {
      out[i] = wide_moment(view.coding, values[i], view.coding.stochastic ? random.bits(i) : 0);
    }
    return;
  }
  for (size_t first = 0; first < values.size(); first += view.group) {
    const size_t n = std::min(view.group, values.size() - first);
    std::vector<uint8_t> codes(n);
    uint32_t meta = 0;
    encode_moments(view.coding, std::span(values).subspan(first, n),
                   {random, static_cast<int64_t>(first)}, codes, meta);
    for (size_t i = 0; i < n; ++i) {
      out[first + i] = static_cast<double>(decode(view.coding.dtype, codes[i]));
    }
    meta_out[first / view.group] = meta;
  }
}

// A bf16 weight held as a double has the upper half of its f32's bits and no lower half.
Floats load_master(const RefCall& call) {
  const auto w = call.in[0].data, master = optional(call.in, kMaster);
  if (master.empty()) return Floats(w.begin(), w.end());
  if (call.in[kMaster].type.dtype == Dtype::f32) return Floats(master.begin(), master.end());
  Floats joined;
  for (size_t i = 0; i < w.size(); ++i) {
    const auto hi = static_cast<uint16_t>(bits_of(static_cast<float>(w[i])) >> 16);
    joined.push_back(join_master({hi, static_cast<int16_t>(master[i])}));
  }
  return joined;
}

void store_weight(const RefCall& call, const Floats& w) {
  const RandomStream random = stream(call, UpdateDraw::weight);
  const bool draws = std::get<AdamwAttrs>(call.attrs).stochastic_w;
  const size_t at = result_of(call, kMaster);
  for (size_t i = 0; i < w.size(); ++i) {
    double& stored = call.out[0].data[i];
    stored = draws ? f32_from_bf16(stochastic_bf16(w[i], random.bits(i))) : w[i];
    if (at == SIZE_MAX) continue;
    if (call.in[kMaster].type.dtype == Dtype::f32) {
      call.out[at].data[i] = w[i];
    } else {
      const MasterBits parts = split_master(w[i]);
      stored = float_of(static_cast<uint32_t>(parts.hi) << 16);
      call.out[at].data[i] = parts.lo;
    }
  }
}

void copy_states(const RefCall& call) {
  const auto keep = [&](size_t operand, size_t result) {
    if (result == SIZE_MAX) return;
    std::copy(call.in[operand].data.begin(), call.in[operand].data.end(),
              call.out[result].data.begin());
  };
  keep(0, 0), keep(2, 1), keep(3, 2);
  for (size_t i = kMaster; i < kAttempt; ++i) keep(i, result_of(call, i));
}

}  // namespace

void global_norm(const RefCall& call) {
  double sum = 0;
  for (size_t i = 1; i < call.in.size(); ++i) {
    for (const double g : call.in[i].data) sum += g * g;
  }
  const double norm = std::sqrt(sum);
  const double clip = call.in[0].data[0];
  call.out[0].data[0] = norm;
  call.out[1].data[0] = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1;
  call.out[2].data[0] = std::isfinite(norm) ? 0 : 1;
}

namespace {

void step(const RefCall& call) {
  if (call.in[8].data[0] != 0) return copy_states(call);
  const AdamwConstants k = constants(call);
  const MomentView first = moment_view(call, Moment::first);
  const MomentView second = moment_view(call, Moment::second);
  Floats w = load_master(call), m = load_moment(first), v = load_moment(second);
  for (size_t i = 0; i < w.size(); ++i) {
    const AdamwElement next =
        adamw_element(k, {w[i], m[i], v[i]}, static_cast<float>(call.in[1].data[i]));
    w[i] = next.w, m[i] = next.m, v[i] = next.v;
  }
  store_weight(call, w);
  const auto meta_out = [&](size_t operand) {
    const size_t at = result_of(call, operand);
    return at == SIZE_MAX ? std::span<double>() : call.out[at].data;
  };
  store_moment(first, m, stream(call, UpdateDraw::first), call.out[1].data, meta_out(kMeta));
  store_moment(second, v, stream(call, UpdateDraw::second), call.out[2].data, meta_out(kMeta + 1));
}

}  // namespace

void adamw_step(const RefCall& call) {
  step(call);
  if (std::get<AdamwAttrs>(call.attrs).amax) amax_of_results(call, 1);
}

}  // namespace octet::reference
