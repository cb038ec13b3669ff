// The two files of a folder that say what pictures go through, and what its processor of texts
// says.
#include "infer/processor_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "infer/image_transforms.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::infer_processor_files_test {
namespace {

using nlohmann::json;
using test::ScratchFolder;
using testing::HasSubstr;

// Model of 16 pixels a side, 4 rows a picture: llava's 16 / 8 squared, idefics3's 16 / 4 by 2.
ModelSpec spec_of(ModelKind kind) {
  ModelSpec spec{.kind = kind, .hidden = 16, .heads = 2};
  spec.image_size = 16;
  spec.patch_size = kind == ModelKind::idefics3 ? 4 : 8;
  spec.tower = kind == ModelKind::idefics3 ? VisionTower::siglip : VisionTower::clip;
  spec.pixel_shuffle = 2;
  spec.vision_select = VisionSelect::patches;
  return spec;
}

class ProcessorFiles : public testing::Test {
 protected:
  ImageTransforms read(ModelKind kind) {
    ModelSource source;
    source.folder = folder_ / "";
    source.spec = spec_of(kind);
    const Log log([&](LogLevel, const std::string& line) { told_ = line; });
    return evaluation_transforms(posix_files(), source, log);
  }
  std::string error(ModelKind kind) {
    const std::string all = test::error_of([&] { read(kind); }, folder_ / "");
    return all.substr(std::min(all.size(), all.find(": '") + 2));
  }
  const ScratchFolder folder_;
  std::string told_;
};

const json kClip = {{"image_processor_type", "CLIPImageProcessor"},
                    {"size", {{"shortest_edge", 20}}},
                    {"crop_size", {{"height", 16}, {"width", 16}}},
                    {"image_mean", {0.1, 0.2, 0.3}},
                    {"image_std", {0.9, 0.8, 0.7}}};
// As LlavaProcessor of transformers 5.24 saves it, beside no preprocessor_config.json.
const json kLlava = {{"image_processor", kClip},
                     {"image_token", "<image>"},
                     {"num_additional_image_tokens", 1},
                     {"patch_size", 8},
                     {"processor_class", "LlavaProcessor"},
                     {"vision_feature_select_strategy", "default"}};

TEST_F(ProcessorFiles, what_a_processor_of_texts_and_pictures_saved_counts) {
  folder_.put(kProcessor, kLlava.dump());
  ImageTransforms how = read(ModelKind::llava);
  EXPECT_EQ(how.resize, 20);
  EXPECT_EQ(how.mean, (std::vector<float>{0.1f, 0.2f, 0.3f}));
  EXPECT_EQ(how.std_dev, (std::vector<float>{0.9f, 0.8f, 0.7f}));
  // Before the other file, which older versions wrote.
  folder_.put(kImageProcessor, R"({"image_mean": 0.5})");
  EXPECT_EQ(read(ModelKind::llava).mean, how.mean);
  EXPECT_EQ(read(ModelKind::vit).mean, how.mean);
  json older = kLlava;
  older.erase("image_processor");
  folder_.put(kProcessor, older.dump());
  EXPECT_EQ(read(ModelKind::llava).mean, std::vector<float>{0.5f});
}

TEST_F(ProcessorFiles, refuse_by_name_what_is_not_the_model_s) {
  const struct {
    ModelKind kind;
    json changed;
    std::string error;
  } cases[] = {
      {ModelKind::llava,
       {{"patch_size", 4}},
       "'patch_size': expected with num_additional_image_tokens 1 and "
       "vision_feature_select_strategy default the 4 rows that a picture has in the model, not 16, "
       "got 4"},
      {ModelKind::llava,
       {{"vision_feature_select_strategy", "full"}},
       "'patch_size': expected with num_additional_image_tokens 1 and "
       "vision_feature_select_strategy full the 4 rows that a picture has in the model, not 5, got "
       "8"},
      {ModelKind::llava,
       {{"vision_feature_select_strategy", "cls"}},
       "'vision_feature_select_strategy': expected default or full, got \"cls\""},
      {ModelKind::llava, {{"image_seq_len", 4}}, "'image_seq_len': expected no such key, got 4"},
      {ModelKind::llava, {{"tiles", true}}, "'tiles': expected no such key, got true"},
      {ModelKind::llava,
       {{"image_processor", {{"do_pad", true}}}},
       "'do_pad' is not supported, got true"},
      {ModelKind::idefics3,
       {{"patch_size", nullptr},
        {"num_additional_image_tokens", nullptr},
        {"vision_feature_select_strategy", nullptr},
        {"image_seq_len", 169}},
       "'image_seq_len': expected the 4 rows that a picture has in the model, got 169"},
  };
  for (const auto& one : cases) {
    json changed = kLlava;
    changed.update(one.changed);
    folder_.put(kProcessor, changed.dump());
    EXPECT_EQ(error(one.kind), one.error);
  }
}

// Idefics3's splits large pictures into parts where its file does not say otherwise.
TEST_F(ProcessorFiles, pictures_of_idefics3_are_one_square_or_refused) {
  const json squares = {{"image_processor_type", "Idefics3ImageProcessor"},
                        {"do_image_splitting", false},
                        {"do_pad", true},
                        {"max_image_size", {{"longest_edge", 16}}},
                        {"size", {{"height", 16}, {"width", 16}}},
                        {"resample", 3},
                        {"image_mean", 0.25}};
  const auto put = [&](const json& changed) {
    json all = squares;
    all.update(changed);
    for (auto it = all.begin(); it != all.end();) it = it->is_null() ? all.erase(it) : ++it;
    folder_.put(kImageProcessor, all.dump());
  };
  for (const json& type : {json("Idefics3ImageProcessor"), json()}) {
    put({{"image_processor_type", type}});
    const ImageTransforms how = read(ModelKind::idefics3);
    EXPECT_TRUE(how.stretches);
    EXPECT_EQ(how.mean, std::vector<float>{0.25f});
  }
  const std::pair<json, std::string> cases[] = {
      {{{"do_image_splitting", nullptr}},
       "'do_image_splitting': expected false, got none, which means true"},
      {{{"do_image_splitting", true}}, "'do_image_splitting': expected false, got true"},
      {{{"max_image_size", nullptr}},
       R"('max_image_size': expected {"longest_edge":16}, got none, which means 364)"},
      {{{"size", {{"longest_edge", 64}}}},
       R"('size': expected {"height":16,"width":16}, got {"longest_edge":64})"},
      {{{"resample", nullptr}}, ""}};
  for (const auto& [changed, expected] : cases) {
    put(changed);
    EXPECT_EQ(error(ModelKind::idefics3).substr(0, expected.size()), expected);
    EXPECT_NE(error(ModelKind::idefics3), "");
  }
}

TEST_F(ProcessorFiles, tell_of_a_processor_that_is_not_known) {
  folder_.put(kImageProcessor, R"({"image_processor_type": "LevitImageProcessor", "resample": 3,
      "size": {"height": 16, "width": 16}, "image_mean": 0.5, "image_std": 0.5})");
  read(ModelKind::vit);
  EXPECT_THAT(told_, HasSubstr("'LevitImageProcessor' is not known"));
}

TEST_F(ProcessorFiles, of_an_export_are_read_back) {
  for (const ModelKind kind : {ModelKind::llava, ModelKind::idefics3}) {
    const ImagesConfig images{.stretch = true, .filter = ImageFilter::bicubic, .mean = {0.25}};
    folder_.put(kImageProcessor, image_processor_text(images, spec_of(kind)));
    folder_.put(kProcessor, processor_text(spec_of(kind), "<image>"));
    const ImageTransforms how = read(kind);
    EXPECT_TRUE(how.stretches);
    EXPECT_EQ(how.filter, ImageFilter::bicubic);
    EXPECT_EQ(how.mean, (std::vector<float>{0.25f, 0.25f, 0.25f}));
  }
}

}  // namespace
}  // namespace octet::infer_processor_files_test
