#include "python/optimizer/step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backends/cpu/adamw/adamw_groups.h"
#include "backends/cpu/elementwise/reduce.h"
#include "backends/cuda/params/update.h"
#include "base/error.h"
#include "formats/codec.h"
#include "math/expansion_options.h"

namespace octet {
namespace {

// formats_of gives the one for the other.
static_assert(static_cast<int>(cpu::WeightStore::plain) ==
                  static_cast<int>(cuda::WeightStore::plain) &&
              static_cast<int>(cpu::WeightStore::remainder) ==
                  static_cast<int>(cuda::WeightStore::remainder) &&
              static_cast<int>(cpu::WeightStore::master) ==
                  static_cast<int>(cuda::WeightStore::master) &&
              static_cast<int>(cpu::WeightStore::stochastic) ==
                  static_cast<int>(cuda::WeightStore::stochastic));

MomentCoding coding_of(const StateFormat& format, Moment moment, MathMode math) {
  const bool first = moment == Moment::first;
  return {.dtype = first ? first_moment_dtype(format) : second_moment_dtype(format),
          .moment = moment,
          .expand = format.expand,
          .stochastic = format.stochastic,
          .math = math};
}

OptimPolicy policy_of(const OctetOptimizerOptions& options) {
  if (options.group < 1 || options.group > cpu::kMaxGroup) {
    throw Error(ErrorCode::invalid_argument, "[optimizer] expected groups of 1 to {}, got {}",
                cpu::kMaxGroup, options.group);
  }
  OptimPolicy policy;
  policy.master = master_from_name(options.master);
  policy.state_m = state_format_from_name(options.state_m);
  policy.state_v = state_format_from_name(options.state_v);
  policy.group = options.group;
  policy.math =
      math_from_name(options.math) == MathMode::exact ? PowerMath::exact : PowerMath::fast;
  policy.seed = options.seed;
  return policy;
}

Dtype dtype_of(int32_t dtype, const char* what) {
  constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::bf16, Dtype::fp16};
  if (dtype >= 0 && dtype < 3) return kDtypes[dtype];
  throw Error(ErrorCode::invalid_argument, "[optimizer] {}: expected f32, bf16 or fp16, got {}",
              what, dtype);
}

bool is_aligned(const void* address, int bytes) {
  return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(bytes) == 0;
}

// Nothing is read before every tensor has passed.
void check_tensor(const OctetOptimizer& optimizer, const OctetTensor& t) {
  const OctetStateLayout layout = state_layout(optimizer, t.n, t.dtype);
  const int master_bytes = layout.master == OCTET_REMAINDER_I16 ? 2 : 4;
  const auto check = [&](const void* address, int bytes, bool is_needed, const char* what) {
    if (t.n == 0 || !is_needed) return;
    if (address != nullptr && is_aligned(address, bytes)) return;
    throw Error(ErrorCode::invalid_argument,
                "[optimizer] {}: expected memory aligned to {} bytes, got {}", what, bytes,
                address == nullptr ? "none" : "some that is not");
  };
  check(t.weight, dtype_bytes(dtype_of(t.dtype, "weight")), true, "weight");
  check(t.gradient, dtype_bytes(dtype_of(t.gradient_dtype, "gradient")), true, "gradient");
  check(t.master, master_bytes, layout.master != OCTET_NO_MASTER, "master");
  check(t.m, layout.m_bytes, true, "first moment");
  check(t.v, layout.v_bytes, true, "second moment");
  check(t.m_meta, 4, layout.m_groups > 0, "first moment's metadata");
  check(t.v_meta, 4, layout.v_groups > 0, "second moment's metadata");
  if (t.t == nullptr || !is_aligned(t.t, 8))
    throw Error(ErrorCode::invalid_argument,
                "[optimizer] counter: expected memory aligned to 8 bytes, got {}",
                t.t == nullptr ? "none" : "some that is not");
}

// FP16 as f32, which the sums read.
std::vector<float> widened(const OctetTensor& t) {
  std::vector<float> values(static_cast<size_t>(t.n));
  const auto* words = static_cast<const uint16_t*>(t.gradient);
  for (size_t i = 0; i < values.size(); ++i) values[i] = decode<Dtype::fp16>(words[i]);
  return values;
}

// As the trainer's global_norm: the squares of each gradient in double, then those sums in order.
cpu::SumOfSquares squares_of(std::span<const OctetTensor> tensors, ThreadPool& pool) {
  cpu::SumOfSquares total{0, true};
  std::vector<double> scratch;
  for (const OctetTensor& t : tensors) {
    scratch.resize(static_cast<size_t>(cpu::reduce_scratch(t.n)));
    const Dtype dtype = dtype_of(t.gradient_dtype, "gradient");
    const std::vector<float> wide = dtype == Dtype::fp16 ? widened(t) : std::vector<float>();
    const cpu::In gradient =
        dtype == Dtype::fp16 ? cpu::In{wide.data(), Dtype::f32} : cpu::In{t.gradient, dtype};
    const cpu::SumOfSquares part = cpu::sum_of_squares(gradient, t.n, scratch.data(), pool);
    total.value += part.value;
    total.finite = total.finite && part.finite;
  }
  return total;
}

AdamwConstants constants_of(const OctetTensor& t, float grad_scale) {
  const auto count = static_cast<double>(*t.t + 1);
  return {.beta1 = static_cast<float>(t.beta1),
          .beta2 = static_cast<float>(t.beta2),
          .rest1 = rest_of(t.beta1),
          .rest2 = rest_of(t.beta2),
          .eps = static_cast<float>(t.eps),
          .weight_decay = static_cast<float>(t.weight_decay),
          .lr = static_cast<float>(t.lr),
          .c1 = static_cast<float>(1 - std::pow(t.beta1, count)),
          .c2 = static_cast<float>(1 - std::pow(t.beta2, count)),
          .grad_scale = grad_scale};
}

cpu::WeightStore store_of(const OctetOptimizer& optimizer, int32_t dtype) {
  const int32_t master = state_layout(optimizer, 0, dtype).master;
  if (master == OCTET_REMAINDER_I16) return cpu::WeightStore::remainder;
  if (master == OCTET_MASTER_F32) return cpu::WeightStore::master;
  return dtype == OCTET_BF16 && optimizer.policy.master == Master::bf16_sr
             ? cpu::WeightStore::stochastic
             : cpu::WeightStore::plain;
}

void step_tensor(OctetOptimizer& optimizer, const OctetTensor& t, const AdamwConstants& k,
                 uint32_t attempt) {
  const auto stream = [&](UpdateDraw draw) {
    return update_stream(t.name, optimizer.policy.seed, attempt, draw);
  };
  const cpu::Out weight{t.weight, dtype_of(t.dtype, "weight")};
  cpu::adamw_groups({.grad = {t.gradient, dtype_of(t.gradient_dtype, "gradient")},
                     .weight_from = weight,
                     .weight_to = weight,
                     .store = store_of(optimizer, t.dtype),
                     .master_from = t.master,
                     .master_to = t.master,
                     .weight_random = stream(UpdateDraw::weight),
                     .m = {optimizer.m, t.m, t.m, t.m_meta, t.m_meta, stream(UpdateDraw::first)},
                     .v = {optimizer.v, t.v, t.v, t.v_meta, t.v_meta, stream(UpdateDraw::second)},
                     .group = optimizer.policy.group},
                    k, t.n, optimizer.pool);
}

const MomentCoding& coding_of(const OctetOptimizer& optimizer, const OctetMoment& moment) {
  return moment.which == 0 ? optimizer.m : optimizer.v;
}

}  // namespace

