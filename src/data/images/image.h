// Pictures in memory, and decoding of PNG and JPEG (libpng, libjpeg-turbo).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/input_limits.h"

namespace octet {

// pixels: [C, H, W], row-major, a byte each. 1 channel: gray; 3: red, green, blue.
struct Image {
  int64_t channels = 0, height = 0, width = 0;
  std::vector<uint8_t> pixels = {};

  Image() = default;
  Image(int64_t n_channels, int64_t n_rows, int64_t n_columns);  // black
  std::span<uint8_t> row(int64_t channel, int64_t y);
  std::span<const uint8_t> row(int64_t channel, int64_t y) const;
};

// The pixels that Pillow gives, bit for bit, by its modes L and RGB: alpha is dropped, palettes and
// CMYK become RGB (as Adobe's programs store it, inverted), of 16 bits the upper 8 stay, and a
// rotation in EXIF is not applied (picture_notes.h does). Gray stays one channel.
// Throws Error{bad_data}, "[images] NAME: ...", for other data, damaged or truncated data, and what
// is beyond the limits or more than a file of its size can hold. Any thread.
Image decode_image(std::span<const std::byte> bytes, const std::string& name,
                   const PictureLimits& limits = input_limits().pictures);

// By their first bytes.
bool is_png(std::span<const std::byte> bytes);
bool is_jpeg(std::span<const std::byte> bytes);

// Gray to RGB: three times the same. RGB to gray: ITU-R 601-2 luma as Pillow rounds it,
// (19595 R + 38470 G + 7471 B + 2^15) >> 16. `channels`: 1 or 3.
Image with_channels(Image image, int64_t channels);

}  // namespace octet
