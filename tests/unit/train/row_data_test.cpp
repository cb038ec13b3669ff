#include "train/row_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/shape.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::train_row_data_test {
namespace {

using test::error_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Names = std::vector<std::string>;

struct Numbered {
  Names names, warnings;
};

Numbered numbered(const Names& found, const Names& known, DataUse use,
                  ModelHead head = ModelHead::text, int64_t n_classes = 0) {
  RunConfig config;
  config.model.path = "model";
  config.model.classes = n_classes;
  config.model.head = head;
  Numbered result;
  const Log log([&](LogLevel, const std::string& line) { result.warnings.push_back(line); });
  result.names = number_classes(found, {.known = known, .config = config, .use = use, .log = log});
  return result;
}

TEST(ClassNames, classes_that_the_model_knows_have_its_numbers_in_every_use) {
  for (const DataUse use : {DataUse::training, DataUse::evaluation}) {
    const Numbered result = numbered({"ant", "zebra"}, {"zebra", "cat", "ant"}, use);
    EXPECT_THAT(result.names, ElementsAre("zebra", "cat", "ant"));
    EXPECT_THAT(result.warnings, IsEmpty());
  }
}

TEST(ClassNames, more_classes_than_the_data_have_are_told) {
  const auto warnings = [](int64_t n) {
    return numbered({"ant", "dog"}, {}, DataUse::training, ModelHead::classes, n).warnings;
  };
  EXPECT_THAT(warnings(2), IsEmpty());
  EXPECT_THAT(warnings(5),
              ElementsAre("[data] 2 of 5 classes (model.classes) are in the data: 2 to "
                          "4 are of no sample"));
}

TEST(RowData, folders_of_pictures_have_one_class_each) {
  const test::ScratchFolder folder;
  RunConfig config;
  config.data.train = {folder.path()};
  const ModelSpec spec = filled({.kind = ModelKind::vit, .head = ModelHead::multi_label});
  EXPECT_EQ(
      error_of([&] { open_row_data(posix_files(), config, spec, {}); }, folder.path()),
      "[data] 'DIR': expected .safetensors files with the targets of each picture for model.head: "
      "multi_label (the problem_type of its config.json), got folders, where a picture has one "
      "class (model.head: classes)");
}

TEST(ClassNames, a_class_that_the_model_does_not_know_is_an_error_that_names_it) {
  const Names known = {"zebra", "cat", "ant"};
  EXPECT_EQ(error_of([&] {
              numbered({"ant", "dog", "eel"}, known, DataUse::evaluation);
            }),
            "[data] expected classes of model (zebra, cat, ant), got dog, eel");
  EXPECT_EQ(error_of([&] {
              numbered({"ant", "dog"}, known, DataUse::evaluation, ModelHead::classes);
            }),
            "[data] expected classes of model (zebra, cat, ant), got dog");
  EXPECT_EQ(error_of([&] {
              numbered({"0", "1"}, known, DataUse::training);
            }),
            "[data] expected classes of model (zebra, cat, ant), got 0, 1; model.head: classes "
            "asks for classes of its own");
  const Names most = {"ant", "LABEL_1"};
  EXPECT_THAT(error_of([&] {
                numbered({"ant", "bee"}, most, DataUse::evaluation);
              }),
              HasSubstr("(ant, LABEL_1), got bee"));
}

TEST(ClassNames, a_class_that_the_model_has_twice_is_an_error) {
  EXPECT_EQ(error_of([&] {
              numbered({"crane"}, {"crane", "cat", "crane"}, DataUse::evaluation);
            }),
            "[data] expected one class 'crane' of model, got 2 of that name");
}

TEST(ClassNames, a_new_head_has_the_classes_of_its_training_data) {
  const Numbered result =
      numbered({"ant", "dog"}, {"zebra", "ant"}, DataUse::training, ModelHead::classes);
  EXPECT_THAT(result.names, ElementsAre("ant", "dog"));
  EXPECT_THAT(result.warnings,
              ElementsAre("[data] dog is no class of model (zebra, ant): labels are numbered in "
                          "their own order"));
  EXPECT_THAT(numbered({"ant", "dog"}, {}, DataUse::training).warnings, IsEmpty());
}

TEST(ClassNames, classes_of_a_model_without_names_are_numbered_with_a_warning) {
  const Names found = {"0", "10", "2"}, unnamed = {"LABEL_0", "LABEL_1", "LABEL_2"};
  for (const DataUse use : {DataUse::training, DataUse::evaluation}) {
    const Numbered result = numbered(found, unnamed, use);
    EXPECT_EQ(result.names, found);
    EXPECT_THAT(result.warnings,
                ElementsAre("[data] model has no names of classes: 0 to 2 are 0, 10, 2"));
  }
}

}  // namespace
}  // namespace octet::train_row_data_test
