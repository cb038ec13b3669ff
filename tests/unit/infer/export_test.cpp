#include "infer/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/json.h"
#include "formats/codec.h"
#include "formats/quantize.h"
#include "infer/stored_weights.h"
#include "infer/weights.h"
#include "io/model_files.h"
#include "io/quantization_config.h"
#include "nn/hf_config.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::infer_export_test {
namespace {

using test::error_of;
using test::ScratchFolder;

// Widths that no block of 128 divides.
ModelSpec shape_of(ModelKind kind) {
  ModelSpec spec{.kind = kind, .hidden = 136, .layers = 1, .heads = 2, .ffn = 150, .vocab = 11};
  if (model_def(kind).grouped_heads) spec.kv_heads = 1;
  spec.norm_eps = model_def(kind).usual_norm_eps;
  return resolved(spec);
}

float weight_at(size_t i) {
  return std::sin(static_cast<float>(i) * 0.7f) * (1 + static_cast<float>(i % 13));
}

void put_model(const ScratchFolder& folder, const ModelSpec& spec, Dtype dtype) {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<TensorSource> sources;
  for (const ParameterSpec& p : model_parameters(spec)) {
    std::vector<float> values(static_cast<size_t>(n_elems(p.shape)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = weight_at(i);
    bytes.push_back(encode_weights(values, dtype));
    sources.push_back({tensor_decl(p.name, dtype, p.shape), {}});
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    sources[i].emit = [&bytes, i](const ByteSink& sink) { sink(bytes[i]); };
  }
  write_atomically(posix_files(), folder / "model.safetensors",
                   [&](FileWriter& out) { write_safetensors(out, sources); });
  folder.put("config.json", hf_config_text(spec));
}

ExportResult convert(const std::string& from, const std::string& to,
                     const ExportOptions& options = {}) {
  return export_model(posix_files(), find_model_source(posix_files(), from), to, options);
}

void expect_equal_tensors(const std::string& a, const std::string& b) {
  const ModelFiles got = ModelFiles::open(posix_files(), a);
  const ModelFiles expected = ModelFiles::open(posix_files(), b);
  ASSERT_EQ(got.names(), expected.names());
  for (const std::string& name : got.names()) {
    EXPECT_EQ(got.at(name).stored, expected.at(name).stored) << name;
    EXPECT_EQ(got.at(name).shape, expected.at(name).shape) << name;
    EXPECT_EQ(got.read(name), expected.read(name)) << name;
  }
}

TEST(Export, of_the_same_dtype_is_bit_identical_for_every_architecture) {
  for (const ModelDef* model : models()) {
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::f32}) {
      const ScratchFolder folder;
      put_model(folder, shape_of(model->kind), dtype);
      convert(folder.path(), folder / "out");
      expect_equal_tensors(folder / "out", folder.path());
      EXPECT_EQ(read_hf_config(posix_files(), folder / "out"), shape_of(model->kind));
    }
  }
}

TEST(Export, through_f32_gives_the_bf16_back) {
  const ScratchFolder folder;
  put_model(folder, shape_of(ModelKind::qwen3), Dtype::bf16);
  convert(folder.path(), folder / "wide", {.dtype = ExportDtype::f32});
  convert(folder / "wide", folder / "back", {.dtype = ExportDtype::bf16});
  expect_equal_tensors(folder / "back", folder.path());
}

TEST(Export, what_becomes_infinite_in_bf16_is_named) {
  const ScratchFolder folder;
  put_model(folder, shape_of(ModelKind::llama), Dtype::f32);
  std::string text = posix_files().read_text(folder / "model.safetensors");
  const float largest = std::numeric_limits<float>::max();
  std::memcpy(text.data() + text.size() - sizeof largest, &largest, sizeof largest);
  folder.put("model.safetensors", text);
  ModelSource source = find_model_source(posix_files(), folder.path());
  const auto write = [&](const std::string& to) {
    export_model(posix_files(), source, folder / to, {.dtype = ExportDtype::bf16});
  };
  EXPECT_THAT(error_of([&] { write("out"); }, folder.path()),
              testing::HasSubstr("expected what bf16 holds, got 3.4028235e+38"));
  source.nonfinite = NonfiniteWeights::allowed;
  write("allowed");
}

TEST(Export, in_fp8_is_near_and_goes_in_and_out_bit_by_bit) {
  const ModelSpec spec = shape_of(ModelKind::llama);
  for (const ExportDtype dtype : {ExportDtype::fp8_block, ExportDtype::fp8_tensor}) {
    const ScratchFolder folder;
    put_model(folder, spec, Dtype::bf16);
    convert(folder.path(), folder / "q", {.dtype = dtype});
    convert(folder / "q", folder / "again", {.dtype = dtype});
    expect_equal_tensors(folder / "again", folder / "q");
    convert(folder / "q", folder / "stored");
    expect_equal_tensors(folder / "stored", folder / "q");
    const WeightReader exact(posix_files(), folder.path(), spec);
    const WeightReader q(posix_files(), folder / "q", spec);
    int n_linears = 0;
    for (const ParameterSpec& p : model_parameters(spec)) {
      const std::vector<float> expected = exact.read(p.name), got = q.read(p.name);
      const bool is_linear = q.scales(p.name) != nullptr;
      n_linears += is_linear ? 1 : 0;
      for (size_t i = 0; i < got.size(); ++i) {
        // Half a step of E4M3: 2^-4 of the value, or of the least normal number 2^-6 times a scale.
        const float step = is_linear ? std::abs(expected[i]) / 16 + 13.0f / 448 / 1024 : 0;
        ASSERT_LE(std::abs(got[i] - expected[i]), step * 1.01f) << p.name << " " << i;
      }
    }
    EXPECT_EQ(n_linears, 7);  // q, k, v, o, gate, up, down: none of them joined
  }
}

// Codes and scales are those of the quantizer, and what is read of them is what they decode to.
TEST(Export, in_hif8_is_what_the_quantizer_makes_and_goes_in_and_out_bit_by_bit) {
  for (const ModelKind kind : {ModelKind::llama, ModelKind::gpt2}) {
    const ScratchFolder folder;
    const ModelSpec spec = shape_of(kind);
    put_model(folder, spec, Dtype::bf16);
    convert(folder.path(), folder / "q", {.dtype = ExportDtype::hif8});
    convert(folder / "q", folder / "again", {.dtype = ExportDtype::hif8});
    expect_equal_tensors(folder / "again", folder / "q");
    convert(folder / "q", folder / "stored");
    expect_equal_tensors(folder / "stored", folder / "q");
    const WeightReader exact(posix_files(), folder.path(), spec);
    const WeightReader q(posix_files(), folder / "q", spec);
    const Quantizer quantizer = linear_quantizer(Dtype::hif8, {.kind = Granularity::Kind::tensor});
    int n_linears = 0;
    for (const ParameterSpec& p : model_parameters(spec)) {
      const std::vector<float> x = exact.read(p.name);
      if (q.scales(p.name) == nullptr) {
        EXPECT_EQ(q.read(p.name), x) << p.name;
        continue;
      }
      ++n_linears;
      EXPECT_EQ(q.stored(p.name).stored, SafeDtype::u8);
      const MatrixShape shape{p.shape[0], p.shape[1]};
      std::vector<uint8_t> codes(x.size());
      std::vector<float> scale(1), y(x.size());
      quantize(quantizer, shape, x, codes, scale);
      dequantize(quantizer, shape, codes, scale, y);
      EXPECT_EQ(q.read(p.name), y) << p.name;
      EXPECT_EQ(q.scales(p.name)->values, scale) << p.name;
    }
    EXPECT_EQ(n_linears, kind == ModelKind::llama ? 7 : 4);
  }
}

TEST(Export, in_hif8_says_what_it_is_and_who_reads_it) {
  const ScratchFolder folder;
  put_model(folder, shape_of(ModelKind::llama), Dtype::bf16);
  convert(folder.path(), folder / "q", {.dtype = ExportDtype::hif8});
  const Json config = Json::parse(posix_files().read_text(folder / "q/config.json"));
  EXPECT_EQ(config.at("dtype"), "hifloat8");  // at which transformers ends
  const Json& quantization = config.at("quantization_config");
  EXPECT_EQ(quantization.at("quant_method"), "octet");
  EXPECT_EQ(quantization.at("groups").at(0).at("format"), "hif8");
  const std::string description = quantization.at("description");
  EXPECT_NE(description.find("HiFloat8 codes (U8)"), std::string::npos);
  EXPECT_NE(description.find("Octet alone reads them"), std::string::npos);
  std::vector<std::string> unknown;
  const auto read = read_quantization_config(posix_files(), folder / "q");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->unknown_keys, unknown);
}

