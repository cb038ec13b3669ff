#include <png.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "data/images/decoders.h"

namespace octet {
namespace {

struct PngInput {
  std::span<const std::byte> rest;
  DecoderJump jump = {};
};

void png_failed(png_structp png, png_const_charp message) {
  auto& jump = static_cast<PngInput*>(png_get_error_ptr(png))->jump;
  const size_t n = std::min(std::strlen(message), sizeof(jump.problem) - 1);
  std::memcpy(jump.problem, message, n);
  jump.problem[n] = '\0';
  std::longjmp(jump.place, 1);
}

void png_warned(png_structp, png_const_charp) {}

void read_png(png_structp png, png_bytep out, size_t n) {
  auto& rest = static_cast<PngInput*>(png_get_io_ptr(png))->rest;
  if (rest.size() < n) png_error(png, "the file ends early");
  std::memcpy(out, rest.data(), n);
  rest = rest.subspan(n);
}

class PngReader {
 public:
  PngReader(std::span<const std::byte> bytes, const std::string& name, const PictureLimits& limits)
      : input_{bytes}, n_bytes_(bytes.size()), name_(name), limits_(limits) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &input_, png_failed, png_warned);
    CHECK(png_ != nullptr);
    info_ = png_create_info_struct(png_);
    CHECK(info_ != nullptr);
    // The limit is on what a chunk unpacks to.
    png_set_chunk_malloc_max(png_, std::max<uint64_t>(n_bytes_, limits_.chunk_bytes));
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  Image decode() {
    check_chunks();
    check(returns(input_.jump, [&] { read_header(); }));
    check_size();
    Image image(png_get_channels(png_, info_), png_get_image_height(png_, info_),
                png_get_image_width(png_, info_));
    // Rows of an interlaced picture are complete at its end alone.
    const size_t n_row = png_get_rowbytes(png_, info_), n_rows = static_cast<size_t>(image.height);
    std::vector<uint8_t> interleaved(n_row * n_rows);
    std::vector<png_bytep> rows(n_rows);
    for (size_t y = 0; y < n_rows; ++y) rows[y] = interleaved.data() + y * n_row;
    check(returns(input_.jump, [&] {
      png_read_image(png_, rows.data());
      png_read_end(png_, nullptr);
    }));
    for (size_t y = 0; y < n_rows; ++y) {
      store_row(std::span(interleaved).subspan(y * n_row, n_row), static_cast<int64_t>(y), image);
    }
    return image;
  }

 private:
  void check(bool has_returned) const {
    if (has_returned) return;
    throw Error(ErrorCode::bad_data, "[images] {}: expected a PNG file, got damaged data: {}",
                name_, input_.jump.problem);
  }

  // The library takes the memory that a chunk claims before it reads the chunk.
  void check_chunks() const {
    constexpr size_t kSignature = 8, kName = 4, kAround = 12;  // length, name and checksum
    auto rest = input_.rest.subspan(std::min(kSignature, input_.rest.size()));
    while (rest.size() >= kAround) {
      uint64_t n = 0;
      for (size_t i = 0; i < 4; ++i) n = n << 8 | std::to_integer<uint64_t>(rest[i]);
      if (n > rest.size() - kAround) {
        throw Error(ErrorCode::bad_data,
                    "[images] {}: expected a PNG file, got damaged data: a chunk of {} bytes, {} "
                    "before its end",
                    name_, n, rest.size());
      }
      if (std::memcmp(rest.data() + kName, "IEND", kName) == 0) return;
      rest = rest.subspan(n + kAround);
    }
  }

  // Then rows come as 1 or 3 bytes a pixel.
  void read_header() {
    png_set_read_fn(png_, &input_, read_png);
    png_read_info(png_, info_);
    n_stored_ = uint64_t{png_get_image_height(png_, info_)} * png_get_rowbytes(png_, info_);
    png_set_strip_16(png_);
    png_set_palette_to_rgb(png_);
    png_set_expand_gray_1_2_4_to_8(png_);
    png_set_strip_alpha(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
  }

  // Before memory is taken for them: deflate makes at most 1032 bytes of one, so that a small file
  // that promises a large picture ends early.
  void check_size() const {
    constexpr uint64_t kMaxRatio = 1032;
    const uint64_t width = png_get_image_width(png_, info_);
    const uint64_t height = png_get_image_height(png_, info_);
    check_pixels(width, height, name_, limits_.max_pixels);
    const uint64_t n_channels = png_get_channels(png_, info_);
    CHECK(n_channels == 1 || n_channels == 3);
    if (n_stored_ > n_bytes_ * kMaxRatio) {
      throw Error(ErrorCode::bad_data,
                  "[images] {}: expected a PNG file of {} x {} pixels, got {} bytes", name_, width,
                  height, n_bytes_);
    }
  }

  PngInput input_;
  size_t n_bytes_;
  const std::string& name_;
  const PictureLimits& limits_;
  uint64_t n_stored_ = 0;  // bytes of pixels as they are packed
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

Image decode_png(std::span<const std::byte> bytes, const std::string& name,
                 const PictureLimits& limits) {
  return PngReader(bytes, name, limits).decode();
}

}  // namespace octet
