#include "data/images/transforms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>

namespace octet::data_transforms_test {
namespace {

using testing::ElementsAre;

// Pixels count up from 1.
Image counting(int64_t channels, int64_t height, int64_t width) {
  Image image(channels, height, width);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i + 1);
  return image;
}

TEST(Transforms, what_is_cropped_outside_of_the_picture_is_black) {
  const Image image = counting(1, 2, 3);
  EXPECT_THAT(crop(image, 0, 1, 2, 2).pixels, ElementsAre(2, 3, 5, 6));
  EXPECT_THAT(crop(image, -1, -1, 2, 3).pixels, ElementsAre(0, 0, 0, 0, 1, 2));
  EXPECT_THAT(crop(image, 1, 2, 2, 2).pixels, ElementsAre(6, 0, 0, 0));
  EXPECT_THAT(crop(image, 5, -9, 1, 2).pixels, ElementsAre(0, 0));
  EXPECT_THAT(crop(counting(2, 2, 2), 1, 0, 1, 2).pixels, ElementsAre(3, 4, 7, 8));
}

TEST(Transforms, a_center_crop_rounds_halves_toward_zero) {
  EXPECT_EQ(center_box(1, 4, 1), (ImageBox{0, 1, 1, 1}));  // 1.5 -> 1
  EXPECT_EQ(center_box(1, 2, 1), (ImageBox{0, 0, 1, 1}));  // 0.5 -> 0
  EXPECT_EQ(center_box(3, 3, 1), (ImageBox{1, 1, 1, 1}));
}

TEST(Transforms, a_part_of_a_resized_picture_has_the_bits_of_the_whole) {
  const Image image = counting(2, 7, 12);
  for (const ImageFilter filter : {ImageFilter::bilinear, ImageFilter::bicubic}) {
    for (const auto& [height, width] : {std::pair{7, 5}, {3, 12}, {20, 31}, {7, 12}, {4, 5}}) {
      const Image whole = resize(image, height, width, filter);
      for (const ImageBox& box : {ImageBox{0, 0, height, width},
                                  {1, 2, 2, 3},
                                  {-2, -1, 4, 9},
                                  {height - 1, width - 1, 3, 3},
                                  {height, 0, 2, 2}}) {
        EXPECT_EQ(resize_crop(image, height, width, box, filter).pixels,
                  crop(whole, box.top, box.left, box.height, box.width).pixels);
      }
    }
  }
}

// All of it would have 3.6 x 10^12 pixels.
TEST(Transforms, of_a_long_picture_what_is_seen_is_computed) {
  for (const bool is_wide : {true, false}) {
    const Image image = is_wide ? counting(1, 1, 60'000) : counting(1, 60'000, 1);
    std::vector<float> out(64);
    transform(image, {.channels = 1, .size = 8, .resize = 8'000, .mean = {0}, .std_dev = {1}},
              {.use = RowUse::evaluation}, out);
    const float middle = static_cast<float>(image.pixels[30'000]) / 255;
    EXPECT_NEAR(out[36], middle, 1.0 / 255);
  }
}

TEST(Transforms, a_flip_turns_each_row_of_each_channel_around) {
  EXPECT_THAT(flip_left_right(counting(2, 2, 2)).pixels, ElementsAre(2, 1, 4, 3, 6, 5, 8, 7));
}

// A row of 2 columns of 4 becomes 2 x 2 of the means of what it covers, or its middle half.
TEST(Transforms, a_stretched_picture_is_seen_whole) {
  Image image(1, 2, 4);
  image.pixels = {0, 0, 0, 255, 0, 0, 0, 255};
  const auto seen = [&](bool stretches) {
    std::vector<float> out(4);
    transform(image,
              {.channels = 1, .size = 2, .stretches = stretches, .mean = {0}, .std_dev = {1}},
              {.use = RowUse::evaluation}, out);
    return out;
  };
  EXPECT_THAT(seen(false), ElementsAre(0, 0, 0, 0));
  EXPECT_GT(seen(true)[1], 0.3f);
  EXPECT_GT(seen(true)[3], 0.3f);
}

TEST(Transforms, the_shorter_side_decides_how_a_picture_is_resized) {
  const struct {
    int64_t height, width, size, new_height, new_width;
  } cases[] = {{10, 20, 5, 5, 10}, {20, 10, 5, 10, 5}, {7, 10, 3, 3, 4}, {3, 3, 9, 9, 9}};
  for (const auto& one : cases) {
    EXPECT_EQ(with_shorter_side(one.height, one.width, one.size),
              (ImageBox{.height = one.new_height, .width = one.new_width}));
  }
}

TEST(Transforms, pixels_are_normalized_by_channel) {
  Image image(3, 1, 2);
  image.pixels = {0, 255, 0, 255, 51, 102};
  std::vector<float> out(6);
  normalize(image, std::vector{0.5f, 0.0f, 0.25f}, std::vector{0.5f, 1.0f, 0.25f}, out);
  EXPECT_THAT(out, ElementsAre(-1.0f, 1.0f, 0.0f, 1.0f, (51.0f / 255 - 0.25f) / 0.25f,
                               (102.0f / 255 - 0.25f) / 0.25f));
  normalize(image, std::vector{1.0f}, std::vector{2.0f}, out);
  EXPECT_THAT(out,
              ElementsAre(-0.5f, 0.0f, -0.5f, 0.0f, (51.0f / 255 - 1) / 2, (102.0f / 255 - 1) / 2));
}

std::vector<float> transformed(const Image& image, const ImageTransforms& how,
                               const RowCell& where) {
  std::vector<float> out(static_cast<size_t>(how.channels * how.size * how.size));
  transform(image, how, where, out);
  return out;
}

const ImageTransforms kRandom = {.channels = 1,
                                 .size = 3,
                                 .crop = ImageCrop::random,
                                 .pad = 1,
                                 .flip = true,
                                 .mean = {0},
                                 .std_dev = {1.0f / 255}};

TEST(Transforms, choices_are_a_function_of_seed_and_row) {
  const Image image = counting(1, 3, 3);
  std::map<std::vector<float>, int> seen;
  constexpr int kRows = 9000;
  for (int64_t row = 0; row < kRows; ++row) {
    const auto once =
        transformed(image, kRandom, {.use = RowUse::training, .seed = 7, .drawn = row});
    EXPECT_EQ(once,
              transformed(image, kRandom, {.use = RowUse::training, .seed = 7, .drawn = row}));
    ++seen[once];
  }
  // 3 x 3 places, each flipped or not, all as often: 500 times, standard deviation 21.7.
  EXPECT_EQ(seen.size(), 18u);
  for (const auto& [pixels, n] : seen) EXPECT_NEAR(n, kRows / 18, 110);
  EXPECT_NE(transformed(image, kRandom, {.use = RowUse::training, .seed = 7, .drawn = 1}),
            transformed(image, kRandom, {.use = RowUse::training, .seed = 8, .drawn = 1}));
}

// Made by torchvision's RandomResizedCrop.get_params (its Python, with these numbers for random's).
TEST(Transforms, a_random_part_is_the_one_that_torchvision_takes) {
  const struct {
    int64_t height, width;
    RandomPart part;
    int seed;
    ImageBox box;
  } cases[] = {
      {32, 32, {{0.08, 1}, {0.75, 4.0 / 3}}, 23, {10, 1, 22, 25}},
      {32, 32, {{0.08, 1}, {0.75, 4.0 / 3}}, 0, {9, 15, 10, 8}},
      {480, 640, {{0.08, 1}, {0.75, 4.0 / 3}}, 34, {7, 33, 423, 539}},
      {480, 640, {{0.08, 1}, {0.75, 4.0 / 3}}, 9, {91, 17, 377, 416}},
      {10, 300, {{0.5, 1}, {0.75, 4.0 / 3}}, 62, {0, 143, 10, 13}},  // none of ten fits
      {300, 10, {{0.5, 1}, {0.75, 4.0 / 3}}, 32, {143, 0, 13, 10}},
      {224, 200, {{0.2, 0.4}, {0.5, 2}}, 53, {9, 45, 179, 90}},
      {224, 200, {{0.2, 0.4}, {0.5, 2}}, 15, {6, 11, 96, 154}},
      {7, 5, {{0.9, 1}, {1, 1}}, 24, {1, 0, 5, 5}},
  };
  for (const auto& one : cases) {
    const auto uniform = [&](int n_try) {
      std::array<double, 4> numbers;
      for (int i = 0; i < 4; ++i)
        numbers[static_cast<size_t>(i)] = (one.seed * 7 + 31 * n_try + 13 * i) % 64 / 64.0;
      return numbers;
    };
    EXPECT_EQ(random_box(one.height, one.width, one.part, uniform), one.box)
        << one.height << " x " << one.width << ", " << one.seed;
  }
}

// The part is the range of what comes out where pixels say where they stand.
TEST(Transforms, random_parts_have_all_sizes_and_hang_on_seed_and_row) {
  Image image(1, 64, 64);
  for (int64_t y = 0; y < 64; ++y) {
    for (int64_t x = 0; x < 64; ++x) image.row(0, y)[static_cast<size_t>(x)] = 4 * x;
  }
  ImageTransforms how = {.channels = 1, .size = 8, .mean = {0}, .std_dev = {1.0f / 255}};
  how.crop = ImageCrop::random_resized;
  how.part = {.scale = {0.25, 0.5}, .ratio = {1, 1}};
  int n_small = 0;
  constexpr int kRows = 400;
  for (int64_t row = 0; row < kRows; ++row) {
    const RowCell where{.use = RowUse::training, .seed = 7, .drawn = row};
    const auto once = transformed(image, how, where);
    EXPECT_EQ(once, transformed(image, how, where));
    // Columns 1 and 6 of eight, away from the borders, are 5/8 of the width apart: 32 to 45 pixels.
    const float width = (once[6] - once[1]) / 4 * 8 / 5;
    EXPECT_GT(width, 32 - 1.5f);
    EXPECT_LT(width, 45 + 1.5f);
    n_small += width < 39.5f ? 1 : 0;
  }
  // 39.5^2 is 0.524 of the way from 32^2 to 64^2 / 2; four standard deviations.
  EXPECT_NEAR(n_small, 0.524 * kRows, 40);
  const auto first = transformed(image, how, {.use = RowUse::training, .seed = 7, .drawn = 1});
  EXPECT_NE(first, transformed(image, how, {.use = RowUse::training, .seed = 8, .drawn = 1}));
  EXPECT_NE(first, transformed(image, how, {.use = RowUse::training, .seed = 7, .drawn = 2}));
  ImageTransforms center = how;
  center.crop = ImageCrop::center;
  EXPECT_EQ(transformed(image, how, {}), transformed(image, center, {}));
}

TEST(Transforms, an_evaluation_leaves_nothing_to_chance) {
  const Image image = counting(1, 5, 5);
  const ImageTransforms how = {.channels = 1, .size = 5, .mean = {0}, .std_dev = {1.0f / 255}};
  ImageTransforms random = how;
  random.crop = ImageCrop::random;
  random.pad = 2;
  random.flip = true;
  for (int64_t row = 0; row < 20; ++row) {
    EXPECT_EQ(transformed(image, random, {.seed = 7, .drawn = row}), transformed(image, how, {}));
  }
}

TEST(Transforms, the_shorter_side_may_be_longer_than_the_crop) {
  const Image image = counting(1, 4, 8);
  const ImageTransforms how = {
      .channels = 1, .size = 2, .resize = 4, .mean = {0}, .std_dev = {1.0f / 255}};
  EXPECT_THAT(transformed(image, how, {}),
              testing::Pointwise(testing::FloatNear(1e-4f), {12.0f, 13.0f, 20.0f, 21.0f}));
}

TEST(Transforms, channels_and_sizes_become_those_of_the_model) {
  const ImageTransforms how = {.channels = 3, .size = 2, .mean = {0}, .std_dev = {1.0f / 255}};
  Image image(1, 4, 8);
  std::fill(image.pixels.begin(), image.pixels.end(), uint8_t{100});
  EXPECT_THAT(transformed(image, how, {}), testing::Each(testing::FloatNear(100, 1e-4f)));
}

}  // namespace
}  // namespace octet::data_transforms_test
