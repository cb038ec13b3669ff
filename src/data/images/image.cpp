#include "data/images/image.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/images/decoders.h"

namespace octet {
namespace {

bool begins_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() &&
         std::equal(magic.begin(), magic.end(), bytes.begin(),
                    [](char a, std::byte b) { return static_cast<std::byte>(a) == b; });
}

}  // namespace

Image::Image(int64_t n_channels, int64_t n_rows, int64_t n_columns)
    : channels(n_channels),
      height(n_rows),
      width(n_columns),
      pixels(static_cast<size_t>(n_channels * n_rows * n_columns)) {}

std::span<uint8_t> Image::row(int64_t channel, int64_t y) {
  return std::span(pixels).subspan(static_cast<size_t>((channel * height + y) * width),
                                   static_cast<size_t>(width));
}

std::span<const uint8_t> Image::row(int64_t channel, int64_t y) const {
  return std::span(pixels).subspan(static_cast<size_t>((channel * height + y) * width),
                                   static_cast<size_t>(width));
}

bool is_png(std::span<const std::byte> bytes) {
  return begins_with(bytes, "\x89PNG\r\n\x1A\n");
}

bool is_jpeg(std::span<const std::byte> bytes) {
  return begins_with(bytes, "\xFF\xD8\xFF");
}

Image decode_image(std::span<const std::byte> bytes, const std::string& name,
                   const PictureLimits& limits) {
  if (is_png(bytes)) return decode_png(bytes, name, limits);
  if (is_jpeg(bytes)) return decode_jpeg(bytes, name, limits);
  throw Error(ErrorCode::bad_data, "[images] {}: expected a PNG or JPEG file, got other data",
              name);
}

Image with_channels(Image image, int64_t channels) {
  CHECK((image.channels == 1 || image.channels == 3) && (channels == 1 || channels == 3));
  if (image.channels == channels) return image;
  const auto n = static_cast<size_t>(image.height * image.width);
  if (channels == 3) {
    image.pixels.resize(3 * n);
    std::copy_n(image.pixels.begin(), n, image.pixels.begin() + static_cast<std::ptrdiff_t>(n));
    std::copy_n(image.pixels.begin(), n, image.pixels.begin() + static_cast<std::ptrdiff_t>(2 * n));
  } else {
    const uint8_t* const red = image.pixels.data();
    for (size_t i = 0; i < n; ++i) {
      const uint32_t sum = 19595u * red[i] + 38470u * red[n + i] + 7471u * red[2 * n + i];
      image.pixels[i] = static_cast<uint8_t>((sum + 0x8000u) >> 16);
    }
    image.pixels.resize(n);
  }
  image.channels = channels;
  return image;
}

void check_pixels(uint64_t width, uint64_t height, const std::string& name, int64_t max_pixels) {
  const auto bound = static_cast<uint64_t>(max_pixels);
  if (width > 0 && height > 0 && width <= bound && height <= bound / width) return;
  throw Error(ErrorCode::bad_data, "[images] {}: expected 1 to {} pixels, got {} x {}", name,
              max_pixels, width, height);
}

void store_row(std::span<const uint8_t> interleaved, int64_t y, Image& image) {
  const auto n_channels = static_cast<size_t>(image.channels);
  CHECK(interleaved.size() == n_channels * static_cast<size_t>(image.width));
  for (size_t c = 0; c < n_channels; ++c) {
    const std::span<uint8_t> to = image.row(static_cast<int64_t>(c), y);
    for (size_t x = 0; x < to.size(); ++x) to[x] = interleaved[x * n_channels + c];
  }
}

}  // namespace octet
