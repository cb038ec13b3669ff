// config.json of models that see pictures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "backends/cpu/reference/reference.h"
#include "base/json.h"
#include "nn/blocks.h"
#include "nn/hf_config.h"
#include "nn/hf_names.h"
#include "nn/hf_parts.h"
#include "nn/model.h"
#include "nn/shape.h"
#include "nn/vision.h"
#include "unit/base/error_of.h"

namespace octet::nn_hf_parts_test {
namespace {

using test::error_of;

constexpr const char* kText =
    R"("text_config": {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2,)"
    R"( "num_hidden_layers": 1, "vocab_size": 9, "intermediate_size": 8})";
constexpr const char* kVision =
    R"("vision_config": {"model_type": "clip_vision_model", "hidden_size": 8,)"
    R"( "num_attention_heads": 2, "num_hidden_layers": 3, "image_size": 8, "patch_size": 4})";

// A small model, with more keys behind its own, which those take the place of.
std::string llava_with(const std::string& more) {
  Json json = parse_json(std::string(R"({"model_type": "llava", "image_token_index": 8, )") +
                             kText + ", " + kVision + "}",
                         "here");
  json.merge_patch(parse_json("{" + more + "}", "more"));
  return json.dump();
}

// As the public folders of LLaVA 1.5 say it: most of it is the classes' own.
TEST(HfParts, have_the_defaults_of_their_classes) {
  const ModelSpec spec = parse_hf_config(
      R"({"model_type": "llava", "image_token_index": 32000, "text_config": {)"
      R"("model_type": "llama", "vocab_size": 32064, "rms_norm_eps": 1e-5,)"
      R"( "max_position_embeddings": 4096},)"
      R"( "vision_config": {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,)"
      R"( "model_type": "clip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 24,)"
      R"( "patch_size": 14, "projection_dim": 768, "vocab_size": 32000}})",
      "c");
  EXPECT_EQ(spec.hidden, 4096);
  EXPECT_EQ(spec.layers, 32);
  EXPECT_EQ(spec.ffn, 11008);
  EXPECT_EQ(spec.vision_act, MlpAct::quick_gelu);
  EXPECT_EQ(tower_depth(spec), 23);
  EXPECT_EQ(tower_rows(spec), 577);
  EXPECT_EQ(picture_rows(spec), 576);
  const ModelSpec bare =
      parse_hf_config(R"({"model_type": "llava", "text_config": {"vocab_size": 32001}})", "c");
  EXPECT_EQ(bare.text, ModelKind::llama);
  EXPECT_EQ(bare.vision_hidden, 1024);
  EXPECT_EQ(bare.image_size, 336);
  const ModelSpec siglip =
      parse_hf_config(llava_with(R"("vision_config": {"model_type": "siglip_vision_model"})"), "c");
  EXPECT_EQ(siglip.vision_act, MlpAct::gelu_tanh);
  EXPECT_EQ(siglip.vision_eps, 1e-6);
  const ModelSpec small = parse_hf_config(
      R"({"model_type": "idefics3", "image_token_id": 5, "vision_config": {)"
      R"("hidden_size": 16, "patch_size": 28},)"
      R"( "text_config": {"vocab_size": 9, "model_type": "llama"}, "tie_word_embeddings": true})",
      "c");
  EXPECT_TRUE(small.tied);
  EXPECT_EQ(small.norm_eps, 1e-6);
  EXPECT_EQ(small.vision_heads, 16);
}

TEST(HfParts, are_written_as_they_are_read) {
  for (
      const char* more :
      {R"("vision_feature_layer": -1)",
       R"("text_config": {"model_type": "mistral", "sliding_window": 4, "num_key_value_heads": 1})",
       R"("text_config": {"model_type": "qwen3", "num_key_value_heads": 2,)"
       R"( "tie_word_embeddings": true})",
       R"("vision_config": {"model_type": "siglip_vision_model", "hidden_act": "gelu"})",
       R"("vision_feature_select_strategy": "full", "multimodal_projector_bias": false)",
       R"("projector_hidden_act": "quick_gelu", "image_token_index": 3)"}) {
    const ModelSpec spec = parse_hf_config(llava_with(more), "c");
    EXPECT_EQ(parse_hf_config(hf_config_text(spec), "again"), spec) << more;
  }
}

TEST(HfParts, that_are_not_supported_are_refused_by_name) {
  const struct {
    std::string more, error;
  } cases[] = {
      {R"("text_config": {"model_type": "gpt2"})", "'model_type': expected one of llama, mistral"},
      {R"("vision_config": {"model_type": "pixtral"})",
       "'model_type': expected one of clip_vision_model, siglip_vision_model"},
      {R"("vision_feature_layer": [-2, -1])", "'vision_feature_layer' must be an integer"},
      {R"("vision_feature_layer": 0)", "'vision_feature_layer': expected a hidden state behind"},
      {R"("vision_feature_layer": -5)", "'vision_feature_layer': expected a hidden state behind"},
      {R"("vision_feature_select_strategy": "cls")", "expected one of default, full"},
      {R"("projector_hidden_act": "tanh")", "'projector_hidden_act': expected one of"},
      {R"("image_token_index": 9)", "'image_token_index': expected less than"},
      {R"("vision_config": {"num_attention_heads": 3})",
       "num_attention_heads': expected a divisor"},
      {R"("vision_config": {"patch_size": 9})", "patch_size': expected at most"},
      {R"("text_config": {"attention_bias": "x"})", "'attention_bias'"},
      {R"("text_config": {"num_attention_heads": 3})", "expected a divisor of"},
      {R"("auto_map": {"AutoModel": "x"})", "auto_map"},
  };
  for (const auto& one : cases) {
    EXPECT_THAT(error_of([&] { parse_hf_config(llava_with(one.more), "c"); }),
                testing::HasSubstr(one.error))
        << one.more;
  }
  const auto square = [](int64_t patch) {
    return R"({"model_type": "idefics3", "image_token_id": 5, "text_config": {"vocab_size": 9},)"
           R"( "vision_config": {"image_size": 336, "patch_size": )" +
           std::to_string(patch) + "}}";
  };
  EXPECT_EQ(error_of([&] { parse_hf_config(square(42), "c"); }), "no error");  // 8 patches a side
  EXPECT_THAT(error_of([&] { parse_hf_config(square(48), "c"); }),
              testing::HasSubstr("'scale_factor': expected a divisor"));  // 7
}

// The same function under the same names.
TEST(HfParts, of_smolvlm_are_those_of_idefics3) {
  const auto of = [](const std::string& type) {
    return parse_hf_config(R"({"model_type": ")" + type + R"(", "image_token_id": 5, )" +
                               R"("vision_config": {"model_type": ")" + type +
                               R"(_vision", "image_size": 64}, "text_config": {"vocab_size": 9}})",
                           "c");
  };
  EXPECT_EQ(of("smolvlm"), of("idefics3"));
  EXPECT_EQ(of("smolvlm").kind, ModelKind::idefics3);
}