// Other programs have a convolution of four extents there.
TEST(Export, in_fp8_leaves_the_patches_of_pictures_as_they_are) {
  const std::string patches = "vit.embeddings.patch_embeddings.projection.weight";
  for (const ExportDtype dtype : {ExportDtype::fp8_block, ExportDtype::fp8_tensor}) {
    const ScratchFolder folder;
    put_model(folder, shape_of(ModelKind::vit), Dtype::bf16);
    convert(folder.path(), folder / "q", {.dtype = dtype});
    const ModelFiles q = ModelFiles::open(posix_files(), folder / "q");
    EXPECT_EQ(q.at(patches).stored, SafeDtype::bf16);
    EXPECT_EQ(q.at(patches).shape, (Shape{136, 3, 16, 16}));
    for (const std::string& scale : scale_names(patches)) EXPECT_EQ(q.find(scale), nullptr);
    EXPECT_EQ(q.at("vit.encoder.layer.0.output.dense.weight").stored, SafeDtype::f8_e4m3);
  }
}

// A model in E4M3 in folder/q.
ModelSpec put_fp8_model(const ScratchFolder& folder) {
  const ModelSpec spec = shape_of(ModelKind::llama);
  put_model(folder, spec, Dtype::bf16);
  convert(folder.path(), folder / "q", {.dtype = ExportDtype::fp8_tensor});
  return spec;
}

