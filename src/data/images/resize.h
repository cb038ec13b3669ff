// Bilinear resizing with antialiasing, equal to Pillow's Image.resize(size, BILINEAR), bit for bit.
//
//   out[y] = round(sum_j k_j in[j]),  k_j ~ max(0, 1 - |j + 0.5 - c| / f), sum_j k_j = 1,
//   c = (y + 0.5) in_size / out_size,  f = max(1, in_size / out_size)
//
// first along rows, rounded to bytes, then along columns; an axis that keeps its size is left as it
// is. Coefficients are rounded to 22 fractional bits. Source: Pillow, src/libImaging/Resample.c.
#pragma once

#include "data/images/image.h"

namespace octet {

Image resize(const Image& image, int64_t height, int64_t width);

}  // namespace octet
