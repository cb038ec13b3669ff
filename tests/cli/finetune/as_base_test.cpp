// Runs that begin with FP8 folders go out in the form that these have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "base/json.h"
#include "cli/finetune/small_model.h"
#include "cli/program_run.h"
#include "formats/quantize.h"
#include "infer/export.h"
#include "infer/model_source.h"
#include "infer/stored_weights.h"
#include "infer/weights.h"

namespace octet::finetune_as_base_test {
namespace {

using test::Fixture;
using test::run_program;
using test::sets_with;
using test::Tuner;
using testing::HasSubstr;

// A folder of 8-bit linears: what its config.json says, how a weight is scaled, and the scales'
// name, type and shape.
struct Form {
  std::string name;
  Json quantization;
  Granularity granularity;
  Dtype scale = Dtype::f32;
  std::string suffix = "_scale";
  bool has_inputs = false;  // fixed scales, and hf_quant_config.json
};

std::vector<Form> forms() {
  const Json channel = {
      {"quant_method", "compressed-tensors"},
      {"format", "float-quantized"},
      {"quantization_status", "compressed"},
      {"ignore", {"lm_head"}},
      {"config_groups",
       {{"group_0",
         {{"targets", {"Linear"}},
          {"weights", {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}}},
          {"input_activations",
           {{"num_bits", 8}, {"type", "float"}, {"strategy", "token"}, {"dynamic", true}}}}}}}};
  const Json block = {{"quant_method", "fp8"},
                      {"weight_block_size", {16, 16}},
                      {"modules_to_not_convert", {"lm_head"}}};
  Json power = block;
  power["scale_fmt"] = "ue8m0";
  return {
      {"channel", channel, {.kind = Granularity::Kind::row}, Dtype::bf16},
      {"block", block, {.kind = Granularity::Kind::block, .size = 16}, Dtype::f32, "_scale_inv"},
      {"power", power, {.kind = Granularity::Kind::block, .size = 16}, Dtype::bf16, "_scale_inv"},
      {"modelopt", nullptr, {.kind = Granularity::Kind::tensor}, Dtype::f32, "_scale", true}};
}

constexpr const char* kModelOpt = R"({"producer": {"name": "modelopt"},
 "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}})";

std::vector<int64_t> scale_shape_of(const Form& form, const Shape& shape) {
  const MatrixShape grid = scale_shape({shape[0], shape[1]}, form.granularity);
  if (form.has_inputs) return {};
  return {grid.rows, grid.cols};
}

// The fixture's model in this form.
std::string put_form(const Fixture& f, const Form& form) {
  const ModelSpec spec = test::small_spec();
  const WeightReader plain(posix_files(), f.options.model, spec);
  std::vector<TensorSource> tensors;
  const auto add = [&](TensorDecl decl, std::vector<std::byte> bytes) {
    tensors.push_back({std::move(decl), [bytes](const ByteSink& sink) { sink(bytes); }});
  };
  for (const ParameterSpec& p : model_parameters(spec)) {
    const std::vector<float> values = plain.read(p.name);
    if (!is_linear(p) || p.name == "lm_head.weight") {
      add(tensor_decl(p.name, Dtype::f32, p.shape), encode_weights(values, Dtype::f32));
      continue;
    }
    const Quantizer quantizer{
        .granularity = form.granularity,
        .scale_type = form.scale,
        .rule = form.name == "power" ? ScaleRule::power_ceil : ScaleRule::linear};
    const MatrixShape shape{p.shape[0], p.shape[1]};
    std::vector<uint8_t> codes(values.size());
    std::vector<float> scales(static_cast<size_t>(scale_shape(shape, form.granularity).n_elems()));
    quantize(quantizer, shape, values, codes, scales);
    const auto raw = std::as_bytes(std::span(codes));
    add(tensor_decl(p.name, Dtype::e4m3, p.shape), {raw.begin(), raw.end()});
    add(tensor_decl(p.name + form.suffix, form.scale, scale_shape_of(form, p.shape)),
        encode_weights(scales, form.scale));
    if (!form.has_inputs) continue;
    const std::string module = p.name.substr(0, p.name.rfind('.'));
    add(tensor_decl(module + ".input_scale", Dtype::f32, {}),
        encode_weights(std::vector<float>{0.03125f}, Dtype::f32));
  }
  Json config = Json::parse(hf_config_text(spec));
  if (!form.quantization.is_null()) config["quantization_config"] = form.quantization;
  f.folder.put(form.name + "/config.json", config.dump());
  if (form.has_inputs) f.folder.put(form.name + "/hf_quant_config.json", kModelOpt);
  write_atomically(posix_files(), f.folder / (form.name + "/model.safetensors"),
                   [&](FileWriter& out) { write_safetensors(out, tensors); });
  return f.folder / form.name;
}

std::map<std::string, std::pair<TensorDecl, std::vector<std::byte>>> tensors_of(
    const std::string& folder) {
  const auto file = SafetensorsReader::open(posix_files(), folder + "/model.safetensors");
  std::map<std::string, std::pair<TensorDecl, std::vector<std::byte>>> all;
  for (const StoredTensor& tensor : file.tensors())
    all[tensor.name] = {tensor, file.read(tensor.name)};
  return all;
}

// Tuned with these sets, and written as its base is.
std::string tuned(Fixture& f, const Form& form, const std::vector<std::string>& sets) {
  const std::string out = f.folder / (form.name + "-out");
  f.options.model = put_form(f, form);
  f.options.out = f.folder / (form.name + "-run");
  Tuner tuner(f.options, sets);
  tuner.trainer.run({StartMode::fresh, tuner.loaded.source}, {});
  export_model(posix_files(), find_model_source(posix_files(), f.options.out), out,
               {.dtype = ExportDtype::as_base});
  return out;
}

// The same names, types and shapes, and the bytes of what did not change.
void expect_form(const std::string& base, const std::string& out,
                 const std::function<bool(const std::string&)>& is_trained) {
  const auto before = tensors_of(base), after = tensors_of(out);
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, tensor] : before) {
    ASSERT_TRUE(after.contains(name)) << name;
    EXPECT_EQ(after.at(name).first.stored, tensor.first.stored) << name;
    EXPECT_EQ(after.at(name).first.shape, tensor.first.shape) << name;
    const bool is_scale = name.find("_scale") != name.npos;
    if (is_scale && is_trained(name)) continue;
    EXPECT_EQ(after.at(name).second == tensor.second, !is_trained(name)) << name;
  }
  const auto config = [](const std::string& folder) {
    return Json::parse(posix_files().read_text(folder + "/config.json"));
  };
  const Json said = config(base).value("quantization_config", Json());
  if (said.is_null()) return;  // ModelOpt's own file says it
  EXPECT_EQ(config(out).at("quantization_config"), said);
}