TEST(Export, in_fp8_encodes_other_eight_bits_anew) {
  const ScratchFolder folder;
  const ModelSpec spec = put_fp8_model(folder);
  // The same codes as those of INT8, one scale a tensor.
  const ModelFiles q = ModelFiles::open(posix_files(), folder / "q");
  std::vector<TensorSource> sources;
  for (const std::string& name : q.names()) {
    TensorDecl decl = q.at(name);
    if (decl.stored == SafeDtype::f8_e4m3) decl = tensor_decl(name, Dtype::int8, decl.shape);
    sources.push_back({decl, [&q, name](const ByteSink& sink) { sink(q.read(name)); }});
  }
  posix_files().create_directories(folder / "int");
  write_atomically(posix_files(), folder / "int/model.safetensors",
                   [&](FileWriter& out) { write_safetensors(out, sources); });
  Json config = Json::parse(posix_files().read_text(folder / "q/config.json"));
  config["quantization_config"]["format"] = "int-quantized";
  config["quantization_config"]["config_groups"]["group_0"]["weights"]["type"] = "int";
  folder.put("int/config.json", config.dump());
  convert(folder / "int", folder / "out", {.dtype = ExportDtype::fp8_tensor});
  const std::string up = "model.layers.0.mlp.up_proj.weight";
  EXPECT_EQ(ModelFiles::open(posix_files(), folder / "out").at(up).stored, SafeDtype::f8_e4m3);
  const std::vector<float> expected = WeightReader(posix_files(), folder / "int", spec).read(up);
  const std::vector<float> got = WeightReader(posix_files(), folder / "out", spec).read(up);
  for (size_t i = 0; i < got.size(); ++i)  // half a step of E4M3
    ASSERT_LE(std::abs(got[i] - expected[i]), std::abs(expected[i]) / 16 * 1.01f) << i;
}

// An inference server finds the scales that config.json promises.
TEST(Export, as_stored_keeps_the_scales_of_inputs_and_of_the_cache) {
  const ScratchFolder folder;
  const ModelSpec spec = put_fp8_model(folder);
  const ModelFiles q = ModelFiles::open(posix_files(), folder / "q");
  std::vector<TensorSource> sources;
  const std::vector<std::byte> one = encode_weights(std::vector<float>{0.5f}, Dtype::f32);
  for (const std::string& name : q.names()) {
    sources.push_back({q.at(name), [&q, name](const ByteSink& sink) { sink(q.read(name)); }});
    if (!name.ends_with("_proj.weight")) continue;
    const std::string module = name.substr(0, name.rfind('.'));
    sources.push_back(span_source(tensor_decl(module + ".input_scale", Dtype::f32, {1}), one));
  }
  sources.push_back(
      span_source(tensor_decl("model.layers.0.self_attn.k_scale", Dtype::f32, {}), one));
  posix_files().create_directories(folder / "static");
  write_atomically(posix_files(), folder / "static/model.safetensors",
                   [&](FileWriter& out) { write_safetensors(out, sources); });
  folder.put("static/config.json", posix_files().read_text(folder / "q/config.json"));
  convert(folder / "static", folder / "out");
  expect_equal_tensors(folder / "out", folder / "static");
}

