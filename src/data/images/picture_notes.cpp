#include "data/images/picture_notes.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace octet {
namespace {

using Bytes = std::span<const std::byte>;

uint32_t byte_at(Bytes bytes, size_t at) {
  return std::to_integer<uint32_t>(bytes[at]);
}

uint32_t big_endian(Bytes bytes, size_t at, size_t n) {
  uint32_t value = 0;
  for (size_t i = 0; i < n; ++i) value = value << 8 | byte_at(bytes, at + i);
  return value;
}

bool has_text(Bytes bytes, size_t at, std::string_view text) {
  return bytes.size() >= at + text.size() &&
         std::equal(text.begin(), text.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at),
                    [](char a, std::byte b) { return static_cast<std::byte>(a) == b; });
}

// Of a TIFF header and its first directory; 1 where there is none.
int orientation_of_tiff(Bytes tiff) {
  constexpr size_t kHeader = 8, kEntry = 12;
  constexpr uint32_t kOrientation = 0x112, kShort = 3;
  const bool is_little = has_text(tiff, 0, std::string_view("II*\0", 4));
  if (!is_little && !has_text(tiff, 0, std::string_view("MM\0*", 4))) return 1;
  if (tiff.size() < kHeader) return 1;
  const auto number = [&](size_t at, size_t n) {
    uint32_t value = 0;
    for (size_t i = 0; i < n; ++i)
      value = value << 8 | byte_at(tiff, is_little ? at + n - 1 - i : at + i);
    return value;
  };
  const size_t directory = number(4, 4);
  if (directory > tiff.size() || tiff.size() - directory < 2) return 1;
  const size_t n_entries = number(directory, 2);
  for (size_t i = 0; i < n_entries; ++i) {
    const size_t at = directory + 2 + i * kEntry;
    if (at + kEntry > tiff.size()) return 1;
    if (number(at, 2) != kOrientation) continue;
    const uint32_t value = number(at + 8, 2);
    const bool is_one = number(at + 2, 2) == kShort && number(at + 4, 4) == 1;
    return is_one && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

int orientation_of_jpeg(Bytes file) {
  constexpr uint32_t kApp1 = 0xE1, kScan = 0xDA, kFill = 0xFF;
  constexpr std::string_view kExif("Exif\0\0", 6);
  for (size_t at = 2; at + 4 <= file.size();) {
    const uint32_t marker = byte_at(file, at + 1);
    if (byte_at(file, at) != 0xFF || marker == kScan) return 1;
    if (marker == kFill) {  // any number before a marker
      ++at;
      continue;
    }
    const size_t n = big_endian(file, at + 2, 2);  // its own two bytes included
    if (n < 2) return 1;
    const Bytes rest = file.subspan(at + 4, std::min(n - 2, file.size() - at - 4));
    if (marker == kApp1 && has_text(rest, 0, kExif))
      return orientation_of_tiff(rest.subspan(kExif.size()));
    at += 2 + n;
  }
  return 1;
}

// Calls of_chunk(name and data) for each chunk that is there whole, or up to the end.
template <typename Fn>
void for_each_chunk(Bytes file, const Fn& of_chunk) {
  constexpr size_t kSignature = 8, kAround = 12;  // length, name and checksum
  for (size_t at = kSignature; at + 8 <= file.size();) {
    const size_t n = big_endian(file, at, 4);
    of_chunk(file.subspan(at + 4, std::min(n + 4, file.size() - at - 4)));
    at += n + kAround;
  }
}

int orientation_of_png(Bytes file) {
  int orientation = 1;
  for_each_chunk(file, [&](Bytes chunk) {
    if (has_text(chunk, 0, "eXIf")) orientation = orientation_of_tiff(chunk.subspan(4));
  });
  return orientation;
}

}  // namespace

int exif_orientation(std::span<const std::byte> file) {
  if (is_jpeg(file)) return orientation_of_jpeg(file);
  return is_png(file) ? orientation_of_png(file) : 1;
}

Image turned(const Image& image, int orientation) {
  CHECK(orientation >= 1 && orientation <= 8);
  if (orientation == 1) return image;
  const bool is_transposed = orientation >= 5;
  const bool flips_rows = orientation == 3 || orientation == 4 || orientation == 6 ||
                          orientation == 7;  // of what is read
  const bool flips_columns =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  Image result(image.channels, is_transposed ? image.width : image.height,
               is_transposed ? image.height : image.width);
  for (int64_t c = 0; c < image.channels; ++c) {
    for (int64_t y = 0; y < result.height; ++y) {
      const std::span<uint8_t> to = result.row(c, y);
      for (int64_t x = 0; x < result.width; ++x) {
        const int64_t row = is_transposed ? x : y, column = is_transposed ? y : x;
        const int64_t from_y = flips_rows ? image.height - 1 - row : row;
        const int64_t from_x = flips_columns ? image.width - 1 - column : column;
        to[static_cast<size_t>(x)] = image.row(c, from_y)[static_cast<size_t>(from_x)];
      }
    }
  }
  return result;
}

std::vector<std::string_view> unread_parts(std::span<const std::byte> beginning) {
  constexpr size_t kDepth = 24, kColor = 25;  // of IHDR, which is the first chunk
  constexpr uint32_t kAlpha = 4;
  std::vector<std::string_view> parts;
  if (is_png(beginning) && beginning.size() > kColor) {
    bool has_alpha = (byte_at(beginning, kColor) & kAlpha) != 0, is_animated = false;
    for_each_chunk(beginning, [&](Bytes chunk) {
      has_alpha = has_alpha || has_text(chunk, 0, "tRNS");
      is_animated = is_animated || has_text(chunk, 0, "acTL");
    });
    if (has_alpha) parts.emplace_back("have alpha, which is dropped");
    if (is_animated) parts.emplace_back("are animated, of which the still picture is read");
    if (byte_at(beginning, kDepth) == 16) parts.emplace_back("have 16 bits, of which 8 are read");
  }
  if (exif_orientation(beginning) != 1)
    parts.emplace_back("are to be turned (EXIF's Orientation), and are read as they are stored");
  return parts;
}

}  // namespace octet
