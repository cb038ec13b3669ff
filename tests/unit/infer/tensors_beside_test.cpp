// Tensors that a folder holds beside a model's parameters, in exports.
#include "infer/tensors_beside.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/hf_config.h"
#include "unit/base/scratch_folder.h"
#include "unit/infer/put_arrays.h"

namespace octet::infer_tensors_beside_test {
namespace {

// Tensors of a tower that is read behind layer two of three: the third, and the norm behind it.
TEST(TensorsBeside, of_a_tower_go_along_by_the_names_of_public_files) {
  const test::ScratchFolder folder;
  std::vector<test::ArrayToPut> arrays;
  for (const char* name :
       {"vision_tower.encoder.layers.2.mlp.fc1.bias", "vision_tower.post_layernorm.weight",
        "vision_tower.encoder.layers.1.mlp.fc1.bias", "lm_head.weight"})
    arrays.push_back(test::array_of(name, SafeDtype::f32, {2}, std::vector<float>{1, 2}));
  arrays.push_back(test::array_of("vision_tower.vision_model.embeddings.position_ids",
                                  SafeDtype::i64, {1}, std::vector<int64_t>{0}));
  test::put_arrays(folder / "model.safetensors", arrays);
  ModelSource source;
  source.folder = folder.path();
  source.spec = parse_hf_config(
      R"({"model_type": "llava", "image_token_index": 8, "text_config": {"vocab_size": 9},)"
      R"( "vision_config": {"num_hidden_layers": 3}})",
      "config.json");
  std::vector<std::string> names;
  for (const TensorSource& one :
       tensors_beside(posix_files(), source, Json::object(), std::nullopt))
    names.push_back(one.decl.name);
  EXPECT_THAT(names, testing::UnorderedElementsAre(
                         "vision_tower.vision_model.encoder.layers.2.mlp.fc1.bias",
                         "vision_tower.vision_model.post_layernorm.weight"));
}

// Tensors of a tower with a classifier: for the one row that it does not read, by either name.
TEST(TensorsBeside, of_a_tower_alone_are_those_that_no_classifier_reads) {
  const test::ScratchFolder folder;
  std::vector<test::ArrayToPut> arrays;
  for (const char* name :
       {"head.probe", "vision_model.head.mlp.fc1.bias", "post_layernorm.weight", "classifier.bias"})
    arrays.push_back(test::array_of(name, SafeDtype::f32, {2}, std::vector<float>{1, 2}));
  test::put_arrays(folder / "model.safetensors", arrays);
  ModelSource source;
  source.folder = folder.path();
  source.spec = {.kind = ModelKind::siglip_vision_model, .head = ModelHead::classes};
  std::vector<std::string> names;
  for (const TensorSource& one :
       tensors_beside(posix_files(), source, Json::object(), std::nullopt))
    names.push_back(one.decl.name);
  EXPECT_THAT(names, testing::UnorderedElementsAre("vision_model.head.probe",
                                                   "vision_model.head.mlp.fc1.bias"));
}

}  // namespace
}  // namespace octet::infer_tensors_beside_test