TEST(Export, blocks_at_the_edges_have_scales_of_their_own) {
  const ScratchFolder folder;
  put_model(folder, shape_of(ModelKind::llama), Dtype::bf16);
  std::string warnings;
  const Log log([&](LogLevel, const std::string& line) { warnings += line + "\n"; });
  convert(folder.path(), folder / "q", {.dtype = ExportDtype::fp8_block, .log = log});
  EXPECT_EQ(warnings,
            "[convert] 'model.layers.0.self_attn.q_proj.weight' [136,136] has partial blocks of "
            "128 x 128, which not every program reads; fp8-tensor has none\n");
  const ModelFiles q = ModelFiles::open(posix_files(), folder / "q");
  const std::string up = "model.layers.0.mlp.up_proj.weight";
  EXPECT_EQ(q.at(up).shape, (Shape{150, 136}));
  EXPECT_EQ(q.at(up + "_scale_inv").shape, (Shape{2, 2}));
}

TEST(Export, shards_hold_at_most_what_was_asked_for_and_are_read_back) {
  const ScratchFolder folder;
  const ModelSpec spec = shape_of(ModelKind::llama);
  put_model(folder, spec, Dtype::bf16);
  const ExportResult result = convert(folder.path(), folder / "out", {.max_shard = 60'000});
  EXPECT_GT(result.n_shards, 2);
  expect_equal_tensors(folder / "out", folder.path());
  const Json index =
      Json::parse(posix_files().read_text(folder / "out/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], result.n_bytes);
  EXPECT_EQ(index["weight_map"]["model.norm.weight"],
            fmt::format("model-{0:05}-of-{0:05}.safetensors", result.n_shards));
}

TEST(Export, copies_the_known_files_and_no_links) {
  const ScratchFolder folder, elsewhere;
  put_model(folder, shape_of(ModelKind::llama), Dtype::bf16);
  folder.put("tokenizer.json", "{}");
  folder.put("generation_config.json", R"({"eos_token_id": 2})");
  folder.put("modeling_evil.py", "print()");
  folder.put("pytorch_model.bin", "pickle");
  elsewhere.put("secret", "password");
  std::filesystem::create_symlink(elsewhere / "secret", folder / "merges.txt");
  std::string warnings;
  const Log log([&](LogLevel, const std::string& line) { warnings += line + "\n"; });
  convert(folder.path(), folder / "out", {.log = log});
  std::string names;
  for (const auto& entry : posix_files().list(folder / "out")) names += entry.name + " ";
  EXPECT_EQ(names, "config.json generation_config.json model.safetensors tokenizer.json ");
  EXPECT_EQ(warnings, "[convert] '" + folder.path() +
                          "/merges.txt' is not copied: expected a regular file, got a link\n");
}

TEST(Export, copies_a_run_s_tokenizer_by_the_name_that_folders_have) {
  const ScratchFolder folder, elsewhere;
  folder.put("config.json", hf_config_text(shape_of(ModelKind::llama)));
  elsewhere.put("mine.json", "mine");
  elsewhere.put("tokenizer.json", "another model's");
  elsewhere.put("merges.txt", "another model's");
  ModelSource source;
  source.spec = shape_of(ModelKind::llama);
  source.folder = folder.path();
  source.tokenizer = elsewhere / "mine.json";
  posix_files().create_directories(folder / "out");
  copy_companions(posix_files(), source, folder / "out", {});
  EXPECT_EQ(posix_files().list(folder / "out").size(), 1u);
  EXPECT_EQ(posix_files().read_text(folder / "out/tokenizer.json"), "mine");
}

// Without them transformers takes other models' ids, and fails where they lie beyond the
// vocabulary.
TEST(Export, of_a_run_from_first_weights_names_its_tokenizers_ids) {
  const auto ids_with = [](const std::string& tokenizer) {
    const ScratchFolder folder;
    folder.put("config.json", hf_config_text(shape_of(ModelKind::smollm3)));
    ModelSource source;
    source.spec = shape_of(ModelKind::smollm3);
    source.folder = folder.path();
    source.tokenizer = tokenizer;
    source.run.emplace();
    posix_files().create_directories(folder / "out");
    write_model_folder(posix_files(), source, folder / "out", {}, {});
    const Json config = Json::parse(posix_files().read_text(folder / "out/config.json"));
    return Json{config.at("bos_token_id"), config.at("eos_token_id"), config.at("pad_token_id")};
  };
  EXPECT_EQ(ids_with("bytes"), (Json{nullptr, nullptr, nullptr}));
  EXPECT_EQ(ids_with("moved/away.json"), (Json{nullptr, nullptr, nullptr}));
  const std::string fixture = OCTET_SOURCE_DIR "/tests/fixtures/tokenizers/sp_bpe.model";
  EXPECT_EQ(ids_with(fixture), (Json{1, 2, nullptr}));
}

// The ids of the folder's own name other tokens there.
TEST(Export, of_a_run_with_another_tokenizer_than_its_folder_s_names_its_ids) {
  const std::string fixture = OCTET_SOURCE_DIR "/tests/fixtures/tokenizers/sp_bpe.model";
  const auto ids_with = [](const std::string& tokenizer, const ScratchFolder& model) {
    const ScratchFolder folder;
    folder.put("config.json", posix_files().read_text(model / "config.json"));
    ModelSource source;
    source.spec = shape_of(ModelKind::llama);
    source.folder = folder.path();
    source.tokenizer = tokenizer;
    source.run.emplace();
    source.run->model.path = model.path() + "/";
    posix_files().create_directories(folder / "out");
    write_model_folder(posix_files(), source, folder / "out", {}, {});
    Json ids;
    for (const char* name : {"config.json", "generation_config.json"}) {
      const Json json = Json::parse(posix_files().read_text((folder / "out/") + name));
      ids.push_back({json.value("bos_token_id", Json()), json.value("eos_token_id", Json())});
    }
    return ids;
  };
  const ScratchFolder model;
  Json config = Json::parse(hf_config_text(shape_of(ModelKind::llama)));
  config.update({{"bos_token_id", 7}, {"eos_token_id", 8}});
  model.put("config.json", config.dump());
  model.put("generation_config.json", R"({"bos_token_id": 7, "eos_token_id": [8, 9]})");
  model.put("tokenizer.model", posix_files().read_text(fixture));
  EXPECT_EQ(ids_with(model / "tokenizer.model", model), Json::parse("[[7, 8], [7, [8, 9]]]"));
  EXPECT_EQ(ids_with(fixture, model), Json::parse("[[1, 2], [1, 2]]"));
}

TEST(Export, says_what_it_cannot_do) {
  const ScratchFolder folder;
  put_model(folder, shape_of(ModelKind::gpt2), Dtype::bf16);
  const auto error = [&](const std::string& to, ExportDtype dtype) {
    return error_of([&] { convert(folder.path(), to, {.dtype = dtype}); }, folder.path());
  };
  EXPECT_EQ(error(folder.path(), ExportDtype::bf16),
            "[convert] 'DIR': expected a name that is free or an empty folder, got a folder with "
            "files");
  EXPECT_EQ(error(folder / "q", ExportDtype::fp8_block),
            "[convert] --dtype fp8-block: expected a model of plain linears, got gpt2, whose 8-bit "
            "weights no other program loads");
  EXPECT_EQ(error(folder / "m.gguf", ExportDtype::bf16),
            "[convert] 'DIR/m.gguf': expected a folder to write, got the name of a GGUF file, "
            "which `octet convert` makes of a run or a model folder");
  EXPECT_FALSE(posix_files().exists(folder / "m.gguf"));
  EXPECT_FALSE(posix_files().exists(folder / "q"));
}

// Weights of one 2 x 3 matrix in E4M3 with these scales, as the layouts have them.
std::vector<float> read_scaled(const std::vector<int64_t>& scale_shape,
                               const std::vector<float>& scales, const std::string& config,
                               const std::string& suffix) {
  const ScratchFolder folder;
  ModelSpec spec =
      resolved({.hidden = 2, .layers = 1, .heads = 1, .ffn = 3, .vocab = 2, .norm_eps = 1e-6});
  std::vector<TensorSource> sources;
  std::vector<std::vector<std::byte>> bytes;
  for (const ParameterSpec& p : model_parameters(spec)) {
    const bool is_scaled = p.name.ends_with("down_proj.weight");
    const Dtype dtype = is_scaled ? Dtype::e4m3 : Dtype::f32;
    sources.push_back({tensor_decl(p.name, dtype, p.shape), {}});
    bytes.emplace_back(sources.back().decl.n_bytes(), std::byte(is_scaled ? 0x38 : 0));  // 1
  }
  sources.push_back(
      {tensor_decl("model.layers.0.mlp.down_proj.weight" + suffix, Dtype::f32, scale_shape), {}});
  bytes.emplace_back(scales.size() * 4);
  std::memcpy(bytes.back().data(), scales.data(), bytes.back().size());
  for (size_t i = 0; i < sources.size(); ++i) {
    sources[i].emit = [&bytes, i](const ByteSink& sink) { sink(bytes[i]); };
  }
  write_atomically(posix_files(), folder / "model.safetensors",
                   [&](FileWriter& out) { write_safetensors(out, sources); });
  Json json = Json::parse(hf_config_text(spec));
  if (!config.empty()) json["quantization_config"] = Json::parse(config);
  folder.put("config.json", json.dump());
  return WeightReader(posix_files(), folder.path(), spec)
      .read("model.layers.0.mlp.down_proj.weight");
}

TEST(QuantizedWeights, are_read_in_every_layout) {
  const std::string fp8 = R"({"quant_method":"fp8","weight_block_size":[1,2]})";
  const std::string groups =
      R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":)"
      R"({"group_0":{"weights":{"num_bits":8,"type":"float","strategy":"channel"}}}})";
  using Values = std::vector<float>;
  EXPECT_EQ(read_scaled({}, {2}, "", "_scale"), (Values{2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(read_scaled({1}, {2}, R"({"quant_method":"fp8"})", "_scale"),
            (Values{2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(read_scaled({2, 2}, {2, 3, 4, 5}, fp8, "_scale_inv"), (Values{2, 2, 3, 4, 4, 5}));
  EXPECT_EQ(read_scaled({1, 1}, {2}, "", "_scale_inv"), (Values{2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(read_scaled({2, 1}, {2, 3}, groups, "_scale"), (Values{2, 2, 2, 3, 3, 3}));
  const auto error = [&](const std::vector<int64_t>& shape, const std::string& config) {
    const std::string text = error_of([&] {
      read_scaled(shape, Values(static_cast<size_t>(n_elems(shape)), 1.0f), config, "_scale_inv");
    });
    return text.substr(text.find(": ") + 2);
  };
  EXPECT_EQ(error({3, 1}, ""),
            "'model.layers.0.mlp.down_proj.weight_scale_inv' must be the scales of [2,3], got "
            "[3,1]");
  EXPECT_EQ(
      error({1}, R"({"quant_method":"gptq"})"),
      "'quantization_config.quant_method': expected fp8, modelopt or compressed-tensors, got gptq");
  EXPECT_EQ(error({1}, R"({"quant_method":"fp8","weight_block_size":[0,2]})"),
            "'quantization_config.weight_block_size': expected two extents of a block, got [0,2]");
  EXPECT_EQ(error({1}, R"({"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized"})"),
            "'quantization_config.format': expected float-quantized, int-quantized, "
            "mxfp8-quantized, naive-quantized, pack-quantized, mixed-precision, got "
            "\"nvfp4-pack-quantized\"");
  std::string of_integers = groups;
  of_integers.replace(of_integers.find("float\","), 5, "int");
  EXPECT_EQ(error({1}, of_integers),
            "'model.layers.0.mlp.down_proj.weight' must be I8, as the weights.type of its group "
            "says, got F8_E4M3");
}

// Activation quantizers as the folder's config and its scales say.
FakeQuantizeInputs read_inputs(const std::string& config, std::optional<float> input_scale = {}) {
  const ScratchFolder folder;
  ModelSpec spec =
      resolved({.hidden = 2, .layers = 1, .heads = 1, .ffn = 3, .vocab = 2, .norm_eps = 1e-6});
  std::vector<TensorSource> sources;
  std::vector<std::vector<std::byte>> bytes;
  const auto add = [&](const std::string& name, Dtype dtype, const std::vector<int64_t>& shape) {
    sources.push_back({tensor_decl(name, dtype, shape), {}});
    bytes.emplace_back(sources.back().decl.n_bytes(), std::byte(0));
  };
  for (const ParameterSpec& p : model_parameters(spec)) {
    const bool is_scaled = p.name.ends_with("down_proj.weight");
    add(p.name, is_scaled ? Dtype::int8 : Dtype::f32, p.shape);
    if (!is_scaled) continue;
    add(p.name + "_scale", Dtype::f32, {1});
    if (!input_scale) continue;
    add("model.layers.0.mlp.down_proj.input_scale", Dtype::f32, {1});
    std::memcpy(bytes.back().data(), &*input_scale, 4);
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    sources[i].emit = [&bytes, i](const ByteSink& sink) { sink(bytes[i]); };
  }
  write_atomically(posix_files(), folder / "model.safetensors",
                   [&](FileWriter& out) { write_safetensors(out, sources); });
  Json json = Json::parse(hf_config_text(spec));
  json["quantization_config"] = Json::parse(config);
  folder.put("config.json", json.dump());
  return WeightReader(posix_files(), folder.path(), spec).inputs();
}

std::string int_config(const std::string& inputs) {
  return R"({"quant_method":"compressed-tensors","format":"int-quantized","config_groups":)"
         R"({"group_0":{"targets":["Linear"],"weights":{"num_bits":8,"type":"int"},)"
         R"("input_activations":)" +
         inputs + "}}}";
}

TEST(QuantizedInputs, are_as_the_config_says) {
  const std::string down = "model.layers.0.mlp.down_proj.weight";
  EXPECT_TRUE(read_inputs(int_config("null")).empty());
  const auto fixed = read_inputs(int_config(R"({"num_bits":8,"strategy":"tensor"})"), 0.25f);
  ASSERT_EQ(fixed.linears.size(), 1u);
  EXPECT_EQ(fixed.linears.at(down),
            (ActivationQuantizer{.dtype = Dtype::int8, .target = 127, .scale = 0.25f}));
  const auto token = read_inputs(int_config(R"({"num_bits":8,"strategy":"token","dynamic":true})"));
  EXPECT_EQ(token.linears.at(down),
            (ActivationQuantizer{.dtype = Dtype::int8, .target = 127, .group = kWholeRow}));
  const auto own =
      read_inputs(R"({"quant_method":"octet","groups":[{"block":[2,3],"inputs":{"format":"hif8",)"
                  R"("scaling":"group","group":32,"power":true}}],)"
                  R"("residual":{"format":"e5m2","scales":{"layers.0.residual.0.a":0.5}}})");
  EXPECT_EQ(own.linears.at(down),
            (ActivationQuantizer{.dtype = Dtype::hif8, .target = 15, .group = 32, .power = true}));
  EXPECT_EQ(own.residuals.at("layers.0.residual.0.a").scale, 0.5f);
}

TEST(QuantizedInputs, of_wrong_configs_and_scales_are_refused) {
  const auto error = [](const std::string& config, std::optional<float> scale = {}) {
    const std::string text = error_of([&] { read_inputs(config, scale); });
    return text.substr(text.find(": ") + 2);
  };
  EXPECT_EQ(error(int_config(R"({"num_bits":8,"strategy":"tensor"})")),
            "expected the scale of an input in 'model.layers.0.mlp.down_proj.input_scale' or "
            "'model.layers.0.mlp.down_proj.activation_scale', got none");
  for (const float scale : {0.0f, -1.0f, NAN, INFINITY}) {
    EXPECT_EQ(error(int_config(R"({"num_bits":8,"strategy":"tensor"})"), scale),
              "'model.layers.0.mlp.down_proj.input_scale' must be one scale above 0, got 1 values");
  }
  EXPECT_EQ(error(int_config(R"({"num_bits":4})")),
            "'quantization_config.num_bits': expected 8, got 4");
  EXPECT_EQ(error(int_config(R"({"num_bits":8,"strategy":"group","dynamic":true,"group_size":0})")),
            "'quantization_config.group_size': expected from 1 to 1048576, got 0");
  EXPECT_EQ(error(R"({"quant_method":"octet","groups":[]})"),
            "'quantization_config.groups': expected a list of groups, got array");
  EXPECT_EQ(error(R"({"quant_method":"octet","groups":[{"inputs":{"format":"e8m0"}}]})"),
            "'quantization_config.format': expected an 8-bit format, got \"e8m0\"");
}

}  // namespace
}  // namespace octet::infer_export_test
