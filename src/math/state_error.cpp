#include "math/state_error.h"

#include <algorithm>
#include <cmath>

#include "formats/codec.h"

namespace octet {
namespace {

// DE8 has a signed form for m and an unsigned one for v.
Dtype dtype_of(Dtype dtype, Moment moment) {
  if (dtype != Dtype::de8s && dtype != Dtype::de8u) return dtype;
  return moment == Moment::first ? Dtype::de8s : Dtype::de8u;
}

std::vector<float> stored(std::span<const float> x, MomentKind kind, Moment moment,
                          const StateErrorOptions& options) {
  const MomentCoding coding{.dtype = dtype_of(kind.dtype, moment),
                            .moment = moment,
                            .expand = kind.expand,
                            .math = options.math};
  return store_and_load(coding, options.group, x);
}

void check_sizes(std::span<const float> m, std::span<const float> v) {
  if (m.size() == v.size() && !m.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              "[state error] expected as many values of m as of v, and some, got {} and {}",
              m.size(), v.size());
}

double direction(float m, float v, double eps) {
  return static_cast<double>(m) / (std::sqrt(static_cast<double>(v)) + eps);
}

struct States {
  std::span<const float> m, v;
};

double mean_square(const States& exact, const States& quantized, double eps) {
  double sum = 0;
  for (size_t i = 0; i < exact.m.size(); ++i) {
    const double d =
        direction(exact.m[i], exact.v[i], eps) - direction(quantized.m[i], quantized.v[i], eps);
    sum += d * d;
  }
  return sum / static_cast<double>(exact.m.size());
}

}  // namespace

std::vector<float> store_and_load(const MomentCoding& coding, int64_t group,
                                  std::span<const float> x) {
  std::vector<float> result(x.begin(), x.end());
  if (coding.dtype == Dtype::f32) return result;
  if (coding.dtype == Dtype::bf16) {
    for (float& value : result) value = f32_from_bf16(moment_bf16(coding, value, 0));
    return result;
  }
  const int64_t n = std::ssize(x);
  std::vector<uint8_t> codes(x.size());
  std::vector<uint32_t> meta(static_cast<size_t>(expand_groups(n, group)));
  for (int64_t first = 0, g = 0; first < n; first += group, ++g) {
    const auto at = static_cast<size_t>(first);
    const auto count = static_cast<size_t>(std::min(group, n - first));
    encode_moments(coding, x.subspan(at, count), {}, std::span(codes).subspan(at, count),
                   meta[static_cast<size_t>(g)]);
  }
  decode_groups(coding, group, meta, codes, result);
  return result;
}

double state_mse(std::span<const float> m, std::span<const float> v, MomentKind first,
                 MomentKind second, const StateErrorOptions& options) {
  check_sizes(m, v);
  const auto stored_m = stored(m, first, Moment::first, options);
  const auto stored_v = stored(v, second, Moment::second, options);
  return mean_square({m, v}, {stored_m, stored_v}, options.eps);
}

StateErrorTable state_error_table(std::span<const float> m, std::span<const float> v,
                                  std::span<const MomentKind> kinds,
                                  const StateErrorOptions& options) {
  check_sizes(m, v);
  std::vector<std::vector<float>> first, second;
  for (const MomentKind kind : kinds) {
    first.push_back(stored(m, kind, Moment::first, options));
    second.push_back(stored(v, kind, Moment::second, options));
  }
  StateErrorTable table{{kinds.begin(), kinds.end()}, {kinds.begin(), kinds.end()}, {}};
  for (const auto& stored_m : first) {
    for (const auto& stored_v : second) {
      table.mse.push_back(mean_square({m, v}, {stored_m, stored_v}, options.eps));
    }
  }
  return table;
}

}  // namespace octet
