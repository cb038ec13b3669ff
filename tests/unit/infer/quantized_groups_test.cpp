// Which linears of a quantized folder are quantized, and how: targets, ignore, keys, statuses.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/json.h"
#include "formats/codec.h"
#include "infer/export.h"
#include "infer/weights.h"
#include "io/model_files.h"
#include "nn/hf_config.h"
#include "nn/hf_names.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::infer_quantized_groups_test {
namespace {

using test::error_of;
using test::ScratchFolder;

QuantizationConfig parsed(const Json& quantization) {
  return parse_quantization_config(Json{{"quantization_config", quantization}}.dump(), "C").value();
}

// Groups that differ by the group of their inputs: 1, 2, ...
QuantizationConfig of_targets(const std::vector<Json>& targets,
                              const Json& ignore = Json::array()) {
  Json groups = Json::object();
  for (size_t i = 0; i < targets.size(); ++i) {
    groups["group_" + std::to_string(i)] = {{"targets", targets[i]},
                                            {"weights", {{"num_bits", 8}, {"type", "float"}}},
                                            {"input_activations",
                                             {{"num_bits", 8},
                                              {"type", "float"},
                                              {"dynamic", true},
                                              {"strategy", "group"},
                                              {"group_size", i + 1}}}};
  }
  return parsed(
      {{"quant_method", "compressed-tensors"}, {"config_groups", groups}, {"ignore", ignore}});
}

int64_t group_of(const QuantizationConfig& config, const std::string& module) {
  const std::vector<std::string> names = {module};
  const QuantizationGroup* group = config.group_of(names);
  return group == nullptr ? 0 : group->activations.group;
}

// As compressed-tensors 0.20's apply_quantization_config has it of these modules.
TEST(QuantizationTargets, names_go_before_expressions_and_those_before_classes) {
  const std::string up = "model.layers.0.mlp.up_proj", down = "model.layers.0.mlp.down_proj";
  const Json linear = {"Linear"}, named = {down}, all_downs = {"re:.*down_proj"};
  EXPECT_EQ(group_of(of_targets({linear, named}), down), 2);
  EXPECT_EQ(group_of(of_targets({named, linear}), down), 1);
  EXPECT_EQ(group_of(of_targets({linear, named}), up), 1);
  EXPECT_EQ(group_of(of_targets({linear, all_downs}), down), 2);
  EXPECT_EQ(group_of(of_targets({all_downs, linear}), down), 1);
  EXPECT_EQ(group_of(of_targets({linear, all_downs, named}), down), 3);
  EXPECT_EQ(group_of(of_targets({named, all_downs, linear}), down), 1);
  EXPECT_EQ(group_of(of_targets({{"Linear", down}, all_downs}), down), 1);
  EXPECT_EQ(group_of(of_targets({{"Linear", down}, all_downs}), up), 1);
  // Among expressions the first by the alphabet; of two groups with one target the last.
  EXPECT_EQ(group_of(of_targets({{"re:model.*down_proj"}, all_downs}), down), 2);
  EXPECT_EQ(group_of(of_targets({linear, {"Linear"}}), up), 2);
  EXPECT_EQ(group_of(of_targets({linear, {"Module"}}), up), 1);
  // From the beginning, not to the end.
  EXPECT_EQ(group_of(of_targets({linear, {"re:down_proj"}}), down), 1);
  EXPECT_EQ(group_of(of_targets({linear, {R"(re:model\.layers\.0)"}}), down), 2);
  EXPECT_EQ(group_of(of_targets({linear, {R"(re:.*\.(gate|up)_proj$)"}}), up), 2);
  EXPECT_EQ(group_of(of_targets({linear, {R"(re:(?!.*down).*mlp)"}}), down), 1);
  EXPECT_EQ(group_of(of_targets({linear, {R"(re:a|.*down)"}}), down), 2);
}

// Files of a model with a language model inside name it by either class.
TEST(QuantizationTargets, a_module_may_be_named_as_in_files_or_as_in_the_class) {
  const ModelSpec llava = {.kind = ModelKind::llava};
  const auto names = module_names(llava, "language_model.model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(names, (std::vector<std::string>{"language_model.model.layers.0.self_attn.q_proj",
                                             "model.language_model.layers.0.self_attn.q_proj"}));
  const auto tower =
      module_names(llava, "vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight");
  const Json linear = {"Linear"};
  for (const char* target : {"re:language_model.model.layers", "re:model.language_model.layers",
                             "model.language_model.layers.0.self_attn.q_proj"}) {
    const QuantizationConfig config = of_targets({{target}, linear}, {"re:.*vision_tower"});
    ASSERT_NE(config.group_of(names), nullptr) << target;
    EXPECT_EQ(config.group_of(names)->activations.group, 1) << target;
  }
  for (const char* ignored : {"re:vision_tower", "re:model.vision_tower.*"})
    EXPECT_EQ(of_targets({linear}, {ignored}).group_of(tower), nullptr) << ignored;
}

