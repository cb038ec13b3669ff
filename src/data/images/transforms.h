// What a picture goes through before a model sees it: pure functions of the picture and, where they
// choose, of (seed, row), so that a resumed run sees the same pixels.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/images/image.h"
#include "data/row_source.h"

namespace octet {

enum class ImageCrop : uint8_t {
  center,  // the middle
  random,  // anywhere, in training; the middle elsewhere
};
constexpr std::string_view enum_name(ImageCrop crop) {
  constexpr std::string_view names[] = {"center", "random"};
  return names[static_cast<int>(crop)];
}
constexpr int enum_count(ImageCrop) {
  return 2;
}

struct ImageTransforms {
  int64_t channels = 3, size = 0;  // of what comes out: [channels, size, size]
  int64_t resize = 0;              // of the shorter side before the crop, at least size; 0: size
  ImageCrop crop = ImageCrop::center;
  int64_t pad = 0;    // black pixels at each side, before a random crop
  bool flip = false;  // left to right, each second picture by chance, in training
  std::vector<float> mean{0.5f}, std_dev{0.5f};  // of pixels in [0, 1]; one value, or one a channel
};

// The rectangle of height x width pixels whose upper left corner is (top, left); what lies outside
// of the picture is black.
Image crop(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width);
// The middle size x size pixels: from round((extent - size) / 2) on, halves to even, as torchvision
// has it.
Image center_crop(const Image& image, int64_t size);
Image flip_left_right(const Image& image);
// So that the shorter side has `size` pixels and the other int(size * longer / shorter).
Image resize_shorter_side(const Image& image, int64_t size);
// out[c, y, x] = (pixel / 255 - mean[c]) / std_dev[c], in f32. The spans have 1 or C values.
void normalize(const Image& image, std::span<const float> mean, std::span<const float> std_dev,
               std::span<float> out);

// Channels, shorter side, crop, flip, normalize: [C, S, S] f32 into `out`. In training, choices are
// Philox words by (seed, drawn) of the cell.
void transform(Image image, const ImageTransforms& how, const RowCell& where, std::span<float> out);

}  // namespace octet
