// Decoding and resizing against Pillow (tools/make_image_goldens.py), and files that are damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "data/images/image.h"
#include "data/images/transforms.h"
#include "unit/base/error_of.h"

namespace octet {
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

// An IHDR chunk of a gray picture, with its checksum where `crc` is right, and a start of data.
std::string png_of(const std::string& extents, const std::string& crc) {
  using namespace std::string_literals;
  return "\x89PNG\r\n\x1A\n\0\0\0\x0DIHDR"s + extents + "\x08\0\0\0\0"s + crc + "\0\0\0\x10IDAT"s;
}

TEST(Images, a_small_file_that_promises_a_large_picture_is_refused_before_memory_is_taken) {
  using namespace std::string_literals;
  // 8192 x 8192, and 2^30 x 2^30.
  EXPECT_EQ(error_of([] {
              const std::string bytes = png_of("\0\0\x20\0\0\0\x20\0"s, "W\xC1\x95\x85"s);
              decode_image(as_bytes(bytes), "a.png");
            }),
            "[images] a.png: expected a PNG file of 8192 x 8192 pixels, got 41 bytes");
  EXPECT_THAT(error_of([] {
                const std::string bytes = png_of("\x40\0\0\0\x40\0\0\0"s, "}\xFF\xB1\x62"s);
                decode_image(as_bytes(bytes), "a.png");
              }),
              HasSubstr("[images] a.png: expected "));
}

TEST(Images, data_of_another_kind_is_named) {
  EXPECT_EQ(error_of([] { decode_image(as_bytes("GIF89a"), "'x'"); }),
            "[images] 'x': expected a PNG or JPEG file, got other data");
}

}  // namespace
}  // namespace octet
