// Decoding and resizing against Pillow (tools/make_image_goldens.py), and files that are damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/files.h"
#include "data/images/image.h"
#include "data/images/picture_notes.h"
#include "data/images/transforms.h"
#include "unit/base/error_of.h"

namespace octet::data_images_test {
namespace {

using test::error_of;
using testing::HasSubstr;

const std::string kFolder = OCTET_SOURCE_DIR "/tests/fixtures/images/";

const nlohmann::json& expected() {
  static const auto json =
      nlohmann::json::parse(posix_files().read_text(kFolder + "expected.json"));
  return json;
}

Image picture(const nlohmann::json& json) {
  Image image(json["shape"][0], json["shape"][1], json["shape"][2]);
  const std::string digits = json["pixels"];
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    image.pixels[i] = static_cast<uint8_t>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  }
  return image;
}

Image decoded(const std::string& name) {
  return decode_image(posix_files().read_bytes(kFolder + name), name);
}

void expect_same(const Image& image, const Image& other) {
  EXPECT_EQ(image.channels, other.channels);
  EXPECT_EQ(image.height, other.height);
  EXPECT_EQ(image.width, other.width);
  EXPECT_EQ(image.pixels, other.pixels);
}

TEST(Images, png_and_jpeg_decode_to_the_pixels_of_pillow) {
  ASSERT_GE(expected()["decoded"].size(), 15u);
  for (const auto& [name, json] : expected()["decoded"].items()) {
    SCOPED_TRACE(name);
    expect_same(decoded(name), picture(json));
  }
}

TEST(Images, resizing_gives_the_pixels_of_pillow) {
  for (const auto& json : expected()["resized"]) {
    SCOPED_TRACE(json["of"].dump() + json["filter"].dump() + json["shape"].dump());
    const auto filter = enum_from_name<ImageFilter>(json["filter"].get<std::string>());
    expect_same(resize(decoded(json["of"]), json["shape"][1], json["shape"][2], filter.value()),
                picture(json));
  }
}

TEST(Images, color_becomes_gray_as_in_pillow_and_gray_three_equal_channels) {
  for (const auto& [name, json] : expected()["luma"].items()) {
    SCOPED_TRACE(name);
    const Image gray = with_channels(decoded(name), 1);
    expect_same(gray, picture(json));
    const Image color = with_channels(gray, 3);
    for (int64_t c = 0; c < 3; ++c) {
      for (int64_t y = 0; y < gray.height; ++y) {
        EXPECT_TRUE(std::ranges::equal(color.row(c, y), gray.row(0, y)));
      }
    }
  }
}

TEST(Images, each_file_that_is_cut_short_is_an_error) {
  for (const auto& [name, json] : expected()["decoded"].items()) {
    const auto bytes = posix_files().read_bytes(kFolder + name);
    for (size_t n = 0; n < bytes.size(); ++n) {
      const std::string error =
          error_of([&] { decode_image(std::span(bytes).first(n), "a.file"); });
      ASSERT_TRUE(error.starts_with("[images] a.file: expected a ")) << name << ", " << n << error;
      ASSERT_EQ(error.find('\n'), error.npos);
    }
  }
}

TEST(Images, a_changed_byte_gives_a_picture_or_an_error) {
  int n_errors = 0, n_pictures = 0;
  for (const auto& [name, json] : expected()["decoded"].items()) {
    auto bytes = posix_files().read_bytes(kFolder + name);
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (const auto mask : {std::byte{0xFF}, std::byte{0x01}}) {
        bytes[i] ^= mask;
        const std::string error = error_of([&] {
          const Image image = decode_image(bytes, "a.file");
          ASSERT_EQ(image.pixels.size(), image.channels * image.height * image.width);
          ++n_pictures;
        });
        bytes[i] ^= mask;
        if (error == "no error") continue;
        ++n_errors;
        ASSERT_TRUE(error.starts_with("[images] a.file: expected ")) << error;
      }
    }
  }
  EXPECT_GT(n_errors, 1000);
  EXPECT_GT(n_pictures, 1000);
}