// Pictures and patches are squares, whose sides transformers also writes as two.
TEST(HfParts, have_equal_sides) {
  const auto vit = [](const std::string& sides) {
    return R"({"model_type": "vit", "architectures": ["ViTForImageClassification"], )" + sides +
           "}";
  };
  const ModelSpec spec =
      parse_hf_config(vit(R"("image_size": [32, 32], "patch_size": [8, 8])"), "c");
  EXPECT_EQ(spec.image_size, 32);
  EXPECT_EQ(spec.patch_size, 8);
  for (const std::string list : {"[32, 16]", "[32]", "[32, 32, 32]", "[32.0, 32.0]", "[]"}) {
    EXPECT_EQ(error_of([&] { parse_hf_config(vit("\"image_size\": " + list), "c"); }).substr(0, 72),
              "[config.json] c: 'image_size': expected an integer, or two equal ones, g");
  }
  EXPECT_THAT(error_of([&] { parse_hf_config(vit(R"("hidden_size": [768, 768])"), "c"); }),
              testing::HasSubstr("'hidden_size' must be an integer"));
}

TEST(HfParts, name_keys_that_they_do_not_know) {
  const HfConfig config = parse_hf_config_and_keys(
      llava_with(R"("vision_config": {"foo": 1, "projection_dim": 4}, "image_seq_length": 3,)"
                 R"( "text_config": {"bar": 1}, "baz": 1)"),
      "c");
  EXPECT_EQ(config.unknown,
            (std::vector<std::string>{"text_config.bar", "vision_config.foo", "baz"}));
}

