// What a folder's preprocessor_config.json makes of pictures, against transformers' image
// processors (tools/make_image_goldens.py).
#include "infer/image_transforms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "data/images/image.h"
#include "unit/base/scratch_folder.h"

namespace octet {
namespace {

using test::ScratchFolder;
using testing::HasSubstr;

const std::string kPictures = OCTET_SOURCE_DIR "/tests/fixtures/images/";

ImageTransforms transforms_of_folder(const std::string& config, const Log& log = {}) {
  const ScratchFolder folder;
  folder.put(kImageProcessor, config);
  ModelSource source;
  source.folder = folder / "";
  return evaluation_transforms(posix_files(), source, log);
}

// As hex digits, of pixels that are not normalized.
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

TEST(ImageTransforms, another_filter_is_told) {
  std::string warning;
  const Log log([&](LogLevel, const std::string& line) { warning = line; });
  EXPECT_EQ(transforms_of_folder(R"({"resample": 1})", log).filter, ImageFilter::bilinear);
  EXPECT_THAT(warning, HasSubstr("'resample' 1 is not known"));
}

// As an export has it.
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
}  // namespace octet
