#include "math/moment.h"

#include <algorithm>

#include "formats/codec.h"
#include "math/moment_codes.h"

namespace octet {
namespace {

template <typename F>
void visit_moment(Dtype dtype, F&& f) {
  visit_format(dtype, [&]<Dtype D>() {
    if constexpr (is_moment_format(D)) {
      f.template operator()<D>();
    } else {
      throw Error(ErrorCode::invalid_argument,
                  "[moment] expected a format that moments may have, got {}", dtype_name(D));
    }
  });
}

}  // namespace

uint32_t moment_meta(const MomentCoding& coding, const AbsRange& range, uint32_t up) {
  if (coding.expand) {
    return expansion_meta(moment_range(range),
                          find_expansion(coding.dtype, coding.moment).thresholds, up);
  }
  if (!(range.amax >= kMinExpansionAmax)) return 0;
  return (expansion_amax24(range.amax, up) << 8) | kPlainK16;
}

void moment_scale(const MomentCoding& coding, uint32_t meta, std::span<const float> x,
                  std::span<float> y) {
  visit_moment(coding.dtype, [&]<Dtype D>() {
    for (size_t i = 0; i < x.size(); ++i) y[i] = detail::scale_moment<D>(coding, meta, x[i]);
  });
}

void decode_moments(const MomentCoding& coding, uint32_t meta, std::span<const uint8_t> codes,
                    std::span<float> x) {
  visit_moment(coding.dtype, [&]<Dtype D>() {
    for (size_t i = 0; i < x.size(); ++i) x[i] = detail::decode_moment<D>(coding, meta, codes[i]);
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
      const uint32_t random = coding.stochastic ? draw.random.bits(element) : 0;
      codes[i] = static_cast<uint8_t>(encode_moment<D>(coding, meta, stored_moment(x[i]), random));
    }
  });
}

void encode_moments(const MomentCoding& coding, std::span<const float> x, const MomentDraw& draw,
                    std::span<uint8_t> codes, uint32_t& meta) {
  AbsRange range;
  for (const float value : x) range = join(range, stored_moment(value));
  meta = moment_meta(coding, range, amax_rounding(coding, draw.random).up(draw.first));
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