TEST(HfParts, of_a_classifier_of_pictures_are_one_object_beside_none_of_a_text) {
  const std::string part = R"("hidden_size": 8, "num_attention_heads": 2, "patch_size": 3})";
  const HfConfig clip = parse_hf_config_and_keys(
      R"({"model_type": "clip", "architectures": ["CLIPForImageClassification"], "foo": 1,)"
      R"( "projection_dim": 4, "logit_scale_init_value": 2, "text_config": {"bar": 1},)"
      R"( "id2label": {"0": "a", "1": "b", "2": "c"}, "vision_config": {"bar": 1, )" +
          part + "}",
      "c");
  EXPECT_EQ(clip.spec.kind, ModelKind::clip_vision_model);
  EXPECT_EQ(head_of(clip.spec).head, ModelHead::classes);
  EXPECT_EQ(clip.spec.classes, 3);
  EXPECT_EQ(clip.spec.mlp_act, MlpAct::quick_gelu);
  EXPECT_EQ(row_tokens(clip.spec, 0), 74 * 74 + 1);  // of 224 pixels, two of which are left out
  EXPECT_EQ(clip.unknown, (std::vector<std::string>{"bar", "foo"}));
  const Json written = parse_json(hf_config_text(clip.spec), "written");
  EXPECT_EQ(written["model_type"], "clip");
  EXPECT_EQ(written["vision_config"]["model_type"], "clip_vision_model");
  EXPECT_EQ(written["vision_config"]["hidden_size"], 8);
  EXPECT_FALSE(written.contains("hidden_size"));
  EXPECT_EQ(parse_hf_config(written.dump(), "again"), clip.spec);
  // Alone, and with a classifier that a run gave it.
  Json alone = parse_json(R"({"model_type": "siglip_vision_model", "vision_use_head": true,)"
                          R"( "architectures": ["SiglipVisionModel"], "own": 1, "dtype": "x", )" +
                              part,
                          "alone");
  ModelSpec siglip = parse_hf_config(alone.dump(), "c");
  EXPECT_EQ(head_of(siglip).head, ModelHead::features);
  EXPECT_EQ(siglip.mlp_act, MlpAct::gelu_tanh);
  EXPECT_EQ(siglip.norm_eps, 1e-6);
  EXPECT_EQ(parse_hf_config(hf_config_text(siglip), "again"), siglip);
  siglip.head = ModelHead::classes;
  put_keys(parse_json(hf_config_text(siglip), "own"), alone);
  EXPECT_EQ(alone["model_type"], "siglip");
  EXPECT_EQ(alone["vision_config"]["own"], 1);
  EXPECT_FALSE(alone.contains("own"));
  siglip.head = ModelHead::text;  // as the first head is read
  EXPECT_EQ(parse_hf_config(alone.dump(), "again"), siglip);
}

