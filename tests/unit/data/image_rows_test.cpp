#include "data/images/image_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "data/row_plan.h"
#include "unit/base/error_of.h"

namespace octet::data_image_rows_test {
namespace {

using test::error_of;
using testing::ElementsAre;

// Picture i is n x n pixels of 10 i in each channel, of class i; those of `damaged` are not whole.
class Plain : public ImageSource {
 public:
  Plain(int64_t n, std::vector<int64_t> damaged = {}, int64_t channels = 1, int64_t size = 2)
      : n_(n), damaged_(std::move(damaged)), channels_(channels), size_(size) {}
  int64_t n_images() const override { return n_; }
  int32_t label(int64_t image) const override { return static_cast<int32_t>(image); }
  std::string name_of(int64_t image) const override { return fmt::format("picture {}", image); }
  std::vector<std::string> classes() const override { return {}; }
  uint64_t identity() const override { return 1; }
  Image decode(int64_t image) const override {
    if (std::ranges::find(damaged_, image) != damaged_.end())
      throw Error(ErrorCode::bad_data, "[images] {} is damaged", name_of(image));
    Image result(channels_, size_, size_);
    std::ranges::fill(result.pixels, static_cast<uint8_t>(10 * image));
    return result;
  }

 private:
  int64_t n_;
  std::vector<int64_t> damaged_;
  int64_t channels_, size_;
};

std::vector<InputSpec> inputs(int64_t n_pixels, int64_t bound = 0) {
  return {{.name = "pixels", .per = Per::row, .inner = {n_pixels}, .type = HostType::real},
          {.name = "labels", .per = Per::row, .fill = Fill::ignored, .bound = bound}};
}

const ImageTransforms kBytes = {.mean = {0}, .std_dev = {1.0f / 255}};

TEST(ImageRows, pictures_become_rows_of_pixels_with_their_label) {
  const auto rows = image_rows(std::make_shared<Plain>(3), inputs(4), kBytes);
  EXPECT_EQ(rows->n_samples(), 3);
  EXPECT_EQ(rows->n_counted(2, {}, rows->inputs()[1]), 1);
  EXPECT_EQ(rows->sample_bytes(), 4);
  const Batch batch = SampleEval(rows, {.seq = 1}).at(1, 2);
  EXPECT_THAT(batch.ints("labels"), ElementsAre(1, 2));
  EXPECT_THAT(batch.reals("pixels"),
              testing::Pointwise(testing::FloatNear(1e-5f), {10, 10, 10, 10, 20, 20, 20, 20}));
}

TEST(ImageRows, the_model_decides_channels_and_size) {
  const auto rows = image_rows(std::make_shared<Plain>(2), inputs(3 * 5 * 5), kBytes);
  EXPECT_EQ(SampleEval(rows, {.seq = 1}).at(0, 2).reals("pixels").size(), 150u);
  const auto without_label = image_rows(std::make_shared<Plain>(2), {inputs(4)[0]}, kBytes);
  EXPECT_EQ(SampleEval(without_label, {.seq = 1}).at(0, 2).tensors.size(), 1u);
  EXPECT_EQ(error_of([] { image_rows(std::make_shared<Plain>(2), inputs(6), kBytes); }),
            "[images] expected 'pixels' of a square picture of 1 or 3 channels, got 6 elements");
}

// Four channels of one pixel are no gray picture of four pixels, nor are twelve three of four.
TEST(ImageRows, channels_that_no_picture_has_are_refused) {
  for (const std::vector<int64_t>& inner : {std::vector<int64_t>{4, 1, 1}, {12, 1, 1}, {1, 2, 8}}) {
    std::vector<InputSpec> brought = inputs(4);
    brought[0].inner = inner;
    EXPECT_EQ(error_of([&] { image_rows(std::make_shared<Plain>(2), brought, kBytes); }),
              fmt::format("[images] expected 'pixels' of a square picture of 1 or 3 channels, got "
                          "[{}]",
                          fmt::join(inner, ", ")));
  }
  std::vector<InputSpec> color = inputs(3);
  color[0].inner = {3, 5, 5};
  const auto rows =
      image_rows(std::make_shared<Plain>(2, std::vector<int64_t>{}, 3), color, kBytes);
  EXPECT_EQ(SampleEval(rows, {.seq = 1}).at(0, 1).reals("pixels").size(), 75u);
}

TEST(ImageRows, a_damaged_picture_gives_its_place_to_the_next_with_one_warning) {
  std::vector<std::string> warnings;
  const auto rows =
      image_rows(std::make_shared<Plain>(4, std::vector<int64_t>{1, 2}), inputs(4), kBytes,
                 Log([&](LogLevel, const std::string& line) { warnings.push_back(line); }));
  for (int i = 0; i < 2; ++i) {
    const Batch batch = SampleEval(rows, {.seq = 1}).at(0, 4);
    EXPECT_THAT(batch.ints("labels"), ElementsAre(0, 3, 3, 3));
    EXPECT_NEAR(batch.reals("pixels")[4], 30, 1e-5);
  }
  EXPECT_THAT(warnings,
              ElementsAre("[images] picture 1 is damaged; the next picture takes its place",
                          "[images] picture 2 is damaged; the next picture takes its place"));
}

TEST(ImageRows, of_many_damaged_pictures_five_are_named_and_all_are_counted) {
  std::vector<std::string> warnings;
  std::vector<int64_t> damaged(100);
  std::iota(damaged.begin(), damaged.end(), 0);
  const auto rows =
      image_rows(std::make_shared<Plain>(101, damaged), inputs(4), kBytes,
                 Log([&](LogLevel, const std::string& line) { warnings.push_back(line); }));
  EXPECT_THAT(SampleEval(rows, {.seq = 1}).at(0, 1).ints("labels"), ElementsAre(100));
  ASSERT_EQ(warnings.size(), 7u);
  EXPECT_EQ(warnings[4], "[images] picture 4 is damaged; the next picture takes its place");
  EXPECT_EQ(warnings[5], "[images] 10 damaged pictures have been replaced so far");
  EXPECT_EQ(warnings[6], "[images] 100 damaged pictures have been replaced so far");
}

TEST(ImageRows, pictures_that_are_all_damaged_are_an_error) {
  const auto rows =
      image_rows(std::make_shared<Plain>(2, std::vector<int64_t>{0, 1}), inputs(4), kBytes);
  EXPECT_EQ(error_of([&] { SampleEval(rows, {.seq = 1}).at(0, 1); }),
            "[images] picture 1 is damaged");
}

TEST(ImageRows, what_does_not_fit_is_said_before_the_run) {
  const auto error = [](const std::vector<InputSpec>& of, const ImageTransforms& how) {
    return error_of([&] { image_rows(std::make_shared<Plain>(3), of, how); });
  };
  EXPECT_EQ(error(inputs(4, 2), kBytes), "[images] picture 2: expected a label below 2, got 2");
  auto more = inputs(4);
  more.push_back({.name = "tokens"});
  EXPECT_EQ(error(more, kBytes),
            "[images] expected a model that reads one picture and one label a row, got pixels, "
            "labels, tokens");
  ImageTransforms small = kBytes;
  small.resize = 1;
  EXPECT_EQ(error(inputs(4), small),
            "data.images.size: expected at least the model's 2 pixels, got 1");
  ImageTransforms colors = kBytes;
  colors.mean = {0, 0, 0};
  EXPECT_EQ(error(inputs(4), colors),
            "data.images.mean: expected 1 number, or one for each of 1 channels, got 3");
}

TEST(ImageRows, a_resumed_loader_sees_the_same_crops_and_flips) {
  ImageTransforms how = kBytes;
  how.crop = ImageCrop::random;
  how.pad = 1;
  how.flip = true;
  const auto rows =
      image_rows(std::make_shared<Plain>(5, std::vector<int64_t>{}, 3, 4), inputs(3 * 4 * 4), how);
  RowLoader loader(rows, {.seq = 1, .seed = 11});
  loader.advance(7);
  const LoaderState state = loader.state();
  const Batch expected = std::as_const(loader).peek(0, 9);
  RowLoader resumed(rows, {.seq = 1, .seed = 11});
  resumed.restore(state);
  const Batch first = std::as_const(resumed).peek(0, 4), rest = std::as_const(resumed).peek(4, 5);
  std::vector<float> pixels = first.reals("pixels");
  pixels.insert(pixels.end(), rest.reals("pixels").begin(), rest.reals("pixels").end());
  EXPECT_EQ(pixels, expected.reals("pixels"));
  // The same pictures of the next epoch are cropped elsewhere.
  EXPECT_NE(std::as_const(loader).peek(5, 5).reals("pixels"),
            std::as_const(loader).peek(0, 5).reals("pixels"));
}

}  // namespace
}  // namespace octet::data_image_rows_test