// compressed-tensors 0.20 refuses these too, and finds no module of an empty list.
TEST(QuantizationTargets, arguments_that_do_not_go_together_are_refused) {
  const auto error = [](const char* part, const Json& more) {
    Json group = {{"targets", {"Linear"}},
                  {"weights", {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}}},
                  {"input_activations",
                   {{"num_bits", 8}, {"type", "float"}, {"dynamic", true}, {"strategy", "token"}}}};
    group[part].update(more);
    return error_of([&] {
      parsed({{"quant_method", "compressed-tensors"}, {"config_groups", {{"g", group}}}});
    });
  };
  const std::string begin = "[config.json] C: 'quantization_config.";
  const struct {
    const char *part, *error;
    Json more;
  } cases[] = {
      {"input_activations",
       "group_size': expected none with strategy token, got 16",
       {{"group_size", 16}}},
      {"weights", "group_size': expected none with strategy tensor, got 16", {{"group_size", 16}}},
      {"weights",
       "block_structure': expected none with strategy tensor, got array",
       {{"block_structure", {4, 4}}}},
      {"weights", "actorder': expected weight, static, got \"group\"", {{"actorder", "group"}}}};
  for (const auto& one : cases) EXPECT_EQ(error(one.part, one.more), begin + one.error);
  EXPECT_EQ(error("input_activations", {{"dynamic", "local"}}),
            "[json] C: 'dynamic' must be true or false, got \"local\"");
  EXPECT_EQ(error("weights", {{"actorder", "weight"}, {"group_size", nullptr}}), "no error");
  EXPECT_EQ(group_of(of_targets({Json::array()}), "model.layers.0.mlp.up_proj"), 0);
}

TEST(QuantizationTargets, what_is_ignored_or_not_named_is_of_no_group) {
  const std::string up = "model.layers.0.mlp.up_proj", head = "lm_head";
  const Json linear = {"Linear"};
  EXPECT_EQ(group_of(of_targets({linear}, {"lm_head"}), head), 0);
  EXPECT_EQ(group_of(of_targets({linear}, {"lm_head"}), up), 1);
  EXPECT_EQ(group_of(of_targets({linear}, {"re:.*up_proj"}), up), 0);
  EXPECT_EQ(group_of(of_targets({{up}}, {"re:.*up_proj"}), up), 0);
  EXPECT_EQ(group_of(of_targets({linear}, {"re:up_proj"}), up), 1);
  EXPECT_EQ(group_of(of_targets({{"re:.*down_proj"}}), up), 0);
  EXPECT_EQ(group_of(of_targets({{up}, {head}}), "model.layers.1.mlp.up_proj"), 0);
  const std::string text = error_of([&] { of_targets({{"re:(up"}}); });
  EXPECT_EQ(text.find("[config.json] C: 'quantization_config.targets': expected a regular "
                      "expression behind 're:', got "),
            0u);
}

TEST(QuantizationKeys, are_named_where_they_are_not_known) {
  Json json = {{"quant_method", "compressed-tensors"},
               {"version", "0.20"},
               {"format", "float-quantized"},
               {"transform_config", Json::object()},
               {"sparsity_config", {{"format", "dense"}}},
               {"moe_sparsity_config", nullptr},
               {"config_groups",
                {{"g",
                  {{"targets", {"Linear"}},
                   {"weights", {{"num_bits", 8}, {"type", "float"}, {"observer", "minmax"}}}}}}}};
  EXPECT_EQ(parsed(json).unknown_keys, std::vector<std::string>());
  json["rotation"] = "hadamard";
  json["config_groups"]["g"]["weights"]["zero"] = 1;
  json["config_groups"]["g"]["scale"] = {1};
  EXPECT_EQ(parsed(json).unknown_keys,
            (std::vector<std::string>{"rotation", "config_groups.g.scale",
                                      "config_groups.g.weights.zero"}));
  json["transform_config"] = {{"config_groups", {{"u", 1}}}};
  EXPECT_EQ(error_of([&] { parsed(json); }),
            "[config.json] C: 'quantization_config.transform_config': expected none, got "
            "transforms");
  json.erase("transform_config");
  json["sparsity_config"]["format"] = "sparse-24-bitmask";
  EXPECT_EQ(error_of([&] { parsed(json); }),
            "[config.json] C: 'quantization_config.sparsity_config.format': expected dense, got "
            "sparse-24-bitmask");
}

