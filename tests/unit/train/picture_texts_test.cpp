// A tiny model that sees pictures, trained on conversations.
#include "train/picture_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backends/cpu/backend.h"
#include "config/load.h"
#include "train/open_run.h"
#include "train/trainer.h"
#include "unit/base/error_of.h"
#include "unit/train/tiny_llava.h"

namespace octet::train_picture_texts_test {
namespace {

using test::error_of;
using test::llava_yaml;
using test::ScratchFolder;

LoadedConfig llava_config_of(const ScratchFolder& folder, const std::string& recipe,
                             const std::vector<std::string>& sets = {}) {
  return parse_config(llava_yaml(folder, recipe), "llava.yaml", sets);
}

struct PictureRun {
  explicit PictureRun(LoadedConfig loaded)
      : open(open_run(posix_files(), std::move(loaded))),
        backend(cpu::make_backend(1, cpu::detect_isa())),
        trainer(open.loaded.config, open.data,
                {posix_files(), *backend.device, *backend.catalogue}) {}
  std::vector<float> losses(int n) {
    std::vector<float> all;
    for (int step = 0; step < n; ++step) all.push_back(trainer.step().loss);
    return all;
  }
  OpenRun open;
  cpu::Backend backend;
  Trainer trainer;
};

class PictureTextsTest : public testing::Test {
 protected:
  PictureTextsTest() { test::put_conversations(folder_); }
  ScratchFolder folder_;
};

class TrainsOnPictures : public PictureTextsTest,
                         public testing::WithParamInterface<std::string> {};

TEST_P(TrainsOnPictures, with_a_loss_that_falls) {
  PictureRun run(llava_config_of(folder_, GetParam()));
  const std::vector<float> losses = run.losses(16);
  for (const float loss : losses) EXPECT_TRUE(std::isfinite(loss));
  EXPECT_LT(losses.back(), 0.75F * losses.front()) << GetParam();
  EXPECT_TRUE(std::isfinite(run.trainer.evaluate().value()));
}
INSTANTIATE_TEST_SUITE_P(Recipes, TrainsOnPictures,
                         testing::Values("bf16", "fp8_linear", "coat", "hif8",
                                         "{base: coat, override: {\"vision.*\": bf16}}"));

TEST_F(PictureTextsTest, channels_and_numbers_that_no_picture_has_are_errors) {
  constexpr std::pair<const char*, const char*> kCases[] = {
      {"model.channels=4", "model.channels: expected 1 or 3 of a model that reads pictures, got 4"},
      {"data.images.mean=[0.1, 0.2]",
       "data.images.mean: expected 1 number, or one for each of 3 channels, got 2"},
      {"data.images.std=[0.1, 0.2, 0.3, 0.4]",
       "data.images.std: expected 1 number, or one for each of 3 channels, got 4"}};
  for (const auto& [set, error] : kCases)
    EXPECT_EQ(error_of([&, set = set] { PictureRun(llava_config_of(folder_, "bf16", {set})); }),
              error);
}

TEST_F(PictureTextsTest, read_the_same_rows_and_pixels_for_the_same_place) {
  PictureRun a(llava_config_of(folder_, "bf16")), b(llava_config_of(folder_, "bf16"));
  EXPECT_EQ(a.losses(4), b.losses(4));
  const auto rows = a.open.data.train_rows;
  EXPECT_EQ(rows->identity(), b.open.data.train_rows->identity());
  folder_.put("gray.png", posix_files().read_text(std::string(OCTET_SOURCE_DIR) +
                                                  "/tests/fixtures/images/gray_alpha.png"));
  PictureRun c(llava_config_of(folder_, "bf16"));
  EXPECT_NE(rows->identity(), c.open.data.train_rows->identity());
}

TEST_F(PictureTextsTest, leave_frozen_parts_as_they_are) {
  const auto bytes_of = [](PictureRun& run, const std::string& name) {
    const Layout& layout = run.trainer.engine().layout();
    const Layout::Slot& slot = layout.slots.at(name);
    const std::byte* at = run.trainer.engine().arenas().arena(slot.arena) + slot.offset;
    return std::vector<std::byte>(at, at + slot.type.n_bytes());
  };
  PictureRun run(llava_config_of(folder_, "bf16",
                                 {"train.freeze=[\"vision_tower.*\", \"language_model.*\"]"}));
  const std::string projector = "multi_modal_projector.linear_1.weight",
                    tower = "vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight";
  const auto before = bytes_of(run, projector), of_tower = bytes_of(run, tower);
  run.losses(2);
  EXPECT_NE(bytes_of(run, projector), before);
  EXPECT_EQ(bytes_of(run, tower), of_tower);
}

TEST_F(PictureTextsTest, refuse_keys_that_rows_of_one_conversation_have_no_meaning_for) {
  const std::pair<const char*, const char*> cases[] = {
      {"data.pack=true", "data.pack: expected false"},
      {"data.buckets=2", "data.buckets: expected 1"},
      {"data.document_boundaries=isolate", "data.document_boundaries: expected ignore"},
      {"model.image_token=270", "model.image_token: expected the id of a token"},
      {"model.images=1", "expected at most 1 pictures (model.images), got 2"}};
  for (const auto& one : cases) {
    const LoadedConfig loaded = llava_config_of(folder_, "bf16", {one.first});
    EXPECT_THAT(error_of([&] { open_run(posix_files(), loaded); }), testing::HasSubstr(one.second));
  }
}

}  // namespace
}  // namespace octet::train_picture_texts_test
