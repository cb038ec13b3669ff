#include "math/state_error.h"

#include <algorithm>

#include "formats/codec.h"

namespace octet {
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

}  // namespace octet