TEST(HfParts, of_models_that_are_no_classifiers_are_refused_by_name) {
  const struct {
    const char *text, *error;
  } cases[] = {
      {R"({"model_type": "clip", "architectures": ["CLIPModel"], "vision_config": {}})",
       "'model_type': expected one of"},
      {R"({"model_type": "siglip_vision_model", "architectures": ["SiglipVisionModel"],)"
       R"( "vision_use_head": false})",
       "'vision_use_head': expected true"},
      {R"({"model_type": "clip_vision_model", "architectures": ["CLIPVisionModel"],)"
       R"( "patch_size": 225})",
       "'patch_size': expected at most"},
      {R"({"model_type": "clip_vision_model", "architectures": ["CLIPTextModel"]})",
       "'architectures': expected one of CLIPForImageClassification, CLIPVisionModel"},
  };
  for (const auto& one : cases)
    EXPECT_THAT(error_of([&] { parse_hf_config(one.text, "c"); }), testing::HasSubstr(one.error));
}

TEST(HfParts, of_vision_models_have_the_names_of_both_versions) {
  ModelSpec spec{.kind = ModelKind::clip_vision_model, .head = ModelHead::features};
  const std::string own = "vision_model.post_layernorm.weight";
  for (const std::string& stored : {own, std::string("post_layernorm.weight")})
    EXPECT_EQ(parameter_name(spec, stored), own);
  EXPECT_EQ(parameter_name(spec, "visual_projection.weight"), std::nullopt);
  EXPECT_EQ(parameter_name(spec, "vision_model.embeddings.position_ids"), std::nullopt);
  spec.head = ModelHead::classes;
  EXPECT_EQ(parameter_name(spec, own), std::nullopt);
  EXPECT_EQ(parameter_name(spec, "classifier.bias"), "classifier.bias");
  spec.kind = ModelKind::siglip_vision_model;
  EXPECT_EQ(parameter_name(spec, own), own);
  EXPECT_EQ(parameter_name(spec, "head.probe"), std::nullopt);
}

// Patches of 3 x 3 in squares of 2 x 2, with zeros beyond the last.
TEST(HfParts, become_squares_of_patches) {
  Blocks blocks({.kind = ModelKind::vit, .image_size = 1, .patch_size = 1, .channels = 1});
  Builder& builder = blocks.builder();
  const ValueId x = builder.input(InputKind::batch, "x", real_type({9, 1}));
  builder.output("y", squares_of_rows(blocks, x, 3, 2));
  const auto results = reference::interpret(blocks.take_graph(),
                                            {{"x", {1, 2, 3, 4, 5, 6, 7, 8, 9}}, {"pixels", {0}}});
  EXPECT_EQ(results.at("y"), (std::vector<double>{1, 2, 4, 5, 3, 0, 6, 0, 7, 8, 0, 0, 9, 0, 0, 0}));
  const ModelSpec spec = parse_hf_config(
      llava_with(R"("projector_downsample": 2, "vision_config": {"image_size": 14})"), "c");
  EXPECT_EQ(picture_rows(spec), 4);
  EXPECT_EQ(parse_hf_config(hf_config_text(spec), "again"), spec);
  EXPECT_THAT(error_of([&] {
                parse_hf_config(llava_with(R"("projector_downsample": 2,)"
                                           R"( "vision_feature_select_strategy": "full")"),
                                "c");
              }),
              testing::HasSubstr("'projector_downsample': expected 1 with"));
}

// The name of a parameter of CLIP's tower that a vit has.
std::string vit_name(std::string name) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"embeddings.class_embedding", "embeddings.cls_token"},
      {"embeddings.patch_embedding.", "embeddings.patch_embeddings.projection."},
      {"embeddings.position_embedding.weight", "embeddings.position_embeddings"},
      {"encoder.layers.", "encoder.layer."},
      {"layer_norm1", "layernorm_before"},
      {"layer_norm2", "layernorm_after"},
      {"self_attn.q_proj", "attention.attention.query"},
      {"self_attn.k_proj", "attention.attention.key"},
      {"self_attn.v_proj", "attention.attention.value"},
      {"self_attn.out_proj", "attention.output.dense"},
      {"mlp.fc1", "intermediate.dense"},
      {"mlp.fc2", "output.dense"}};
  for (const auto& [clip, vit] : kNames) {
    if (const size_t at = name.find(clip); at != name.npos) name.replace(at, clip.size(), vit);
  }
  return "vit." + name;
}