OctetStateLayout state_layout(const OctetOptimizer& optimizer, int64_t n, int32_t dtype) {
  if (n < 0) {
    throw Error(ErrorCode::invalid_argument, "[optimizer] expected 0 elements or more, got {}", n);
  }
  const int64_t groups = cpu::ceil_div(n, optimizer.policy.group);
  const auto groups_of = [&](Dtype moment) { return is_quantized(moment) ? groups : 0; };
  const Dtype weight = dtype_of(dtype, "weight");
  OctetStateLayout layout{};
  layout.m_bytes = dtype_bytes(optimizer.m.dtype);
  layout.v_bytes = dtype_bytes(optimizer.v.dtype);
  layout.m_groups = groups_of(optimizer.m.dtype);
  layout.v_groups = groups_of(optimizer.v.dtype);
  layout.master = OCTET_NO_MASTER;
  if (weight == Dtype::fp16 || (weight == Dtype::bf16 && optimizer.policy.master == Master::fp32)) {
    layout.master = OCTET_MASTER_F32;
  } else if (weight == Dtype::bf16 && optimizer.policy.master == Master::bf16_remainder) {
    layout.master = OCTET_REMAINDER_I16;
  }
  return layout;
}

OctetFormats formats_of(const OctetOptimizer& optimizer) {
  OctetFormats formats{};
  formats.m_dtype = static_cast<uint8_t>(optimizer.m.dtype);
  formats.m_expand = optimizer.m.expand ? 1 : 0;
  formats.m_stochastic = optimizer.m.stochastic ? 1 : 0;
  formats.v_dtype = static_cast<uint8_t>(optimizer.v.dtype);
  formats.v_expand = optimizer.v.expand ? 1 : 0;
  formats.v_stochastic = optimizer.v.stochastic ? 1 : 0;
  formats.exact = optimizer.policy.math == PowerMath::exact ? 1 : 0;
  for (int32_t dtype : {OCTET_F32, OCTET_BF16, OCTET_FP16}) {
    formats.wide[dtype] = static_cast<uint8_t>(dtype_of(dtype, "weight"));
    formats.store[dtype] = static_cast<uint8_t>(store_of(optimizer, dtype));
  }
  return formats;
}

