// Pictures by a folder's preprocessor_config.json, against transformers' image processors
// (tools/make_image_goldens.py).
#include "infer/image_transforms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "data/images/image.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::infer_image_transforms_test {
namespace {

using test::ScratchFolder;
using testing::HasSubstr;

const std::string kPictures = OCTET_SOURCE_DIR "/tests/fixtures/images/";

struct OfModel {
  ModelKind kind = ModelKind::vit;
  int64_t size = 8;
};

ImageTransforms transforms_of_folder(const std::string& config, const OfModel& model = {},
                                     const Log& log = {}) {
  const ScratchFolder folder;
  folder.put(kImageProcessor, config);
  ModelSource source;
  source.folder = folder / "";
  source.spec.kind = model.kind;
  source.spec.image_size = model.size;
  return evaluation_transforms(posix_files(), source, log);
}

std::string error_of_folder(const std::string& config) {
  const std::string error = test::error_of([&] { transforms_of_folder(config); });
  return error.substr(std::min(error.size(), error.find(": '") + 2));
}

// Hex digits of pixels that are not normalized.
std::string processed(const std::string& name, ImageTransforms how, int64_t size) {
  how.size = size;
  how.mean = {0};
  how.std_dev = {1.0f / 255};
  std::vector<float> values(static_cast<size_t>(how.channels * size * size));
  transform(decode_image(posix_files().read_bytes(kPictures + name), name), how, {}, values);
  std::string digits;
  for (const float value : values) digits += fmt::format("{:02x}", std::lround(value));
  return digits;
}

TEST(ImageTransforms, pictures_become_what_image_processors_of_transformers_make_of_them) {
  const auto cases = nlohmann::json::parse(posix_files().read_text(kPictures + "processed.json"));
  ASSERT_GE(cases.size(), 20u);
  for (const auto& one : cases) {
    SCOPED_TRACE(one["of"].dump() + one["config"].dump());
    const ImageTransforms how = transforms_of_folder(one["config"].dump());
    EXPECT_EQ(processed(one["of"], how, one["shape"][1]), one["pixels"].get<std::string>());
  }
}

TEST(ImageTransforms, what_a_file_does_not_say_is_as_in_the_processor_that_it_names) {
  const auto by_type = [](const std::string& type, const OfModel& model = {}) {
    return transforms_of_folder(R"({"image_processor_type": ")" + type + R"("})", model);
  };
  for (const char* type : {"ViTImageProcessor", "ViTImageProcessorFast", "ViTFeatureExtractor"}) {
    const ImageTransforms vit = by_type(type);
    EXPECT_EQ(vit.filter, ImageFilter::bilinear);
    EXPECT_TRUE(vit.stretches);
    EXPECT_EQ(vit.resize, 0);
    EXPECT_EQ(vit.mean, std::vector<float>{0.5f});
  }
  const ImageTransforms deit = by_type("DeiTImageProcessor", {.size = 224});
  EXPECT_EQ(deit.filter, ImageFilter::bicubic);
  EXPECT_TRUE(deit.stretches);
  EXPECT_EQ(deit.resize, 256);
  const ImageTransforms clip = by_type("CLIPImageProcessor", {.size = 224});
  EXPECT_EQ(clip.filter, ImageFilter::bicubic);
  EXPECT_FALSE(clip.stretches);
  EXPECT_EQ(clip.resize, 0);
  EXPECT_EQ(clip.mean, (std::vector<float>{0.48145466f, 0.4578275f, 0.40821073f}));
  EXPECT_EQ(transforms_of_folder("{}", {.kind = ModelKind::deit}).filter, ImageFilter::bicubic);
  EXPECT_EQ(transforms_of_folder("{}").filter, ImageFilter::bilinear);
  EXPECT_THAT(test::error_of([&] { by_type("OwnImageProcessor"); }),
              HasSubstr("expected 'resample' beside this image_processor_type, got none"));
  EXPECT_FALSE(transforms_of_folder(R"({"size": 8, "default_to_square": false})").stretches);
}

// As in transformers 5: null is no, and a crop that the file asks for leaves the class its size.
TEST(ImageTransforms, nulls_are_no_and_a_crop_of_the_file_has_its_class_s_size) {
  EXPECT_EQ(transforms_of_folder(R"({"do_normalize": null})").mean, std::vector<float>{0.0f});
  std::string warning;
  const Log log([&](LogLevel, const std::string& line) { warning = line; });
  transforms_of_folder(R"({"do_resize": null})", {}, log);
  EXPECT_THAT(warning, HasSubstr("'do_resize' is false"));
  const ImageTransforms crop = transforms_of_folder(
      R"({"image_processor_type": "SiglipImageProcessor", "do_center_crop": true,
          "crop_size": {"height": 32, "width": 32}})",
      {.size = 32});
  EXPECT_EQ(crop.resize, 224);
}

