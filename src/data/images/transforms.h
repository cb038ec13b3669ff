// Transforms of a picture before a model sees it: pure functions of the picture and, where they
// choose, of (seed, row), so that a resumed run sees the same pixels.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/named_enum.h"
#include "data/images/image.h"
#include "data/row_source.h"

namespace octet {

// Resizing with antialiasing, equal to Pillow's Image.resize(size, filter), bit for bit.
//
//   out[y] = round(sum_j k_j in[j]),  k_j ~ w((j + 0.5 - c) / f), sum_j k_j = 1,
//   c = (y + 0.5) in_size / out_size,  f = max(1, in_size / out_size)
//   bilinear  w(t) = 1 - |t| where that is positive
//   bicubic   w(t) = 1.5 |t|^3 - 2.5 |t|^2 + 1 below 1, -0.5 (|t|^3 - 5 |t|^2 + 8 |t| - 4) below 2
//
// first along rows, rounded to bytes, then along columns; an axis that keeps its size is left as it
// is. Coefficients are rounded to 22 fractional bits, halves away from 0; what leaves 0 to 255
// saturates. Source: Pillow, src/libImaging/Resample.c; Keys 1981 with a = -0.5.
enum class ImageFilter : uint8_t { bilinear, bicubic };
constexpr auto value_names(ImageFilter) {
  return name_list("bilinear", "bicubic");
}

struct ImageBox {
  int64_t top = 0, left = 0, height = 0, width = 0;
  bool operator==(const ImageBox&) const = default;
};

Image resize(const Image& image, int64_t height, int64_t width,
             ImageFilter filter = ImageFilter::bilinear);
// crop() of what resize() gives, of which no more is computed: a long picture would be large.
Image resize_crop(const Image& image, int64_t height, int64_t width, const ImageBox& box,
                  ImageFilter filter = ImageFilter::bilinear);

enum class ImageCrop : uint8_t {
  center,          // the middle
  random,          // anywhere, in training; the middle elsewhere
  random_resized,  // in training a part of any size and shape; the middle elsewhere
};
constexpr auto value_names(ImageCrop) {
  return name_list("center", "random", "random_resized");
}

// A part of a picture: ranges [low, high] of its area, as a share of the picture's, and of its
// width over its height.
struct RandomPart {
  double scale[2] = {0.08, 1}, ratio[2] = {3.0 / 4, 4.0 / 3};
};

struct ImageTransforms {
  int64_t channels = 3, size = 0;  // of what comes out: [channels, size, size]
  int64_t resize = 0;              // of the shorter side before the crop, at least size; 0: size
  bool stretches = false;          // of both sides: a picture that is not square loses its shape
  ImageFilter filter = ImageFilter::bilinear;
  ImageCrop crop = ImageCrop::center;
  int64_t pad = 0;       // black pixels at each side, before a random crop
  RandomPart part = {};  // of a random resized crop
  bool flip = false;     // left to right, each second picture by chance, in training
  std::vector<float> mean{0.5f}, std_dev{0.5f};  // of pixels in [0, 1]; one value, or one a channel
};

// Throws Error{invalid_argument} unless pictures have such channels and `resize` and the numbers
// fit what comes out.
void check_transforms(const ImageTransforms& how);

// The rectangle of height x width pixels whose upper left corner is (top, left); what lies outside
// of the picture is black.
Image crop(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width);
// A part of a picture by chance: its area is uniform, its ratio uniform in its logarithm, its place
// uniform. Where it does not fit it is chosen anew, up to ten times; then it is the largest one in
// the middle whose ratio is in the range. uniform(try): four numbers in [0, 1): of area, ratio,
// top and left. Source: torchvision, RandomResizedCrop.get_params.
ImageBox random_box(int64_t height, int64_t width, const RandomPart& part,
                    const std::function<std::array<double, 4>(int)>& uniform);
// The middle size x size pixels of so many: from (extent - size) / 2 on, halves toward 0, as
// transformers' image processors have it. Where torchvision's CenterCrop rounds up (1.5, 3.5, ...)
// it begins a pixel later.
ImageBox center_box(int64_t height, int64_t width, int64_t size);
Image flip_left_right(const Image& image);
// All of a picture whose shorter side has become `size` pixels, and the other
// int(size * longer / shorter).
ImageBox with_shorter_side(int64_t height, int64_t width, int64_t size);
// out[c, y, x] = (pixel / 255 - mean[c]) / std_dev[c], in f32. The spans have 1 or C values.
void normalize(const Image& image, std::span<const float> mean, std::span<const float> std_dev,
               std::span<float> out);

// Channels, shorter side, crop, flip, normalize: [C, S, S] f32 into `out`; a random resized crop is
// of the picture as it is, and becomes S x S by resize(). In training, choices are Philox words by
// (seed, drawn) of the cell.
void transform(Image image, const ImageTransforms& how, const RowCell& where, std::span<float> out);

}  // namespace octet