// As compressed-tensors 0.20's QuantizationArgs have it.
TEST(QuantizationKeys, a_size_of_groups_says_the_strategy_where_none_is_said) {
  const auto with = [](const Json& weights, const Json& inputs) {
    Json group = {{"targets", {"Linear"}}, {"weights", {{"num_bits", 8}, {"type", "float"}}}};
    group["weights"].update(weights);
    group["input_activations"] = {{"num_bits", 8}, {"type", "float"}, {"dynamic", true}};
    group["input_activations"].update(inputs);
    const QuantizationConfig config =
        parsed({{"quant_method", "compressed-tensors"}, {"config_groups", {{"g", group}}}});
    return config.groups.front();
  };
  const Json of_32 = {{"group_size", 32}}, of_none = {{"group_size", nullptr}};
  const BlockShape rows_of_32{.rows = 1, .cols = 32};
  EXPECT_EQ(with(of_32, of_none).block, rows_of_32);
  EXPECT_EQ(with({{"strategy", nullptr}, {"group_size", 32}}, of_none).block, rows_of_32);
  EXPECT_EQ(with({{"group_size", -1}}, of_none).block, BlockShape());
  EXPECT_EQ(with(of_none, of_none).activations.scaling, ActivationScaling::tensor);
  const ActivationScheme scheme = with(of_none, of_32).activations;
  EXPECT_EQ(scheme.scaling, ActivationScaling::group);
  EXPECT_EQ(scheme.group, 32);
  EXPECT_FALSE(scheme.power);
  const auto of_scales = [&](Json inputs, const char* dtype) {
    inputs["scale_dtype"] = dtype;
    return with(of_none, inputs).activations;
  };
  EXPECT_TRUE(of_scales(of_32, "torch.uint8").power);
  EXPECT_FALSE(of_scales(of_32, "torch.float32").power);
  EXPECT_EQ(of_scales(of_none, "torch.float32").scaling, ActivationScaling::tensor);
  // Scales that are rounded otherwise than ours.
  for (const auto& [inputs, dtype] : std::vector<std::pair<Json, std::string>>{
           {of_none, "torch.uint8"}, {of_none, "torch.bfloat16"}, {of_32, "torch.bfloat16"}}) {
    EXPECT_EQ(error_of([&, &inputs = inputs, &dtype = dtype] { of_scales(inputs, dtype.c_str()); }),
              "[config.json] C: 'quantization_config.scale_dtype': expected torch.float32, or "
              "torch.uint8 of tokens and groups, got " +
                  dtype);
  }
  EXPECT_EQ(error_of([&] {
              with({{"group_size", 0}}, of_none);
            }),
            "[config.json] C: 'quantization_config.group_size': expected from 1 to 1048576, got 0");
}