TEST(ExportAsBase, untouched_weights_keep_their_codes_and_others_their_form) {
  for (const Form& form : forms()) {
    SCOPED_TRACE(form.name);
    Fixture f;
    const std::string plain = f.options.model;
    const std::string out =
        tuned(f, form,
              {"recipe=bf16", "train.steps=2", "train.export=none", "optim.lr=0.01",
               "optim.warmup_share=0", "train.freeze=[\"model.layers.0.*\", \"*embed_tokens*\"]"});
    expect_form(f.options.model, out, [](const std::string& name) {
      return name.find("layers.0.") == name.npos && name.find("embed_tokens") == name.npos &&
             name.find("input_scale") == name.npos;
    });
    const std::string said = out + "/hf_quant_config.json";
    EXPECT_EQ(posix_files().exists(said) ? posix_files().read_text(said) : "",
              form.has_inputs ? kModelOpt : "");
    // The written values are nearest to the masters.
    const ModelSource run = find_model_source(posix_files(), f.options.out);
    export_model(posix_files(), run, f.folder / "f32", {.dtype = ExportDtype::f32});
    const WeightReader exact(posix_files(), f.folder / "f32", run.spec);
    const WeightReader written(posix_files(), out, run.spec);
    const std::string name = "model.layers.1.mlp.down_proj.weight";
    const std::vector<float> values = exact.read(name), coded = written.read(name);
    const std::vector<float>& scales = written.scales(name)->values;
    const float largest_scale = *std::ranges::max_element(scales);
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_LE(std::abs(values[i] - coded[i]),
                std::abs(values[i]) / 16 * 1.01f + largest_scale / 1024)
          << i;
  }
}

TEST(ExportAsBase, adapters_change_the_linears_that_they_are_of) {
  for (const Form& form : forms()) {
    SCOPED_TRACE(form.name);
    Fixture f;
    const std::string out =
        tuned(f, form, sets_with({"recipe=bf16", "train.steps=2", "lora.targets=[q_proj]"}));
    expect_form(f.options.model, out,
                [](const std::string& name) { return name.find("q_proj.weight") != name.npos; });
  }
}

TEST(ExportAsBase, needs_a_base_of_eight_bits) {
  Fixture f;
  const auto error = [&](const std::string& from) {
    const auto outcome =
        run_program(f.folder, "convert --dtype as-base " + from + " " + f.folder / "out");
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_FALSE(posix_files().exists(f.folder / "out"));
    return outcome.err;
  };
  EXPECT_THAT(error(f.options.model), HasSubstr("expected a run that began with a model folder"));
  Tuner tuner(f.options, sets_with({"recipe=fp32", "train.steps=1"}));
  tuner.trainer.run({StartMode::fresh, tuner.loaded.source}, {});
  EXPECT_THAT(error(f.options.out), HasSubstr("expected a base of 8-bit weights"));
}

}  // namespace
}  // namespace octet::finetune_as_base_test
