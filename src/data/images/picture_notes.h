// What a PNG or JPEG file says of its picture besides the pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/images/image.h"

namespace octet {

// EXIF's Orientation of a file, or of its beginning: 1 as it is stored, 2 mirrored, 3 turned by
// 180 degrees, 4 upside down, 5 transposed, 6 to be turned clockwise, 7 transposed over the other
// diagonal, 8 to be turned counterclockwise. 1 where the file says nothing, or what is none of
// these. Reads JPEG's APP1 and PNG's eXIf. Source: CIPA DC-008 (EXIF 2.32).
int exif_orientation(std::span<const std::byte> file);

// The picture as it is to be seen, by an orientation of 1 to 8: what Pillow's exif_transpose does.
Image turned(const Image& image, int orientation);

// What of the file at whose beginning these bytes stand is not read, in words that follow "N
// pictures": alpha, frames behind the first, the lower 8 of 16 bits, and an orientation.
std::vector<std::string_view> unread_parts(std::span<const std::byte> beginning);

}  // namespace octet