TEST(QuantizationKeys, of_block_fp8_say_how_inputs_are_scaled) {
  const Json block = {{"quant_method", "fp8"}, {"weight_block_size", {64, 32}}};
  const auto inputs = [](Json json, const Json& more) {
    json.update(more);
    return parsed(json).groups.front().activations;
  };
  const ActivationScheme of_groups{.scaling = ActivationScaling::group, .group = 32};
  EXPECT_EQ(inputs(block, {{"scale_fmt", "float"}}), of_groups);
  ActivationScheme power = of_groups;
  power.power = true;
  EXPECT_EQ(inputs(block, {{"scale_fmt", "ue8m0"}}), power);
  EXPECT_EQ(inputs(block, {{"dequantize", true}}), ActivationScheme{});
  EXPECT_EQ(inputs(block, {{"dequantize", false}}), of_groups);
  EXPECT_EQ(error_of([&] {
              inputs(block, {{"scale_fmt", "e5m3"}});
            }),
            "[config.json] C: 'quantization_config.scale_fmt': expected float, ue8m0, got "
            "\"e5m3\"");
  EXPECT_EQ(error_of([&] {
              inputs({{"quant_method", "fp8"}}, {{"scale_fmt", "ue8m0"}});
            }),
            "[config.json] C: 'quantization_config.scale_fmt': expected float where "
            "weight_block_size is absent, got ue8m0");
  EXPECT_EQ(error_of([&] {
              inputs(block, {{"expert_dtype", "fp4"}});
            }),
            "[config.json] C: 'quantization_config.expert_dtype': expected \"fp8\", got \"fp4\"");
  Json odd = block;
  odd["kv_cache"] = "fp8";
  EXPECT_EQ(parsed(odd).unknown_keys, std::vector<std::string>{"kv_cache"});
}

// A folder with one layer; tensors beside the weights are added, or stand for them.
class Folder {
 public:
  explicit Folder(Json quantization, bool tied = false, int64_t ffn = 6)
      : quantization_(std::move(quantization)) {
    spec_ = resolved({.hidden = 4, .layers = 1, .heads = 1, .ffn = ffn, .vocab = 2, .tied = tied});
    for (const ParameterSpec& p : model_parameters(spec_))
      put({p.name, SafeDtype::f32, p.shape}, std::string(p.name.size() % 7 + 1, '\1'));
  }
  // The bytes are repeated to the tensor's length.
  void put(const TensorDecl& decl, const std::string& pattern) {
    std::string bytes;
    while (bytes.size() < decl.n_bytes()) bytes += pattern;
    tensors_[decl.name] = {decl, bytes.substr(0, decl.n_bytes())};
  }
  void put_scale(const std::string& name, float scale) {
    put({name, SafeDtype::f32, {1}}, std::string(reinterpret_cast<const char*>(&scale), 4));
  }
  WeightReader read() {
    std::vector<TensorSource> sources;
    for (const auto& [name, tensor] : tensors_)
      sources.push_back(span_source(tensor.first, std::as_bytes(std::span(tensor.second))));
    write_atomically(posix_files(), folder_ / "model.safetensors",
                     [&](FileWriter& out) { write_safetensors(out, sources); });
    Json json = Json::parse(hf_config_text(spec_));
    json["quantization_config"] = quantization_;
    folder_.put("config.json", json.dump());
    return WeightReader(posix_files(), folder_.path(), spec_);
  }
  std::string error() {
    return error_of([&] { read(); }, folder_.path());
  }
  const ScratchFolder& folder() const { return folder_; }

 private:
  Json quantization_;
  ModelSpec spec_;
  ScratchFolder folder_;
  std::map<std::string, std::pair<TensorDecl, std::string>> tensors_;
};

const std::string kUp = "model.layers.0.mlp.up_proj", kDown = "model.layers.0.mlp.down_proj";

Json decompressed(const Json& ignore) {
  Json json = {
      {"quant_method", "compressed-tensors"},
      {"quantization_status", "decompressed"},
      {"format", "float-quantized"},
      {"ignore", ignore},
      {"config_groups",
       {{"g",
         {{"targets", {"Linear"}},
          {"weights", {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}}},
          {"input_activations", {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}}}}}}}};
  return json;
}

