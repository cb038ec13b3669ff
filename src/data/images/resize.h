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
#pragma once

#include "base/named_enum.h"
#include "data/images/image.h"

namespace octet {

enum class ImageFilter : uint8_t { bilinear, bicubic };
constexpr auto value_names(ImageFilter) {
  return name_list("bilinear", "bicubic");
}

Image resize(const Image& image, int64_t height, int64_t width,
             ImageFilter filter = ImageFilter::bilinear);

}  // namespace octet
