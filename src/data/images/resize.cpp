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

// A filter's weight of what lies `distance` from the center; 0 from `support` on.
struct Filter {
  double support;
  double (*weight)(double distance);
};

double bilinear(double x) {
  return std::max(0.0, 1.0 - x);
}

double bicubic(double x) {
  constexpr double kA = -0.5;
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1;
  return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * kA : 0.0;
}

Filter filter_of(ImageFilter filter) {
  return filter == ImageFilter::bicubic ? Filter{2, bicubic} : Filter{1, bilinear};
}

// In double, in Pillow's order of operations, so that the same integers come out.
std::vector<Taps> taps_of(int64_t n_in, int64_t n_out, const Filter& filter) {
  const double scale = static_cast<double>(n_in) / static_cast<double>(n_out);
  const double stretch = std::max(scale, 1.0), inv_stretch = 1.0 / stretch;
  const double support = filter.support * stretch;
  std::vector<Taps> taps(static_cast<size_t>(n_out));
  std::vector<double> raw;
  for (size_t i = 0; i < taps.size(); ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, std::llround(center - support));
    const auto end = std::min<int64_t>(n_in, std::llround(center + support));
    raw.clear();
    double sum = 0;
    for (int64_t at = first; at < end; ++at) {
      const double distance = (static_cast<double>(at) - center + 0.5) * inv_stretch;
      raw.push_back(filter.weight(std::abs(distance)));
      sum += raw.back();
    }
    taps[i].first = first;
    for (const double weight : raw) {
      const double share = sum != 0 ? weight / sum : weight;
      taps[i].weights.push_back(static_cast<int32_t>(std::llround(share * (1 << kFractionBits))));
    }
  }
  return taps;
}

uint8_t rounded(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
}

Image resize_rows(const Image& image, int64_t width, const Filter& filter) {
  const std::vector<Taps> taps = taps_of(image.width, width, filter);
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

Image resize_columns(const Image& image, int64_t height, const Filter& filter) {
  const std::vector<Taps> taps = taps_of(image.height, height, filter);
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

Image resize(const Image& image, int64_t height, int64_t width, ImageFilter filter) {
  CHECK(height >= 1 && width >= 1 && image.height >= 1 && image.width >= 1);
  const Filter how = filter_of(filter);
  Image result = image.width == width ? image : resize_rows(image, width, how);
  return result.height == height ? result : resize_columns(result, height, how);
}

}  // namespace octet