// ModelOpt's FP8: one scale a weight, and a fixed one of its input; by config.json, or of older
// versions by hf_quant_config.json alone.
TEST(ModelOpt, weights_and_inputs_have_a_scale_each) {
  const Json group = {
      {"weights", {{"num_bits", 8}, {"type", "float"}, {"dynamic", false}}},
      {"input_activations", {{"num_bits", 8}, {"type", "float"}, {"dynamic", false}}},
      {"targets", {"Linear"}}};
  const Json config = {{"quant_method", "modelopt"},
                       {"quant_algo", "FP8"},
                       {"ignore", {"lm_head"}},
                       {"kv_cache_scheme", nullptr},
                       {"producer", {{"name", "modelopt"}, {"version", "0.47"}}},
                       {"config_groups", {{"group_0", group}}}};
  const Json older = {{"quantization", {{"quant_algo", "FP8"}, {"exclude_modules", {"lm_head"}}}}};
  for (const bool is_older : {false, true}) {
    Folder folder(is_older ? Json() : config);
    if (is_older) folder.folder().put("hf_quant_config.json", older.dump());
    folder.put({kUp + ".weight", SafeDtype::f8_e4m3, {6, 4}}, "\x38\x40");  // 1, 2
    folder.put({kUp + ".weight_scale", SafeDtype::f32, {}}, std::string("\0\0\0\x3f", 4));
    folder.put_scale(kUp + ".input_scale", 0.25f);
    const WeightReader weights = folder.read();
    EXPECT_EQ(weights.read(kUp + ".weight")[0], 0.5f);
    EXPECT_EQ(weights.read(kUp + ".weight")[1], 1.0f);
    EXPECT_EQ(weights.inputs().linears.at(kUp + ".weight").scale, 0.25f);
  }
  const std::pair<const char*, Json> changes[] = {
      {"quant_algo", "NVFP4"},
      {"quant_algo", "W4A8_AWQ"},
      {"pre_quant_scale", true},
      {"config_groups", {{"g", {{"weights", {{"num_bits", 4}}}}}}}};
  for (const auto& [key, value] : changes) {
    Json changed = config;
    changed[key] = value;
    EXPECT_NE(Folder(changed).error().find(key), std::string::npos) << key << value;
  }
}

// Files that transformers 5.24 saves after a forward pass: the weights' scales stay, unused.
TEST(Decompressed, weights_are_plain_and_their_inputs_quantized) {
  Folder folder(decompressed({"lm_head", "re:.*self_attn", "re:.*gate_proj"}));
  folder.put({kUp + ".weight_scale", SafeDtype::f32, {6, 1}}, "\1\2\3\4");
  folder.put({kDown + ".weight", SafeDtype::bf16, {4, 6}}, "\x80\x3f");
  folder.put_scale(kUp + ".input_scale", 0.5f);
  folder.put_scale(kDown + ".input_scale", 0.25f);
  const WeightReader weights = folder.read();
  EXPECT_EQ(weights.scales(kUp + ".weight"), nullptr);
  EXPECT_EQ(weights.read(kDown + ".weight"), std::vector<float>(24, 1.0f));
  const auto& inputs = weights.inputs().linears;
  ASSERT_EQ(inputs.size(), 2u);
  EXPECT_EQ(inputs.at(kUp + ".weight").scale, 0.5f);
  EXPECT_EQ(inputs.at(kDown + ".weight").scale, 0.25f);
}

TEST(Decompressed, what_differs_from_the_status_is_refused_by_name) {
  Folder missing(decompressed({"lm_head", "re:.*self_attn", "re:.*gate_proj"}));
  missing.put_scale(kUp + ".input_scale", 0.5f);
  EXPECT_EQ(missing.error(), "[weights] DIR: expected the scale of an input in '" + kDown +
                                 ".input_scale' or '" + kDown + ".activation_scale', got none");
  Folder eight(decompressed({"lm_head", "re:.*self_attn", "re:.*gate_proj"}));
  eight.put_scale(kUp + ".input_scale", 0.5f);
  eight.put_scale(kDown + ".input_scale", 0.5f);
  eight.put_scale(kDown + ".weight_scale", 0.5f);
  eight.put({kDown + ".weight", SafeDtype::f8_e4m3, {4, 6}}, "\1");
  EXPECT_EQ(eight.error(), "[weights] DIR: '" + kDown +
                               ".weight' must be F32, BF16 or F16, as quantization_config says "
                               "'decompressed', got F8_E4M3");
  Folder tied(decompressed(Json::array()), true);
  EXPECT_EQ(tied.error(),
            "[weights] DIR: quantization_status 'decompressed' is read of models with plain "
            "linears whose tied head is in 'ignore'");
}

TEST(QuantizedFolder, eight_bits_that_no_target_names_are_refused) {
  Json json = decompressed({"re:.*down"});
  json["quantization_status"] = "compressed";
  Folder folder(json);
  folder.put({kDown + ".weight", SafeDtype::f8_e4m3, {4, 6}}, "\1");
  folder.put_scale(kDown + ".weight_scale", 1);
  EXPECT_EQ(folder.error(), "[weights] DIR: '" + kDown +
                                ".weight' must be F32, BF16 or F16, as quantization_config has no "
                                "target for it, got F8_E4M3");
}

