#include "math/moment.h"

#include <algorithm>

#include "formats/codec.h"

namespace octet {
namespace {

template <typename F>
void visit_moment(Dtype dtype, F&& f) {
  visit_format(dtype, [&]<Dtype D>() {
    if constexpr (is_moment_format(D)) {
      f.template operator()<D>();
    } else {
      throw Error(ErrorCode::invalid_argument,
                  "[moment] expected e4m3, e5m2, hif8, de8s or de8u, got {}", dtype_name(D));
    }
  });
}

template <Dtype D>
float decode_one(const MomentCoding& coding, uint32_t meta, uint32_t code) {
  const float q = decode<D>(code);
  if (!coding.expand) return meta == 0 ? 0.0f : q / format_row(D).amax_target * meta_amax(meta);
  if (coding.math == MathMode::exact)
    return contract<MathMode::exact>(q, meta, format_row(D).amax_target);
  return contract<MathMode::fast>(q, meta, format_row(D).amax_target);
}

template <Dtype D>
float scale_one(const MomentCoding& coding, uint32_t meta, float x) {
  constexpr float kTarget = format_row(D).amax_target;
  const float least = keeps_nonzero(coding) ? decode<D>(format_row(D).min_code) : 0.0f;
  float y = 0.0f;
  if (!coding.expand) {
    y = x / meta_amax(meta) * kTarget;
  } else if (coding.math == MathMode::exact) {
    y = expand<MathMode::exact>(x, meta, kTarget);
  } else {
    y = expand<MathMode::fast>(x, meta, kTarget);
  }
  const bool vanishes = x != 0.0f && float_of(bits_of(y) & kF32Magnitude) < least;
  return !vanishes ? y : x > 0 ? least : -least;
}

// The neighbour of a code away from zero (step 1) or toward it (step -1). HiF8's codes are not in
// the order of their values: there the neighbour comes from the value.
template <Dtype D>
uint32_t next_code(uint32_t code, bool negative, int step) {
  constexpr FormatRow kRow = format_row(D);
  if constexpr (kRow.rule == DecodeRule::dynamic) {
    return static_cast<uint32_t>(static_cast<int>(code) + (negative ? -step : step));
  } else if constexpr (kRow.rule == DecodeRule::hif8) {
    const uint32_t sign = negative ? 0x80u : 0u;
    const float magnitude = decode<D>(code & 0x7Fu);
    if (magnitude == 0.0f) return kRow.min_code | sign;
    const int exponent = unpack(magnitude).exponent;
    const float place = power_of_two(exponent - detail::hif8_fraction_bits(exponent));
    const float next = step > 0 ? magnitude + place : float_of(bits_of(magnitude) - 1);
    const uint32_t found = encode<D>(next, Rounding::rtz);
    return found == kRow.zero_code ? found : found | sign;
  } else {
    return static_cast<uint32_t>(static_cast<int>(code) + step);
  }
}

// Draws between the nearest code and the neighbour on x's other side, by the distances of the
// decoded values.
template <Dtype D>
uint32_t draw_code(const MomentCoding& coding, uint32_t meta, float x, uint32_t random) {
  constexpr FormatRow kRow = format_row(D);
  const auto magnitude = [](float value) { return float_of(bits_of(value) & kF32Magnitude); };
  const uint32_t nearest = encode<D>(scale_one<D>(coding, meta, x));
  const float size = magnitude(x);
  const float here = magnitude(decode_one<D>(coding, meta, nearest));
  if (!is_finite(x) || x == 0.0f || here == size) return nearest;
  uint32_t lo = nearest, hi = nearest;
  if (here > size) {
    lo = next_code<D>(nearest, x < 0, -1);
    if (keeps_nonzero(coding) && decode<D>(lo) == 0.0f) return nearest;
  } else {
    const bool no_more = kRow.rule == DecodeRule::dynamic && x < 0 && nearest == 0;  // no -1
    if (no_more || magnitude(decode<D>(nearest)) >= kRow.amax_target) return nearest;
    hi = next_code<D>(nearest, x < 0, 1);
  }
  const float below = magnitude(decode_one<D>(coding, meta, lo));
  const float above = magnitude(decode_one<D>(coding, meta, hi));
  const float share = (size - below) / (above - below);
  return static_cast<float>(random >> 8) * 0x1p-24f < share ? hi : lo;
}

}  // namespace

uint32_t moment_meta(const MomentCoding& coding, const AbsRange& range) {
  if (coding.expand) {
    return expansion_meta(range, find_expansion(coding.dtype, coding.moment).thresholds);
  }
  if (!(range.amax >= kMinExpansionAmax)) return 0;
  return (expansion_amax24(range.amax) << 8) | kPlainK16;
}

void moment_scale(const MomentCoding& coding, uint32_t meta, std::span<const float> x,
                  std::span<float> y) {
  visit_moment(coding.dtype, [&]<Dtype D>() {
    for (size_t i = 0; i < x.size(); ++i) y[i] = scale_one<D>(coding, meta, x[i]);
  });
}

void decode_moments(const MomentCoding& coding, uint32_t meta, std::span<const uint8_t> codes,
                    std::span<float> x) {
  visit_moment(coding.dtype, [&]<Dtype D>() {
    for (size_t i = 0; i < x.size(); ++i) x[i] = decode_one<D>(coding, meta, codes[i]);
  });
}

void encode_with_meta(const MomentCoding& coding, uint32_t meta, std::span<const float> x,
                      const MomentDraw& draw, std::span<uint8_t> codes) {
  if (meta == 0) {
    std::fill(codes.begin(), codes.end(), uint8_t{0});
    return;
  }
  visit_moment(coding.dtype, [&]<Dtype D>() {
    for (size_t i = 0; i < x.size(); ++i) {
      const uint64_t element = static_cast<uint64_t>(draw.first) + i;
      codes[i] = static_cast<uint8_t>(
          coding.stochastic ? draw_code<D>(coding, meta, x[i], draw.random.bits(element))
                            : encode<D>(scale_one<D>(coding, meta, x[i])));
    }
  });
}

void encode_moments(const MomentCoding& coding, std::span<const float> x, const MomentDraw& draw,
                    std::span<uint8_t> codes, uint32_t& meta) {
  AbsRange range;
  for (const float value : x) range = join(range, value);
  meta = moment_meta(coding, range);
  encode_with_meta(coding, meta, x, draw, codes);
}

void decode_groups(const MomentCoding& coding, int64_t group, std::span<const uint32_t> meta,
                   std::span<const uint8_t> codes, std::span<float> x) {
  CHECK(codes.size() == x.size() && std::ssize(meta) == expand_groups(std::ssize(x), group));
  const auto most = static_cast<size_t>(group);
  for (size_t first = 0, g = 0; first < x.size(); first += most, ++g) {
    const size_t n = std::min(most, x.size() - first);
    decode_moments(coding, meta[g], codes.subspan(first, n), x.subspan(first, n));
  }
}

}  // namespace octet
