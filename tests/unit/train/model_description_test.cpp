#include <gtest/gtest.h>

#include "base/json.h"
#include "nn/hf_config.h"
#include "train/first_model.h"
#include "unit/base/scratch_folder.h"

namespace octet::train_model_description_test {
namespace {

using test::ScratchFolder;

// A classifier's names stay with as many classes, and go with another number of them.
TEST(ModelDescription, keeps_the_names_of_a_classifier_that_is_named_again) {
  const ScratchFolder folder;
  ModelSpec spec = resolved({.kind = ModelKind::bert,
                             .hidden = 8,
                             .layers = 1,
                             .heads = 1,
                             .ffn = 8,
                             .vocab = 8,
                             .head = ModelHead::classes,
                             .classes = 3});
  Json config = parse_own_json(hf_config_text(spec));
  const Json names = {{"0", "zebra"}, {"1", "ant"}, {"2", "cat"}};
  config["id2label"] = names;
  config["label2id"] = {{"zebra", 0}, {"ant", 1}, {"cat", 2}};
  folder.put("config.json", config.dump());
  RunConfig run;
  run.model.path = folder.path();
  run.model.head = ModelHead::classes;
  const auto described = [&] {
    return parse_own_json(model_description(posix_files(), run, spec, {}));
  };
  EXPECT_EQ(described()["id2label"], names);
  EXPECT_EQ(described()["label2id"], config["label2id"]);
  spec.classes = 2;
  EXPECT_EQ(described()["id2label"], Json::parse(R"({"0": "LABEL_0", "1": "LABEL_1"})"));
}

}  // namespace
}  // namespace octet::train_model_description_test