TEST(QuantizedFolder, scales_beside_a_weight_that_is_not_quantized_are_refused) {
  Folder folder(Json{{"quant_method", "fp8"}});
  EXPECT_EQ(folder.error(), "no error");
  folder.put_scale(kDown + ".weight_scale_inv", 2);
  EXPECT_EQ(folder.error(), "[weights] DIR: '" + kDown +
                                ".weight' is F32: expected no scales beside it, as no "
                                "quantization_config says 'decompressed', got '" +
                                kDown + ".weight_scale_inv'");
}

// transformers' name of a static scale, and safetensors' name of powers of two.
TEST(QuantizedFolder, scales_have_either_of_two_names_and_a_dtype_of_their_own) {
  Folder folder({{"quant_method", "fp8"}, {"activation_scheme", "static"}});
  folder.put({kDown + ".weight", SafeDtype::f8_e4m3, {4, 6}}, "\x38");  // 1
  folder.put({kDown + ".weight_scale_inv", SafeDtype::f8_e8m0, {1}}, "\x7c");
  folder.put_scale(kDown + ".activation_scale", 0.75f);
  const WeightReader weights = folder.read();
  EXPECT_EQ(weights.read(kDown + ".weight"), std::vector<float>(24, 0.125f));
  EXPECT_EQ(weights.inputs().linears.at(kDown + ".weight").scale, 0.75f);
  const ModelSource source = find_model_source(posix_files(), folder.folder().path());
  export_model(posix_files(), source, folder.folder() / "same", {});
  const ModelFiles same = ModelFiles::open(posix_files(), folder.folder() / "same");
  EXPECT_EQ(same.at(kDown + ".weight_scale_inv").stored, SafeDtype::f8_e8m0);
  EXPECT_NE(same.find(kDown + ".activation_scale"), nullptr);
  folder.put_scale(kDown + ".input_scale", 0.75f);
  EXPECT_EQ(folder.error(), "[weights] DIR: expected the scale of an input in '" + kDown +
                                ".input_scale' or '" + kDown + ".activation_scale', got both");
  folder.put_scale(kDown + ".weight_scale", 0.125f);
  EXPECT_EQ(folder.error(), "[weights] DIR: '" + kDown +
                                ".weight' is F8_E4M3: expected its scales in '" + kDown +
                                ".weight_scale_inv' or '" + kDown + ".weight_scale', got both");
}

// Blocks of 128 x 128 with powers of two go out as they are, and their inputs stay powers of two.
TEST(QuantizedFolder, blocks_with_powers_of_two_are_exported_as_they_are) {
  Folder folder(
      {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}, {"scale_fmt", "ue8m0"}}, false,
      130);
  folder.put({kDown + ".weight", SafeDtype::f8_e4m3, {4, 130}}, "\x38");
  folder.put({kDown + ".weight_scale_inv", SafeDtype::f8_e8m0, {1, 2}}, "\x7c");
  folder.put({kUp + ".weight", SafeDtype::f32, {130, 4}}, std::string("\0\0\x40\x3f", 4));  // 0.75
  folder.read();
  const ModelSource source = find_model_source(posix_files(), folder.folder().path());
  const std::string out = folder.folder() / "out";
  export_model(posix_files(), source, out, {.dtype = ExportDtype::fp8_block});
  EXPECT_EQ(ModelFiles::open(posix_files(), out).at(kDown + ".weight_scale_inv").stored,
            SafeDtype::f8_e8m0);
  const auto config = read_quantization_config(posix_files(), out);
  EXPECT_TRUE(config->groups.front().activations.power);
  // The other linears have powers of two then, too: a reader takes all scales for such.
  const WeightReader weights(posix_files(), out, source.spec);
  int n_new = 0;
  for (const ParameterSpec& p : model_parameters(source.spec)) {
    const WeightReader::Scales* scales = weights.scales(p.name);
    if (scales == nullptr || p.name == kDown + ".weight") continue;
    n_new += 1;
    for (const float scale : scales->values) {
      int exponent = 0;
      EXPECT_EQ(std::frexp(scale, &exponent), 0.5f) << p.name;
    }
  }
  EXPECT_GE(n_new, 6);
}

}  // namespace
}  // namespace octet::infer_quantized_groups_test
