#include <algorithm>
#include <array>
#include <cmath>

#include "math/moment.h"
#include "study/states.h"

namespace octet {
namespace {

// The ratio of COAT's package: 448^2 / 2, where the paper has 448 / 2^-9.
constexpr double kPackageRatio = 448.0 * 448.0 / 2;

constexpr std::array<StateForm, kStateForms> kForms = {
    {{"e4m3", {Dtype::e4m3, false}},
     {"e4m3+x", {Dtype::e4m3, true}},
     {"e4m3+x100352", {Dtype::e4m3, true}, {.ratio = kPackageRatio}},
     {"e5m2", {Dtype::e5m2, false}},
     {"e5m2+x", {Dtype::e5m2, true}},
     {"hif8", {Dtype::hif8, false}},
     {"hif8+x", {Dtype::hif8, true}},
     {"de8", {Dtype::de8s, false}},
     {"de8+x", {Dtype::de8s, true}},
     {"companded", {Dtype::f32, false}, {.is_companded = true}}}};

Dtype dtype_of(Dtype dtype, Moment moment) {
  return dtype == Dtype::de8s && moment == Moment::second ? Dtype::de8u : dtype;
}

AbsRange range_of_group(std::span<const float> group) {
  AbsRange range;
  for (const float x : group) range = join(range, x);
  return range;
}

// m: 255 levels of both signs; v: 255 above zero, of which it never leaves the first.
float companded(float x, float amax, Moment moment) {
  if (amax == 0 || x == 0) return 0;
  const double y = static_cast<double>(x) / static_cast<double>(amax), size = std::abs(y);
  if (moment == Moment::second) {
    const double u = std::max(1.0, std::round(255 * std::sqrt(size))) / 255;
    return static_cast<float>(u * u * static_cast<double>(amax));
  }
  const double u = std::round(127 * 2 * size / (1 + size)) / 127;
  return static_cast<float>(std::copysign(u / (2 - u), y) * static_cast<double>(amax));
}

// A group whose k is chosen for another ratio than the format's.
void expand_with(const MomentCoding& coding, const RangeThresholds& thresholds,
                 std::span<const float> group, std::span<float> values) {
  std::vector<uint8_t> codes(group.size());
  const uint32_t meta = expansion_meta(moment_range(range_of_group(group)), thresholds);
  encode_with_meta(coding, meta, group, {}, codes);
  decode_moments(coding, meta, codes, values);
}

}  // namespace

std::span<const StateForm, kStateForms> state_forms() {
  return kForms;
}

std::vector<float> store_and_load(const StateForm& form, Moment moment, int64_t group,
                                  std::span<const float> x) {
  const MomentCoding coding{.dtype = dtype_of(form.kind.dtype, moment),
                            .moment = moment,
                            .expand = form.kind.expand,
                            .math = MathMode::fast};
  const bool is_stored = !form.how.is_companded && form.how.ratio == 0;
  if (is_stored) return store_and_load(coding, group, x);
  RangeThresholds thresholds{};
  if (!form.how.is_companded) thresholds = make_range_thresholds(form.how.ratio);
  std::vector<float> result(x.size());
  for (size_t first = 0; first < x.size(); first += static_cast<size_t>(group)) {
    const auto part = x.subspan(first, std::min(static_cast<size_t>(group), x.size() - first));
    const auto to = std::span(result).subspan(first, part.size());
    if (!form.how.is_companded) {
      expand_with(coding, thresholds, part, to);
      continue;
    }
    const float amax = range_of_group(part).amax;
    for (size_t i = 0; i < part.size(); ++i) to[i] = companded(part[i], amax, moment);
  }
  return result;
}

}  // namespace octet
