// The two decoders of decode_image, and what they share.
//
// Both libraries report errors by a callback that may not return: it jumps (longjmp) out of the
// library, over frames that hold nothing to destroy.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "data/images/image.h"

namespace octet {

Image decode_png(std::span<const std::byte> bytes, const std::string& name,
                 const PictureLimits& limits);
Image decode_jpeg(std::span<const std::byte> bytes, const std::string& name,
                  const PictureLimits& limits);

// The place where the error callback of a library goes, and what it says there.
struct DecoderJump {
  std::jmp_buf place;
  char problem[256] = {};
};

// Calls `step`, a run of calls of a C library; false where its error callback jumped.
template <typename Step>
bool returns(DecoderJump& jump, const Step& step) {
  if (setjmp(jump.place) != 0) return false;
  step();
  return true;
}

// Throws Error{bad_data} unless there are 1 to max_pixels pixels.
void check_pixels(uint64_t width, uint64_t height, const std::string& name, int64_t max_pixels);
// A row of pixels, channel by channel within a pixel, into the planes of `image`.
void store_row(std::span<const uint8_t> interleaved, int64_t y, Image& image);

}  // namespace octet