double sum_of_squares(OctetOptimizer& optimizer, std::span<const OctetTensor> tensors) {
  for (const OctetTensor& t : tensors) check_tensor(optimizer, t);
  const cpu::SumOfSquares squares = squares_of(tensors, optimizer.pool);
  return squares.finite ? squares.value : std::numeric_limits<double>::quiet_NaN();
}

void step_tensors(OctetOptimizer& optimizer, std::span<const OctetTensor> tensors,
                  OctetStep& step) {
  for (const OctetTensor& t : tensors) check_tensor(optimizer, t);
  const auto clip = static_cast<double>(static_cast<float>(step.clip));
  float grad_scale = 1;
  step.grad_norm = std::numeric_limits<double>::quiet_NaN();
  step.skipped = 0;
  if (clip > 0 || step.skip_nonfinite != 0) {
    const cpu::SumOfSquares squares =
        step.has_squares != 0 ? cpu::SumOfSquares{step.squares, std::isfinite(step.squares)}
                              : squares_of(tensors, optimizer.pool);
    step.grad_norm = std::sqrt(squares.value);
    step.skipped = squares.finite ? 0 : 1;
    if (!squares.finite) return;
    if (clip > 0) grad_scale = static_cast<float>(std::min(1.0, clip / (step.grad_norm + 1e-6)));
  }
  for (const OctetTensor& t : tensors) {
    step_tensor(optimizer, t, constants_of(t, grad_scale), step.attempt);
    *t.t += 1;
  }
}

void decode_moment(const OctetOptimizer& optimizer, const OctetMoment& moment) {
  const MomentCoding& coding = coding_of(optimizer, moment);
  const std::span<float> values(moment.values, static_cast<size_t>(moment.n));
  if (coding.dtype == Dtype::f32) {
    std::copy_n(static_cast<const float*>(moment.stored), values.size(), values.begin());
  } else if (coding.dtype == Dtype::bf16) {
    const auto* words = static_cast<const uint16_t*>(moment.stored);
    for (size_t i = 0; i < values.size(); ++i) values[i] = f32_from_bf16(words[i]);
  } else {
    const int64_t groups = expand_groups(moment.n, optimizer.policy.group);
    decode_groups(coding, optimizer.policy.group, {moment.meta, static_cast<size_t>(groups)},
                  {static_cast<const uint8_t*>(moment.stored), values.size()}, values);
  }
}

void encode_moment(const OctetOptimizer& optimizer, const OctetMoment& moment) {
  MomentCoding coding = coding_of(optimizer, moment);
  coding.stochastic = false;
  const std::span<const float> values(moment.values, static_cast<size_t>(moment.n));
  if (coding.dtype == Dtype::f32) {
    std::copy(values.begin(), values.end(), static_cast<float*>(moment.stored));
    return;
  }
  if (coding.dtype == Dtype::bf16) {
    auto* words = static_cast<uint16_t*>(moment.stored);
    for (size_t i = 0; i < values.size(); ++i) words[i] = moment_bf16(coding, values[i], 0);
    return;
  }
  const auto group = static_cast<size_t>(optimizer.policy.group);
  const std::span<uint8_t> codes(static_cast<uint8_t*>(moment.stored), values.size());
  for (size_t first = 0; first < values.size(); first += group) {
    const size_t n = std::min(group, values.size() - first);
    encode_moments(coding, values.subspan(first, n), {}, codes.subspan(first, n),
                   moment.meta[first / group]);
  }
}

}  // namespace octet

OctetOptimizer::OctetOptimizer(const OctetOptimizerOptions& options)
    : policy(octet::policy_of(options)),
      m(octet::coding_of(policy.state_m, octet::Moment::first,
                         octet::math_from_name(options.math))),
      v(octet::coding_of(policy.state_v, octet::Moment::second,
                         octet::math_from_name(options.math))),
      pool(options.n_threads) {}
