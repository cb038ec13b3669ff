#include "data/images/transforms.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/philox.h"

namespace octet {
namespace {

constexpr int kFractionBits = 22;

// Input pixels that make an output pixel, from `first` on.
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

// The first of some pixels of an axis, and how many.
struct Range {
  int64_t first = 0, n = 0;
};

// Of the pixels of `wanted`. In double, in Pillow's order of operations, so that the same integers
// come out.
std::vector<Taps> taps_of(int64_t n_in, int64_t n_out, const Range& wanted, const Filter& filter) {
  const double scale = static_cast<double>(n_in) / static_cast<double>(n_out);
  const double stretch = std::max(scale, 1.0), inv_stretch = 1.0 / stretch;
  const double support = filter.support * stretch;
  std::vector<Taps> taps(static_cast<size_t>(wanted.n));
  std::vector<double> raw;
  for (size_t i = 0; i < taps.size(); ++i) {
    const double place = static_cast<double>(wanted.first) + static_cast<double>(i);
    const double center = (place + 0.5) * scale;
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

Image resize_rows(const Image& image, int64_t width, const Range& wanted, const Filter& filter) {
  const std::vector<Taps> taps = taps_of(image.width, width, wanted, filter);
  Image result(image.channels, image.height, wanted.n);
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

Image resize_columns(const Image& image, int64_t height, const Range& wanted,
                     const Filter& filter) {
  const std::vector<Taps> taps = taps_of(image.height, height, wanted, filter);
  Image result(image.channels, wanted.n, image.width);
  std::vector<int32_t> sums(static_cast<size_t>(image.width));
  for (int64_t c = 0; c < image.channels; ++c) {
    for (int64_t y = 0; y < wanted.n; ++y) {
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
  return resize_crop(image, height, width, {.height = height, .width = width}, filter);
}

Image resize_crop(const Image& image, int64_t height, int64_t width, const ImageBox& box,
                  ImageFilter filter) {
  CHECK(height >= 1 && width >= 1 && image.height >= 1 && image.width >= 1);
  const Filter how = filter_of(filter);
  const auto within = [](int64_t first, int64_t n, int64_t extent) {
    const int64_t begin = std::clamp<int64_t>(first, 0, extent);
    return Range{begin, std::clamp<int64_t>(first + n, begin, extent) - begin};
  };
  const Range rows = within(box.top, box.height, height),
              columns = within(box.left, box.width, width);
  if (rows.n == 0 || columns.n == 0) return Image(image.channels, box.height, box.width);
  Image result = image.width == width ? crop(image, 0, columns.first, image.height, columns.n)
                                      : resize_rows(image, width, columns, how);
  result = image.height == height ? crop(result, rows.first, 0, rows.n, columns.n)
                                  : resize_columns(result, height, rows, how);
  return crop(result, box.top - rows.first, box.left - columns.first, box.height, box.width);
}

namespace {

constexpr uint64_t kChoices = name_hash("data.images");
constexpr uint64_t kBoxes = name_hash("data.images.crop");  // + the number of the try
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

ImageBox center_box(int64_t height, int64_t width, int64_t size) {
  return {.top = (height - size) / 2, .left = (width - size) / 2, .height = size, .width = size};
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

ImageBox with_shorter_side(int64_t height, int64_t width, int64_t size) {
  const auto [shorter, longer] = std::minmax(height, width);
  if (shorter == size) return {.height = height, .width = width};
  const int64_t other = std::max<int64_t>(size, size * longer / shorter);
  return height <= width ? ImageBox{.height = size, .width = other}
                         : ImageBox{.height = other, .width = size};
}

void check_transforms(const ImageTransforms& how) {
  if (how.channels != 1 && how.channels != 3) {
    throw Error(ErrorCode::invalid_argument,
                "model.channels: expected 1 or 3 of a model that reads pictures, got {}",
                how.channels);
  }
  if (how.resize != 0 && how.resize < how.size) {
    throw Error(ErrorCode::invalid_argument,
                "data.images.size: expected at least the model's {} pixels, got {}", how.size,
                how.resize);
  }
  const auto check = [&](const char* key, const std::vector<float>& values) {
    if (values.size() == 1 || std::ssize(values) == how.channels) return;
    throw Error(ErrorCode::invalid_argument,
                "data.images.{}: expected 1 number, or one for each of {} channels, got {}", key,
                how.channels, values.size());
  };
  check("mean", how.mean);
  check("std", how.std_dev);
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

ImageBox random_box(int64_t height, int64_t width, const RandomPart& part,
                    const std::function<std::array<double, 4>(int)>& uniform) {
  constexpr int kTries = 10;
  const auto h = static_cast<double>(height), w = static_cast<double>(width);
  const auto rounded = [](double x) { return static_cast<int64_t>(std::llrint(x)); };
  const auto place = [](int64_t n, double u) {
    return static_cast<int64_t>(u * static_cast<double>(n));
  };
  const double low = std::log(part.ratio[0]), high = std::log(part.ratio[1]);
  for (int i = 0; i < kTries; ++i) {
    const auto [of_area, of_ratio, of_top, of_left] = uniform(i);
    const double area = h * w * (part.scale[0] + of_area * (part.scale[1] - part.scale[0]));
    const double ratio = std::exp(low + of_ratio * (high - low));
    const int64_t own_width = rounded(std::sqrt(area * ratio)),
                  own_height = rounded(std::sqrt(area / ratio));
    if (own_width < 1 || own_width > width || own_height < 1 || own_height > height) continue;
    return {.top = place(height - own_height + 1, of_top),
            .left = place(width - own_width + 1, of_left),
            .height = own_height,
            .width = own_width};
  }
  const double ratio = w / h;
  ImageBox box{.height = height, .width = width};
  if (ratio < part.ratio[0]) box.height = std::max<int64_t>(1, rounded(w / part.ratio[0]));
  if (ratio > part.ratio[1]) box.width = std::max<int64_t>(1, rounded(h * part.ratio[1]));
  box.top = (height - box.height) / 2;
  box.left = (width - box.width) / 2;
  return box;
}

void transform(Image image, const ImageTransforms& how, const RowCell& where,
               std::span<float> out) {
  image = with_channels(std::move(image), how.channels);
  const PhiloxKey key{static_cast<uint32_t>(where.seed), static_cast<uint32_t>(where.seed >> 32)};
  const auto drawn = static_cast<uint64_t>(where.drawn);
  const bool is_chosen = where.use == RowUse::training;
  const PhiloxBlock words = philox(key, drawn, kChoices);
  if (is_chosen && how.crop == ImageCrop::random_resized) {
    const auto uniform = [&](int n_try) {
      const PhiloxBlock tried = philox(key, drawn, kBoxes + static_cast<uint64_t>(n_try));
      std::array<double, 4> numbers;
      for (size_t i = 0; i < 4; ++i) numbers[i] = static_cast<double>(tried.word[i]) * 0x1p-32;
      return numbers;
    };
    const ImageBox box = random_box(image.height, image.width, how.part, uniform);
    image = resize(crop(image, box.top, box.left, box.height, box.width), how.size, how.size,
                   how.filter);
  } else {
    const int64_t side = how.resize == 0 ? how.size : how.resize;
    const ImageBox whole = how.stretches ? ImageBox{.height = side, .width = side}
                                         : with_shorter_side(image.height, image.width, side);
    ImageBox box = center_box(whole.height, whole.width, how.size);
    if (is_chosen && how.crop == ImageCrop::random) {
      box.top = below(whole.height + 2 * how.pad - how.size + 1, words.word[top_word]) - how.pad;
      box.left = below(whole.width + 2 * how.pad - how.size + 1, words.word[left_word]) - how.pad;
    }
    image = resize_crop(image, whole.height, whole.width, box, how.filter);
  }
  if (is_chosen && how.flip && words.word[flip_word] >> 31 != 0) image = flip_left_right(image);
  normalize(image, how.mean, how.std_dev, out);
}

}  // namespace octet