TEST(ImageTransforms, what_is_not_supported_is_refused_by_name) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"resample": 1})", "'resample': expected 2 (bilinear) or 3 (bicubic), got 1"},
      {R"({"resample": 0})", "'resample': expected 2 (bilinear) or 3 (bicubic), got 0"},
      {R"({"do_rescale": false, "rescale_factor": 0.00392156862745098})",
       "'do_rescale': expected true, got false"},
      {R"({"rescale_factor": 0.5})", "'rescale_factor': expected 1/255, got 0.5"},
      {R"({"crop_pct": 0.9})", "'crop_pct' is not supported, got 0.9"},
      {R"({"do_pad": true})", "'do_pad' is not supported, got true"},
      {R"({"do_center_crop": true, "crop_size": 7})",
       "'crop_size': expected the model's 8 pixels, got 7"},
      {R"({"do_center_crop": true, "crop_size": {"height": 8, "width": 7}})",
       "'crop_size': expected the model's 8 pixels, got {\"height\":8,\"width\":7}"},
      {R"({"size": {"height": 9, "width": 9}})",
       "'size': expected the model's 8 pixels, got {\"height\":9,\"width\":9}"},
      {R"({"size": {"shortest_edge": 8, "longest_edge": 9}})",
       "'size': expected height and width, or shortest_edge, got "
       "{\"longest_edge\":9,\"shortest_edge\":8}"},
      {R"({"size": [8, 8]})", "'size': expected height and width, or shortest_edge, got [8,8]"},
      {R"({"do_resize": false, "do_center_crop": true})",
       "'do_resize': expected true beside do_center_crop, got false"},
      {R"({"size": 0})", "'size': expected the model's 8 pixels, got 0"},
      {R"({"size": {"shortest_edge": 0}})",
       "'size': expected from the model's 8 to 16384 pixels, got {\"shortest_edge\":0}"},
      {R"({"size": {"shortest_edge": 9223372036854775808}})",
       "'size': expected from the model's 8 to 16384 pixels, got "
       "{\"shortest_edge\":9223372036854775808}"},
      {R"({"size": {"height": 7, "width": 7}, "do_center_crop": true})",
       "'size': expected from the model's 8 to 16384 pixels, got {\"height\":7,\"width\":7}"},
      {R"({"image_std": [0.5, 0, 0.5]})",
       "'image_std': expected 1 or 3 numbers from 1e-06 to 1000, got [0.5,0,0.5]"},
      {R"({"image_std": 0})", "'image_std': expected 1 or 3 numbers from 1e-06 to 1000, got 0"},
      {R"({"image_mean": [0.5, 0.5]})",
       "'image_mean': expected 1 or 3 numbers from -1000 to 1000, got [0.5,0.5]"},
      {R"({"image_mean": ["a"]})", "'image_mean': expected a list of numbers, got [\"a\"]"},
  };
  for (const auto& [config, error] : cases) EXPECT_EQ(error_of_folder(config), error) << config;
}

TEST(ImageTransforms, keys_that_change_no_pixel_are_passed_over) {
  const ImageTransforms how = transforms_of_folder(
      R"({"processor_class": "X", "do_convert_rgb": null, "data_format": "channels_first",
          "use_fast": true, "do_pad": false, "pad_size": null, "crop_pct": null, "image_mean": 0.25,
          "do_reduce_labels": true, "_valid_processor_keys": ["images"]})");
  EXPECT_EQ(how.mean, std::vector<float>{0.25f});
}

TEST(ImageTransforms, pictures_that_the_library_would_not_resize_are_told) {
  std::string warning;
  const Log log([&](LogLevel, const std::string& line) { warning = line; });
  transforms_of_folder(R"({"do_resize": false, "resample": 1})", {}, log);
  EXPECT_THAT(warning, HasSubstr("'do_resize' is false"));
  transforms_of_folder(R"({"size": {"shortest_edge": 8}, "do_center_crop": false})", {}, log);
  EXPECT_THAT(warning, HasSubstr("the middle is taken"));
}

