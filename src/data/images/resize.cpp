#include "data/images/resize.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace octet {
namespace {

constexpr int kFractionBits = 22;

// What an output pixel is made of: input pixels from `first` on.
struct Taps {
  int64_t first = 0;
  std::vector<int32_t> weights;
};

int64_t half_up(double value) {
  return static_cast<int64_t>(std::floor(value + 0.5));
}

// In double, in Pillow's order of operations, so that the same integers come out.
std::vector<Taps> taps_of(int64_t n_in, int64_t n_out) {
  const double scale = static_cast<double>(n_in) / static_cast<double>(n_out);
  const double support = std::max(scale, 1.0), inv_support = 1.0 / support;
  std::vector<Taps> taps(static_cast<size_t>(n_out));
  std::vector<double> raw;
  for (size_t i = 0; i < taps.size(); ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, half_up(center - support));
    const auto end = std::min(n_in, half_up(center + support));
    raw.clear();
    double sum = 0;
    for (int64_t at = first; at < end; ++at) {
      const double distance = std::abs((static_cast<double>(at) - center + 0.5) * inv_support);
      raw.push_back(std::max(0.0, 1.0 - distance));
      sum += raw.back();
    }
    taps[i].first = first;
    for (const double weight : raw) {
      const double share = sum != 0 ? weight / sum : weight;
      taps[i].weights.push_back(static_cast<int32_t>(half_up(share * (1 << kFractionBits))));
    }
  }
  return taps;
}

uint8_t rounded(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
}

Image resize_rows(const Image& image, int64_t width) {
  const std::vector<Taps> taps = taps_of(image.width, width);
  Image result(image.channels, image.height, width);
  for (int64_t c = 0; c < image.channels; ++c) {
    for (int64_t y = 0; y < image.height; ++y) {
      const auto from = image.row(c, y);
      const auto to = result.row(c, y);
      for (size_t x = 0; x < to.size(); ++x) {
        int32_t sum = 1 << (kFractionBits - 1);
        const auto& [first, weights] = taps[x];
        for (size_t i = 0; i < weights.size(); ++i) {
          sum += from[static_cast<size_t>(first) + i] * weights[i];
        }
        to[x] = rounded(sum);
      }
    }
  }
  return result;
}

Image resize_columns(const Image& image, int64_t height) {
  const std::vector<Taps> taps = taps_of(image.height, height);
  Image result(image.channels, height, image.width);
  std::vector<int32_t> sums(static_cast<size_t>(image.width));
  for (int64_t c = 0; c < image.channels; ++c) {
    for (int64_t y = 0; y < height; ++y) {
      std::fill(sums.begin(), sums.end(), 1 << (kFractionBits - 1));
      const auto& [first, weights] = taps[static_cast<size_t>(y)];
      for (size_t i = 0; i < weights.size(); ++i) {
        const auto from = image.row(c, first + static_cast<int64_t>(i));
        for (size_t x = 0; x < sums.size(); ++x) sums[x] += from[x] * weights[i];
      }
      std::transform(sums.begin(), sums.end(), result.row(c, y).begin(), rounded);
    }
  }
  return result;
}

}  // namespace

Image resize(const Image& image, int64_t height, int64_t width) {
  CHECK(height >= 1 && width >= 1 && image.height >= 1 && image.width >= 1);
  Image result = image.width == width ? image : resize_rows(image, width);
  return result.height == height ? result : resize_columns(result, height);
}

}  // namespace octet
