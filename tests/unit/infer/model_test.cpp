#include <gtest/gtest.h>

#include "base/json.h"
#include "config/load.h"
#include "infer/model_source.h"
#include "infer/model_spec.h"
#include "infer/weights.h"
#include "nn/hf_config.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::infer_model_test {
namespace {

using test::error_of;
using test::ScratchFolder;

ModelSpec llama() {
  return resolved({.hidden = 8, .layers = 1, .heads = 2, .kv_heads = 1, .ffn = 6, .vocab = 11});
}

TEST(ModelSpecs, description_for_other_programs_reads_back) {
  ModelSpec scaled = llama();
  scaled.rope_scaling = RopeScaling::llama3;
  scaled.rope_factor = 8;
  scaled.rope_original_max_position = 4096;
  ModelSpec linear = llama();
  linear.rope_scaling = RopeScaling::linear;
  linear.rope_factor = 2;
  ModelSpec olmo = llama();
  olmo.kind = ModelKind::olmo;
  olmo.tied = true;
  ModelSpec gpt2 = llama();
  gpt2.kind = ModelKind::gpt2;
  gpt2.kv_heads = gpt2.heads;
  gpt2.max_positions = 64;
  gpt2.tied = true;
  gpt2.gelu = GeluKind::erf;
  gpt2.mlp_act = MlpAct::usual;  // llama()'s is resolved
  for (const ModelSpec& spec : {llama(), scaled, linear, olmo, gpt2}) {
    const ModelSpec back = parse_hf_config(hf_config_text(spec), "a");
    EXPECT_EQ(back, resolved(spec)) << hf_config_text(spec);
  }
}

TEST(ModelSpecs, configuration_gives_the_shape) {
  const RunConfig config =
      parse_config("model: {kind: gpt2, hidden: 48, layers: 3, heads: 4, vocab: 300, seq: 77}\n",
                   "a.yaml")
          .config;
  const ModelSpec spec = model_from_config(posix_files(), config);
  EXPECT_EQ(spec.kind, ModelKind::gpt2);
  EXPECT_EQ(spec.head_dim, 12);
  EXPECT_EQ(spec.ffn, 192);
  EXPECT_EQ(spec.max_positions, 77);
}

TEST(ModelSpecs, a_folders_shape_has_the_bounds_of_the_configuration) {
  const auto error_with = [](const ModelSpec& spec, const std::string& key, Json value) {
    Json json = Json::parse(hf_config_text(spec));
    json[key] = std::move(value);
    return error_of([&] { parse_hf_config(json.dump(), "a"); });
  };
  EXPECT_EQ(
      error_with(llama(), "num_hidden_layers", 2147483647),
      "[config.json] a: 'num_hidden_layers': expected an integer in [1, 4096], got 2147483647");
  EXPECT_EQ(
      error_with(llama(), "intermediate_size", 2147483646),
      "[config.json] a: 'intermediate_size': expected an integer in [1, 4194304], got 2147483646");
  EXPECT_EQ(error_with(llama(), "rms_norm_eps", 1e-300),
            "[config.json] a: 'rms_norm_eps': expected a number in [1e-30, 1], got 1e-300");
  ModelSpec gpt2 = llama();
  gpt2.kind = ModelKind::gpt2;
  gpt2.kv_heads = gpt2.heads;
  EXPECT_EQ(error_with(gpt2, "n_layer", 4097),
            "[config.json] a: 'n_layer': expected an integer in [1, 4096], got 4097");
}

// A file with every parameter, the values counting up; `change` may spoil it.
std::string put_weights(const ScratchFolder& folder, const ModelSpec& spec,
                        const std::function<void(std::vector<TensorDecl>&)>& change = {}) {
  std::vector<TensorDecl> decls;
  for (const ParameterSpec& p : model_parameters(spec)) {
    decls.push_back(tensor_decl(p.name, Dtype::f32, p.shape));
  }
  if (change) change(decls);
  std::vector<std::vector<float>> values;
  std::vector<TensorSource> sources;
  for (const TensorDecl& decl : decls) {
    values.emplace_back(decl.n_bytes() / sizeof(float));
    for (size_t i = 0; i < values.back().size(); ++i) values.back()[i] = static_cast<float>(i);
  }
  for (size_t i = 0; i < decls.size(); ++i) {
    sources.push_back(span_source(decls[i], std::as_bytes(std::span(values[i]))));
  }
  const std::string path = folder / "model.safetensors";
  write_atomically(posix_files(), path, [&](FileWriter& out) { write_safetensors(out, sources); });
  return path;
}

TEST(Weights, are_read_by_the_names_of_the_model) {
  const ScratchFolder folder;
  const std::string path = put_weights(folder, llama(), [](auto& decls) {
    for (TensorDecl& decl : decls) {  // the bare decoder's names
      if (decl.name.starts_with("model.")) decl.name = decl.name.substr(6);
    }
  });
  const WeightReader reader(posix_files(), path, llama());
  EXPECT_EQ(reader.read("model.norm.weight"), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
}

// As safetensors' save_model writes what two names share.
TEST(Weights, a_tied_embedding_may_be_stored_as_the_head) {
  const ScratchFolder folder;
  ModelSpec tied = llama();
  tied.tied = true;
  const std::string path = put_weights(folder, tied, [](auto& decls) {
    for (TensorDecl& decl : decls) {
      if (decl.name == "model.embed_tokens.weight") decl.name = "lm_head.weight";
    }
  });
  const WeightReader reader(posix_files(), path, tied);
  EXPECT_EQ(reader.stored("model.embed_tokens.weight").name, "lm_head.weight");
  EXPECT_EQ(reader.read("model.embed_tokens.weight").size(), 88u);
}

TEST(Weights, what_does_not_fit_is_named) {
  const auto error = [](const std::function<void(std::vector<TensorDecl>&)>& change) {
    const ScratchFolder folder;
    const std::string path = put_weights(folder, llama(), change);
    return error_of([&] { WeightReader(posix_files(), path, llama()); }, folder.path());
  };
  EXPECT_EQ(error({}), "no error");
  EXPECT_EQ(error([](auto& decls) {
              std::erase_if(decls, [](const auto& d) { return d.name == "model.norm.weight"; });
            }),
            "[weights] DIR/model.safetensors: expected a tensor 'model.norm.weight', got none");
  EXPECT_EQ(error([](auto& decls) {
              decls.front().shape = {11, 9};
            }),
            "[weights] DIR/model.safetensors: 'model.embed_tokens.weight' must be [11,8], got "
            "[11,9]");
  EXPECT_EQ(
      error(
          [](auto& decls) { decls.push_back(tensor_decl("model.extra.weight", Dtype::f32, {2})); }),
      "[weights] DIR/model.safetensors: 'model.extra.weight' is of no parameter of the model, "
      "kind llama");
  EXPECT_EQ(error([](auto& decls) {  // as the file names it, not as a bare decoder's
              decls.push_back(tensor_decl("score.weight", Dtype::f32, {2}));
            }),
            "[weights] DIR/model.safetensors: 'score.weight' is of no parameter of the model, kind "
            "llama");
  EXPECT_EQ(error([](auto& decls) {
              decls.back() = tensor_decl("lm_head.weight", Dtype::i32, {11, 8});
            }),
            "[weights] DIR/model.safetensors: 'lm_head.weight' must be F32, BF16, F16, "
            "F8_E4M3, F8_E5M2, I8, or U8 that the metadata name, got I32");
}

TEST(ModelSources, a_folder_says_what_it_can) {
  const ScratchFolder folder;
  ModelSpec spec = llama();
  spec.vocab = 256;
  put_weights(folder, spec);
  folder.put("config.json", hf_config_text(spec));
  const ModelSource source = find_model_source(posix_files(), folder.path());
  spec.rope_seq = spec.max_positions;
  EXPECT_EQ(source.spec, spec);
  EXPECT_EQ(source.tokenizer, "bytes");
  EXPECT_EQ(source.recipe, "fp32");
  EXPECT_EQ(source.seq, spec.max_positions);
}

TEST(ModelSources, a_folder_brings_its_tokenizer) {
  const ScratchFolder folder;
  const ModelSpec spec = llama();
  put_weights(folder, spec);
  folder.put("config.json", hf_config_text(spec));
  EXPECT_EQ(find_model_source(posix_files(), folder.path()).tokenizer, "");
  const std::string path = folder.put("tokenizer.json", "{}");
  EXPECT_EQ(find_model_source(posix_files(), folder.path()).tokenizer, path);

  const std::string model = "model: {path: " + folder.path() + "}\n";
  LoadedConfig loaded = parse_config(model, "a.yaml");
  take_tokenizer_of_model(posix_files(), loaded);
  EXPECT_EQ(loaded.config.data.tokenizer, path);
  loaded = parse_config(model + "data: {tokenizer: bytes}\n", "a.yaml");
  take_tokenizer_of_model(posix_files(), loaded);
  EXPECT_EQ(loaded.config.data.tokenizer, "bytes");
}

TEST(ModelSources, unknown_keys_are_a_warning_each_or_an_error) {
  const ScratchFolder folder;
  put_weights(folder, llama());
  Json config = Json::parse(hf_config_text(llama()));
  config["zebra"] = 1;
  config["apple"] = 2;
  const std::string path = folder.put("config.json", config.dump());
  std::vector<std::string> lines;
  const Log log([&](LogLevel, const std::string& line) { lines.push_back(line); });
  find_model_source(posix_files(), folder.path(), log);
  EXPECT_EQ(lines, (std::vector<std::string>{
                       "[config.json] " + path + ": 'apple' is not known, and ignored",
                       "[config.json] " + path + ": 'zebra' is not known, and ignored"}));
  EXPECT_EQ(error_of([&] {
              find_model_source(posix_files(), folder.path(), {}, UnknownKeys::are_errors);
            }),
            "[config.json] " + path + ": expected known keys, got 'apple'");
}

TEST(ModelSources, pickled_weights_are_refused_by_name) {
  const ScratchFolder folder;
  folder.put("config.json", hf_config_text(llama()));
  folder.put("pytorch_model.bin", "pickle");
  const auto error = [&](const std::string& path) {
    return error_of([&] { WeightReader(posix_files(), path, llama()); }, folder.path());
  };
  EXPECT_EQ(error(folder.path()),
            "[model] 'DIR/pytorch_model.bin': expected a .safetensors file, got a pickle file, "
            "which is never read");
  folder.put("model.safetensors.index.json", R"({"weight_map":{"model.norm.weight":"a.bin"}})");
  EXPECT_EQ(error(folder.path()),
            "[model] 'DIR/a.bin': expected a .safetensors file, got a pickle file, which is never "
            "read");
}

TEST(ModelSources, a_run_without_checkpoint_is_an_error) {
  const ScratchFolder folder;
  folder.put("config.yaml", "recipe: bf16\n");
  EXPECT_EQ(error_of([&] { find_model_source(posix_files(), folder.path()); }, folder.path()),
            "[model] 'DIR': expected a whole checkpoint in ckpt/, got none");
}

}  // namespace
}  // namespace octet::infer_model_test