// A file as folders of residual networks have it.
TEST(ImageTransforms, a_share_of_the_picture_is_cropped_below_384_pixels) {
  constexpr const char* kFile = R"({"crop_pct": 0.875, "do_normalize": true, "do_resize": true,
      "feature_extractor_type": "ConvNextFeatureExtractor", "image_mean": [0.485, 0.456, 0.406],
      "image_std": [0.229, 0.224, 0.225], "resample": 3, "size": 224})";
  const ImageTransforms how = transforms_of_folder(kFile, {.kind = ModelKind::resnet, .size = 224});
  EXPECT_EQ(how.resize, 256);
  EXPECT_FALSE(how.stretches);
  EXPECT_EQ(how.filter, ImageFilter::bicubic);
  EXPECT_EQ(how.mean, (std::vector<float>{0.485f, 0.456f, 0.406f}));
  // A file without a type is the model's library class's.
  const ImageTransforms own =
      transforms_of_folder(R"({"size": 224})", {.kind = ModelKind::resnet, .size = 224});
  EXPECT_EQ(own.resize, 256);
  const ImageTransforms large =
      transforms_of_folder(R"({"image_processor_type": "ConvNextImageProcessor"})", {.size = 384});
  EXPECT_TRUE(large.stretches);
  const std::pair<const char*, const char*> cases[] = {
      {R"("size": 9)", "'size': expected the model's 8 pixels of the shorter edge, got 9"},
      {R"("size": {"height": 8, "width": 8})",
       "'size': expected the model's 8 pixels of the shorter edge, got {\"height\":8,\"width\":8}"},
      {R"("crop_pct": 0.875)",
       "'size': expected the model's 8 pixels of the shorter edge, got none, which means 384"},
      {R"("size": 8, "crop_pct": 0)",
       "'crop_pct': expected at most 1, and a shorter side of at most 16384 pixels, got 0"},
      {R"("size": 8, "crop_pct": 1e-300)",
       "'crop_pct': expected at most 1, and a shorter side of at most 16384 pixels, got 1e-300"},
      {R"("size": 8, "crop_pct": 1.5)",
       "'crop_pct': expected at most 1, and a shorter side of at most 16384 pixels, got 1.5"},
  };
  for (const auto& [keys, error] : cases) {
    const std::string file =
        fmt::format(R"({{"image_processor_type": "ConvNextImageProcessor", {}}})", keys);
    EXPECT_EQ(error_of_folder(file.c_str()), error) << keys;
  }
}

// Files as folders of mobilenet_v2 have them, with or without a type.
TEST(ImageTransforms, mobilenet_s_processor_crops_a_picture_of_256) {
  for (const char* file : {R"({"image_processor_type": "MobileNetV2ImageProcessor"})", "{}",
                           R"({"size": {"shortest_edge": 256}, "crop_size": 224})"}) {
    const ImageTransforms how =
        transforms_of_folder(file, {.kind = ModelKind::mobilenet_v2, .size = 224});
    EXPECT_EQ(how.resize, 256);
    EXPECT_FALSE(how.stretches);
    EXPECT_EQ(how.filter, ImageFilter::bilinear);
    EXPECT_EQ(how.mean, std::vector<float>{0.5f});
  }
}

// Beside adapters no config.json says whose processor a file is.
TEST(ImageTransforms, the_file_of_a_run_names_a_processor_that_does_what_it_says) {
  ModelSpec spec;
  spec.image_size = 8;
  const auto type = [&](bool stretches) {
    return nlohmann::json::parse(image_processor_text({.stretch = stretches}, spec))
        .at("image_processor_type");
  };
  EXPECT_EQ(type(false), "BitImageProcessor");  // the shorter side, then the middle
  EXPECT_EQ(type(true), "DeiTImageProcessor");  // both sides, then the middle
}

// A run as an export has it.
TEST(ImageTransforms, a_run_is_read_back_as_it_is) {
  ImagesConfig images{.size = 12, .filter = ImageFilter::bicubic, .mean = {0.25}};
  ModelSpec spec;
  spec.image_size = 8;
  const ImageTransforms own = transforms_of(images);
  const ImageTransforms read = transforms_of_folder(image_processor_text(images, spec));
  EXPECT_EQ(read.filter, ImageFilter::bicubic);
  EXPECT_EQ(processed("rgb.png", read, 8), processed("rgb.png", own, 8));
}

}  // namespace
}  // namespace octet::infer_image_transforms_test
