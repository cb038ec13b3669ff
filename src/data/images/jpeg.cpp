// jpeglib.h takes FILE and size_t from here.
#include <cstdio>
// After it.
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "data/images/decoders.h"

namespace octet {
namespace {

// The target of cinfo.client_data.
struct JpegInput {
  DecoderJump jump = {};
  // Data of pixels that is missing, which the library makes up.
  char warning[JMSG_LENGTH_MAX] = {};
  int max_scans = 0;
};

JpegInput& input_of(j_common_ptr info) {
  return *static_cast<JpegInput*>(info->client_data);
}

void jpeg_failed(j_common_ptr info) {
  static_assert(sizeof(DecoderJump::problem) >= JMSG_LENGTH_MAX);
  JpegInput& input = input_of(info);
  info->err->format_message(info, input.jump.problem);
  std::longjmp(input.jump.place, 1);
}

void jpeg_said(j_common_ptr info, int level) {
  constexpr int kWarning = -1;
  if (level != kWarning || info->err->msg_code == JWRN_EXTRANEOUS_DATA) return;
  JpegInput& input = input_of(info);
  if (input.warning[0] == '\0') info->err->format_message(info, input.warning);
}

boolean jpeg_ends(j_decompress_ptr info) {
  ERREXIT(info, JERR_INPUT_EOF);
  return FALSE;
}

void jpeg_goes_on(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > input_of(info).max_scans) {
    ERREXIT(info, JERR_BAD_PROGRESSION);
  }
}

// Inks as Adobe's programs store them, 255 for none, to RGB, rounded as Pillow does.
void inks_to_rgb(std::span<const uint8_t> inks, std::span<uint8_t> rgb) {
  for (size_t x = 0; x < inks.size() / 4; ++x) {
    const int black = inks[4 * x + 3];
    for (size_t c = 0; c < 3; ++c) {
      const int product = (255 - inks[4 * x + c]) * black + 128;
      rgb[3 * x + c] = static_cast<uint8_t>(black - (((product >> 8) + product) >> 8));
    }
  }
}

class JpegReader {
 public:
  JpegReader(std::span<const std::byte> bytes, const std::string& name, const PictureLimits& limits)
      : bytes_(bytes), name_(name), limits_(limits) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = jpeg_failed;
    errors_.emit_message = jpeg_said;
    info_.client_data = &input_;
    input_.max_scans = limits.max_scans;
    progress_.progress_monitor = jpeg_goes_on;
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  Image decode() {
    check(returns(input_.jump, [&] { read_header(); }));
    check_size();
    check(returns(input_.jump, [&] { jpeg_start_decompress(&info_); }));
    const bool has_inks = info_.out_color_space == JCS_CMYK;
    const int64_t n_channels = info_.out_color_space == JCS_GRAYSCALE ? 1 : 3;
    Image image(n_channels, info_.output_height, info_.output_width);
    std::vector<uint8_t> row(size_t{info_.output_width} *
                             static_cast<size_t>(info_.output_components));
    std::vector<uint8_t> rgb(has_inks ? size_t{info_.output_width} * 3 : 0);
    for (int64_t y = 0; y < image.height; ++y) {
      check(returns(input_.jump, [&] {
        JSAMPROW to = row.data();
        jpeg_read_scanlines(&info_, &to, 1);
      }));
      if (has_inks) inks_to_rgb(row, rgb);
      store_row(has_inks ? rgb : row, y, image);
    }
    check(returns(input_.jump, [&] { jpeg_finish_decompress(&info_); }));
    return image;
  }

 private:
  void check(bool has_returned) const {
    if (has_returned && input_.warning[0] == '\0') return;
    throw Error(ErrorCode::bad_data, "[images] {}: expected a JPEG file, got damaged data: {}",
                name_, has_returned ? input_.warning : input_.jump.problem);
  }

  // Before memory is taken for them: in Huffman's code a block of 64 pixels has at least a bit.
  void check_size() const {
    constexpr uint64_t kMaxPixelsPerByte = 8 * DCTSIZE2;
    const uint64_t width = info_.image_width, height = info_.image_height;
    check_pixels(width, height, name_, limits_.max_pixels);
    if (info_.arith_code != FALSE || width * height <= bytes_.size() * kMaxPixelsPerByte) return;
    throw Error(ErrorCode::bad_data,
                "[images] {}: expected a JPEG file of {} x {} pixels, got {} bytes", name_, width,
                height, bytes_.size());
  }

  void read_header() {
    jpeg_create_decompress(&info_);
    info_.progress = &progress_;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size());
    info_.src->fill_input_buffer = jpeg_ends;  // else the library makes up an end
    jpeg_read_header(&info_, TRUE);
    const bool has_inks = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    if (info_.jpeg_color_space != JCS_GRAYSCALE) {
      info_.out_color_space = has_inks ? JCS_CMYK : JCS_RGB;
    }
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
  const PictureLimits& limits_;
  jpeg_decompress_struct info_ = {};
  jpeg_error_mgr errors_ = {};
  jpeg_progress_mgr progress_ = {};
  JpegInput input_ = {};
};

}  // namespace

Image decode_jpeg(std::span<const std::byte> bytes, const std::string& name,
                  const PictureLimits& limits) {
  return JpegReader(bytes, name, limits).decode();
}

}  // namespace octet
