#include "data/images/transforms.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/philox.h"
#include "data/images/resize.h"

namespace octet {
namespace {

constexpr uint64_t kChoices = name_hash("data.images");
// Words of a row's block.
enum Choice : int { top_word, left_word, flip_word };

// Uniform over 0 .. n - 1, to within n / 2^32.
int64_t below(int64_t n, uint32_t word) {
  return static_cast<int64_t>((static_cast<uint64_t>(n) * word) >> 32);
}

}  // namespace

Image crop(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width) {
  Image result(image.channels, height, width);
  const int64_t first = std::max<int64_t>(0, -left), end = std::min(width, image.width - left);
  if (first >= end) return result;
  for (int64_t c = 0; c < image.channels; ++c) {
    for (int64_t y = std::max<int64_t>(0, -top); y < std::min(height, image.height - top); ++y) {
      const auto from =
          image.row(c, y + top)
              .subspan(static_cast<size_t>(first + left), static_cast<size_t>(end - first));
      std::copy(from.begin(), from.end(), result.row(c, y).begin() + first);
    }
  }
  return result;
}

Image center_crop(const Image& image, int64_t size) {
  const auto before = [&](int64_t extent) {
    return static_cast<int64_t>(std::lrint(static_cast<double>(extent - size) / 2));
  };
  return crop(image, before(image.height), before(image.width), size, size);
}

Image flip_left_right(const Image& image) {
  Image result = image;
  for (int64_t c = 0; c < image.channels; ++c) {
    for (int64_t y = 0; y < image.height; ++y) {
      const auto row = result.row(c, y);
      std::reverse(row.begin(), row.end());
    }
  }
  return result;
}

Image resize_shorter_side(const Image& image, int64_t size) {
  const auto [shorter, longer] = std::minmax(image.height, image.width);
  if (shorter == size) return image;
  const int64_t other = std::max<int64_t>(size, size * longer / shorter);
  return image.height <= image.width ? resize(image, size, other) : resize(image, other, size);
}

void normalize(const Image& image, std::span<const float> mean, std::span<const float> std_dev,
               std::span<float> out) {
  constexpr int kLevels = 256;
  const auto n = static_cast<size_t>(image.height * image.width);
  const auto n_channels = static_cast<size_t>(image.channels);
  const auto has_values = [&](std::span<const float> of) {
    return of.size() == 1 || of.size() == n_channels;
  };
  CHECK(has_values(mean) && has_values(std_dev) && out.size() == n * n_channels);
  for (size_t c = 0; c < n_channels; ++c) {
    const float m = mean[mean.size() == 1 ? 0 : c], s = std_dev[std_dev.size() == 1 ? 0 : c];
    std::array<float, kLevels> values;
    for (int i = 0; i < kLevels; ++i) {
      values[static_cast<size_t>(i)] = (static_cast<float>(i) / 255.0f - m) / s;
    }
    for (size_t i = c * n; i < (c + 1) * n; ++i) out[i] = values[image.pixels[i]];
  }
}

void transform(Image image, const ImageTransforms& how, const RowCell& where,
               std::span<float> out) {
  image = resize_shorter_side(with_channels(std::move(image), how.channels),
                              how.resize == 0 ? how.size : how.resize);
  if (where.use == RowUse::evaluation) {
    return normalize(center_crop(image, how.size), how.mean, how.std_dev, out);
  }
  const PhiloxKey key{static_cast<uint32_t>(where.seed), static_cast<uint32_t>(where.seed >> 32)};
  const PhiloxBlock words = philox(key, static_cast<uint64_t>(where.drawn), kChoices);
  if (how.crop == ImageCrop::center) {
    image = center_crop(image, how.size);
  } else {
    const int64_t n_tops = image.height + 2 * how.pad - how.size + 1;
    const int64_t n_lefts = image.width + 2 * how.pad - how.size + 1;
    image = crop(image, below(n_tops, words.word[top_word]) - how.pad,
                 below(n_lefts, words.word[left_word]) - how.pad, how.size, how.size);
  }
  if (how.flip && words.word[flip_word] >> 31 != 0) image = flip_left_right(image);
  normalize(image, how.mean, how.std_dev, out);
}

}  // namespace octet