// Numbers of a parameter that its name decides; no bias of patches, which CLIP has none of.
std::vector<double> numbers_of(const std::string& name, int64_t n) {
  std::vector<double> values(static_cast<size_t>(n));
  const auto seed = static_cast<double>(std::hash<std::string>{}(name) % 1000);
  const bool is_zero = name == "vit.embeddings.patch_embeddings.projection.bias";
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = is_zero ? 0 : std::sin(seed + 1.7 * static_cast<double>(i));
  return values;
}

std::vector<double> run_with(const Graph& graph,
                             const std::function<std::string(const std::string&)>& of,
                             const std::string& output) {
  reference::Tensors inputs;
  for (const GraphInput& input : graph.inputs)
    inputs[input.name] = numbers_of(of(input.name), graph.type(input.value).n_elems());
  return reference::interpret(graph, inputs).at(output);
}

// With norms behind the sums and none before the layers, the tower computes what such a ViT does.
TEST(HfParts, have_towers_of_the_form_of_a_vit_with_norms_behind_the_sums) {
  const std::string more = R"("vision_config": {"post_norm": true, "hidden_act": "relu"})";
  const ModelSpec whole = parse_hf_config(llava_with(more), "c");
  EXPECT_TRUE(whole.post_norm);
  EXPECT_EQ(parse_hf_config(hf_config_text(whole), "again"), whole);
  ModelSpec spec = filled({.kind = ModelKind::vit, .hidden = 4, .layers = 2, .heads = 2, .ffn = 6});
  spec.image_size = 4, spec.patch_size = 2, spec.channels = 1;
  spec.post_norm = spec.mlp_relu = true;
  spec.final_norm = false;
  spec.head = ModelHead::features;
  const auto same = [](const std::string& name) { return name; };
  const Graph vit = build_model(spec, {}, ModelOutputs::outputs).graph;
  const std::vector<double> expected = run_with(vit, same, vit.outputs.front().name);
  Blocks blocks(spec);
  const ValueId rows =
      tower_states(blocks, blocks.input("pixels"),
                   {.kind = VisionTower::clip, .act = MlpAct::relu, .image_size = 4});
  blocks.builder().output("y", rows);
  const auto renamed = [](const std::string& name) {
    return name == "pixels" ? name : vit_name(name);
  };
  std::vector<double> found = run_with(blocks.take_graph(), renamed, "y");
  ASSERT_EQ(found.size(), 5 * expected.size());
  found.resize(expected.size());  // of the class token
  EXPECT_EQ(found, expected);
}

TEST(HfParts, have_the_names_of_files_and_of_models_in_memory) {
  const ModelSpec spec = parse_hf_config(llava_with(""), "c");
  const std::string layer = "encoder.layers.0.mlp.fc1.weight";
  const std::string own = "vision_tower.vision_model." + layer;
  for (const std::string& stored : {own, "vision_tower." + layer, "model.vision_tower." + layer})
    EXPECT_EQ(parameter_name(spec, stored), own);
  const std::string norm = "language_model.model.norm.weight";
  for (const std::string& stored : {norm, std::string("model.language_model.norm.weight")})
    EXPECT_EQ(parameter_name(spec, stored), norm);
  EXPECT_EQ(parameter_name(spec, "lm_head.weight"), "language_model.lm_head.weight");
  EXPECT_EQ(parameter_name(spec, "model.multi_modal_projector.linear_1.bias"),
            "multi_modal_projector.linear_1.bias");
  // Behind the hidden state that is read.
  for (const char* stored :
       {"vision_tower.encoder.layers.2.mlp.fc1.weight", "vision_tower.post_layernorm.bias",
        "vision_tower.vision_model.embeddings.position_ids"})
    EXPECT_EQ(parameter_name(spec, stored), std::nullopt) << stored;
}

}  // namespace
}  // namespace octet::nn_hf_parts_test