using namespace std::string_literals;

std::string in_four_bytes(uint32_t n) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(n >> shift);
  return bytes;
}

// A gray picture's header, with its checksum, and chunks behind it: by default none of its pixels.
std::string png_of(uint32_t width, uint32_t height, const std::string& crc,
                   const std::string& chunks =
                       "\0\0\0\0IDAT\x35\xAF\x06\x1E"
                       "\0\0\0\0IEND\xAE\x42\x60\x82"s) {
  return "\x89PNG\r\n\x1A\n\0\0\0\x0DIHDR"s + in_four_bytes(width) + in_four_bytes(height) +
         "\x08\0\0\0\0"s + crc + chunks;
}

std::string error_within(const std::string& bytes, const PictureLimits& limits) {
  return error_of([&] { decode_image(as_bytes(bytes), "a", limits); });
}

TEST(Images, a_small_file_that_promises_a_larger_picture_is_refused_before_memory_is_taken) {
  EXPECT_EQ(error_within(png_of(300, 300, "\x5C\x16\xD1\xA9"), {}),
            "[images] a: expected a PNG file of 300 x 300 pixels, got 57 bytes");
  EXPECT_EQ(error_within(png_of(3, 30'000, "\x4F\xFD\x60\xEC"), {}),
            "[images] a: expected a PNG file of 3 x 30000 pixels, got 57 bytes");
  EXPECT_THAT(error_within(png_of(64, 64, "\x8F\x02\x2E\x02"), {}), HasSubstr("damaged data"));
  std::string jpeg = posix_files().read_text(kFolder + "gray.jpg");
  const size_t frame = jpeg.find("\xFF\xC0");
  ASSERT_NE(frame, jpeg.npos);
  jpeg.replace(frame + 5, 4, "\x02\x58\x02\x58");
  EXPECT_EQ(error_within(jpeg, {}),
            "[images] a: expected a JPEG file of 600 x 600 pixels, got 533 bytes");
}

TEST(Images, have_so_many_pixels_and_scans_at_most) {
  for (const char* name : {"gray.png", "gray.jpg"}) {
    const std::string bytes = posix_files().read_text(kFolder + name);
    const Image image = decoded(name);
    const int64_t n = image.width * image.height;
    EXPECT_EQ(error_within(bytes, {.max_pixels = n}), "no error");
    EXPECT_EQ(error_within(bytes, {.max_pixels = n - 1}),
              fmt::format("[images] a: expected 1 to {} pixels, got {} x {}", n - 1, image.width,
                          image.height));
  }
  const std::string progressive = posix_files().read_text(kFolder + "progressive.jpg");
  EXPECT_EQ(error_within(progressive, {.max_scans = 20}), "no error");
  EXPECT_THAT(error_within(progressive, {.max_scans = 3}), HasSubstr("damaged data"));
}

// The library takes what a chunk claims before it reads the chunk.
TEST(Images, chunks_of_a_png_lie_within_its_file) {
  const std::string crc = "\x8F\x02\x2E\x02";
  for (const char* name : {"tEXt", "iTXt", "IDAT"}) {
    EXPECT_EQ(
        error_within(png_of(64, 64, crc, in_four_bytes(5000) + name + std::string(80, 'x')), {}),
        "[images] a: expected a PNG file, got damaged data: a chunk of 5000 bytes, 88 before "
        "its end");
  }
  EXPECT_THAT(error_within(png_of(64, 64, crc), {}), HasSubstr("damaged data"));
}

TEST(Images, data_of_another_kind_is_named) {
  EXPECT_EQ(error_of([] { decode_image(as_bytes("GIF89a"), "'x'"); }),
            "[images] 'x': expected a PNG or JPEG file, got other data");
}

// The pictures of Pillow's exif_transpose.
TEST(Images, are_turned_as_their_orientation_says) {
  const auto letters = [](const Image& image) {
    std::string text;
    for (int64_t y = 0; y < image.height; ++y) {
      for (const uint8_t letter : image.row(0, y)) text += static_cast<char>(letter);
      text += ' ';
    }
    return text;
  };
  Image image(1, 3, 2);
  image.pixels = {'a', 'b', 'c', 'd', 'e', 'f'};
  const std::string expected[] = {"ab cd ef ", "ba dc fe ", "fe dc ba ", "ef cd ab ",
                                  "ace bdf ",  "eca fdb ",  "fdb eca ",  "bdf ace "};
  for (int orientation = 1; orientation <= 8; ++orientation)
    EXPECT_EQ(letters(turned(image, orientation)), expected[orientation - 1]) << orientation;
}

// A directory of two entries, the second Orientation, in either order of bytes.
std::string tiff_of(int orientation, bool is_little) {
  std::string text = is_little ? "II*" : "MM";
  const auto put = [&](int value, int n) {
    for (int i = 0; i < n; ++i) text += static_cast<char>(value >> 8 * (is_little ? i : n - 1 - i));
  };
  is_little ? put(0, 1) : put(42, 2);
  put(8, 4);  // where the directory begins
  put(2, 2);
  for (const int tag : {0x100, 0x112}) {
    put(tag, 2);
    put(3, 2);
    put(1, 4);
    put(tag == 0x112 ? orientation : 5, 2);
    put(0, 2);
  }
  return text;
}

TEST(Images, have_an_orientation_in_jpeg_and_png) {
  const auto of = [](const std::string& file) { return exif_orientation(as_bytes(file)); };
  const std::string png = posix_files().read_text(kFolder + "rgb.png");
  const std::string jpeg = posix_files().read_text(kFolder + "gray.jpg");
  EXPECT_EQ(of(png), 1);
  EXPECT_EQ(of(jpeg), 1);
  for (const bool is_little : {false, true}) {
    for (const int orientation : {1, 6, 8, 9}) {
      const std::string tiff = tiff_of(orientation, is_little), exif("Exif\0\0", 6);
      const auto n = static_cast<char>(2 + exif.size() + tiff.size());
      const std::string app1 = "\xFF\xE1" + std::string(1, '\0') + n + exif + tiff;
      const int expected = orientation == 9 ? 1 : orientation;
      EXPECT_EQ(of(jpeg.substr(0, 2) + app1 + jpeg.substr(2)), expected);
      EXPECT_EQ(of(jpeg.substr(0, 2) + "\xFF\xFF" + app1 + jpeg.substr(2)), expected);
      const std::string chunk =
          std::string(3, '\0') + static_cast<char>(tiff.size()) + "eXIf" + tiff + "crc.";
      constexpr size_t kHeader = 33;  // signature and IHDR
      EXPECT_EQ(of(png.substr(0, kHeader) + chunk + png.substr(kHeader)), expected);
      for (size_t n_kept = 0; n_kept < app1.size(); ++n_kept)  // cut short: as without
        EXPECT_EQ(of(jpeg.substr(0, 2) + app1.substr(0, n_kept)), 1);
    }
  }
}

TEST(Images, say_what_of_a_file_is_not_read) {
  using testing::ElementsAre;
  const auto parts = [](const std::string& name) {
    return unread_parts(posix_files().read_bytes(kFolder + name));
  };
  EXPECT_THAT(parts("rgb.png"), ElementsAre());
  EXPECT_THAT(parts("gray.jpg"), ElementsAre());
  for (const char* name : {"rgba.png", "gray_alpha.png", "palette_alpha.png"})
    EXPECT_THAT(parts(name), ElementsAre(HasSubstr("alpha"))) << name;
  EXPECT_THAT(parts("sixteen_bits.png"), ElementsAre(HasSubstr("16 bits")));
  const std::string png = posix_files().read_text(kFolder + "rgb.png");
  const std::string animated = png.substr(0, 33) + std::string("\0\0\0\0acTLcrc.", 12);
  EXPECT_THAT(unread_parts(as_bytes(animated)), ElementsAre(HasSubstr("animated")));
}

}  // namespace
}  // namespace octet::data_images_test
