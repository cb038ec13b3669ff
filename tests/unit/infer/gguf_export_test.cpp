// GGUF files that are written: read back they are the model, and hold what llama.cpp's converter
// gives them.
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "infer/export_gguf.h"
#include "infer/gguf_architecture.h"
#include "infer/import_gguf.h"
#include "infer/model_source.h"
#include "infer/weights.h"
#include "io/gguf_blocks.h"
#include "io/gguf_reader.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"
#include "unit/infer/gguf_model.h"
#include "unit/infer/put_arrays.h"

namespace octet::infer_gguf_export_test {
namespace {

using namespace test::gguf;
using test::error_of;
using test::ScratchFolder;

// The small Llama's file under another architecture's name, with what its layers have besides.
std::string fixture_of(const std::string& architecture) {
  GgufModel model;
  add_shape(model.file, architecture);
  add_vocabulary(model.file);
  model.tensor("token_embd.weight", {10, kHidden}, kQ80);
  model.tensor("output.weight", {10, kHidden}, kF32);
  add_layers(model);
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    if (architecture == "qwen3") {
      model.tensor(layer + "attn_q_norm.weight", {kHeadDim}, kF32);
      model.tensor(layer + "attn_k_norm.weight", {kHeadDim}, kF32);
    } else if (architecture == "qwen2") {
      model.tensor(layer + "attn_q.bias", {kHeads * kHeadDim}, kF32);
      model.tensor(layer + "attn_k.bias", {kKvHeads * kHeadDim}, kF32);
      model.tensor(layer + "attn_v.bias", {kKvHeads * kHeadDim}, kF32);
    }
  }
  return model.file.bytes();
}

class GgufExport : public testing::Test {
 protected:
  std::string import(const std::string& bytes) {
    std::string to = folder_ / fmt::format("model-{}", ++n_);
    import_gguf(posix_files(), folder_.put(fmt::format("{}.gguf", n_), bytes), to, {});
    return to;
  }
  std::string write(const std::string& model, GgufDtype dtype = GgufDtype::f32) {
    std::string path = folder_ / fmt::format("out-{}.gguf", ++n_);
    export_gguf(posix_files(), find_model_source(posix_files(), model), path, dtype);
    return path;
  }
  std::string text(const std::string& folder, const std::string& name) {
    return posix_files().read_text(join_path(folder, name));
  }

  ScratchFolder folder_;
  int n_ = 0;
};

TEST_F(GgufExport, what_is_written_is_read_as_the_same_folder) {
  for (const std::string architecture : {"llama", "qwen2", "qwen3"}) {
    SCOPED_TRACE(architecture);
    const std::string first = import(fixture_of(architecture));
    const std::string path = write(first);
    EXPECT_FALSE(posix_files().exists(path + ".parts"));
    const std::string again = folder_ / ("again-" + architecture);
    import_gguf(posix_files(), path, again, {});
    for (const char* name : {"config.json", "generation_config.json", "tokenizer.json",
                             "tokenizer_config.json", "model.safetensors"})
      EXPECT_EQ(text(first, name), text(again, name)) << name;
  }
}

TEST_F(GgufExport, types_are_those_that_are_asked_for_and_vectors_are_f32) {
  const std::string model = import(fixture_of("llama"));
  const std::pair<GgufDtype, GgmlType> rows[] = {{GgufDtype::f16, GgmlType::f16},
                                                 {GgufDtype::bf16, GgmlType::bf16},
                                                 {GgufDtype::q8_0, GgmlType::q8_0},
                                                 {GgufDtype::as_stored, GgmlType::f32}};
  const WeightReader weights(posix_files(), model, find_model_source(posix_files(), model).spec);
  const std::vector<float> exact = weights.read("model.layers.1.mlp.up_proj.weight");
  for (const auto& [dtype, type] : rows) {
    const GgufReader file = GgufReader::open(posix_files(), write(model, dtype));
    EXPECT_EQ(file.find("blk.1.ffn_up.weight")->type, static_cast<uint32_t>(type));
    EXPECT_EQ(file.find("blk.1.ffn_norm.weight")->type, 0u);
    std::vector<float> got(exact.size());
    file.read(*file.find("blk.1.ffn_up.weight"), 0, got);
    const double step = type == GgmlType::q8_0   ? 1.0 / 254
                        : type == GgmlType::bf16 ? 1.0 / 256
                                                 : 1.0 / 2048;
    double most = 0;
    for (const float x : exact) most = std::max(most, static_cast<double>(std::fabs(x)));
    for (size_t i = 0; i < exact.size(); ++i)
      ASSERT_NEAR(got[i], exact[i], most * step * 1.01) << i;
  }
}

TEST_F(GgufExport, scaled_positions_go_along) {
  const std::string model = import(fixture_of("llama"));
  const std::string path = join_path(model, "config.json");
  Json config = Json::parse(text(model, "config.json"));
  const auto read_back = [&](const Json& scaling) {
    config["rope_scaling"] = scaling;
    config.erase("rope_parameters");
    posix_files().remove(path);
    write_atomically(posix_files(), path, config.dump());
    const std::string out = write(model), to = folder_ / fmt::format("back-{}", ++n_);
    import_gguf(posix_files(), out, to, {});
    return find_model_source(posix_files(), to).spec;
  };
  const ModelSpec linear = read_back({{"rope_type", "linear"}, {"factor", 2.5}});
  EXPECT_EQ(linear.rope_scaling, RopeScaling::linear);
  EXPECT_EQ(linear.rope_factor, 2.5);
  EXPECT_EQ(read_back({{"rope_type", "linear"}, {"factor", 1.0}}).rope_scaling, RopeScaling::none);
  const ModelSpec llama3 = read_back({{"rope_type", "llama3"},
                                      {"factor", 8.0},
                                      {"low_freq_factor", 1.0},
                                      {"high_freq_factor", 4.0},
                                      {"original_max_position_embeddings", 8192}});
  EXPECT_EQ(llama3.rope_scaling, RopeScaling::llama3);
  EXPECT_EQ(llama3.rope_factor, 8);
  EXPECT_EQ(llama3.rope_original_max_position, 8192);
  EXPECT_EQ(
      error_of([&] {
        read_back(
            {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}});
      }),
      "[convert] a GGUF file: expected rotary positions that are not scaled, or linearly, or "
      "as Llama 3's, got yarn");
}

// Of narrow heads few pairs, or none, say how far positions are scaled.
TEST_F(GgufExport, the_scaling_of_llama_3_goes_along_with_narrow_heads) {
  for (const uint32_t width : {2u, 4u, 8u}) {
    SCOPED_TRACE(width);
    GgufModel fixture = small_gguf();
    fixture.file.add("llama.attention.head_count", kHeads * kHeadDim / width);
    fixture.file.add("llama.attention.head_count_kv", kKvHeads * kHeadDim / width);
    fixture.file.add("llama.rope.dimension_count", width);
    fixture.file.add_real("llama.rope.freq_base", 500000.0f);
    const std::string model = import(fixture.file.bytes());
    const std::string path = join_path(model, "config.json");
    for (const double factor : {8.0, 2.5}) {
      Json config = Json::parse(text(model, "config.json"));
      config["head_dim"] = width;
      config["rope_scaling"] = {{"rope_type", "llama3"},
                                {"factor", factor},
                                {"low_freq_factor", 1.0},
                                {"high_freq_factor", 4.0},
                                {"original_max_position_embeddings", 8192}};
      config.erase("rope_parameters");
      write_atomically(posix_files(), path, config.dump());
      const ModelSpec written = find_model_source(posix_files(), model).spec;
      const std::string to = folder_ / fmt::format("narrow-{}", ++n_);
      import_gguf(posix_files(), write(model), to, {});
      const ModelSpec read = find_model_source(posix_files(), to).spec;
      EXPECT_EQ(read.head_dim, width);
      const bool is_scaled = width > 2;  // the first pair turns too fast to be
      ASSERT_EQ(read.rope_scaling, is_scaled ? RopeScaling::llama3 : RopeScaling::none);
      if (!is_scaled) continue;
      EXPECT_TRUE(are_equal_divisors(llama3_divisors(read), llama3_divisors(written)));
    }
  }
}

// llama.cpp loads no file of another architecture with a tensor of divisors.
TEST_F(GgufExport, llama_alone_has_the_scaling_of_llama_3) {
  for (const std::string architecture : {"qwen2", "qwen3"}) {
    const std::string model = import(fixture_of(architecture));
    Json config = Json::parse(text(model, "config.json"));
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", 8.0},
                              {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0},
                              {"original_max_position_embeddings", 8192}};
    config.erase("rope_parameters");
    write_atomically(posix_files(), join_path(model, "config.json"), config.dump());
    EXPECT_EQ(error_of([&] { write(model); }),
              "[convert] a GGUF file: expected rotary positions that are not scaled, or linearly, "
              "got llama3");
  }
}

TEST_F(GgufExport, what_a_file_has_no_key_for_is_refused_by_name) {
  const std::string model = import(fixture_of("llama"));
  const auto refused = [&](const std::string& name, const auto& change) {
    const std::string path = join_path(model, name), before = text(model, name);
    Json json = Json::parse(before);
    change(json);
    write_atomically(posix_files(), path, json.dump());
    const std::string out = folder_ / fmt::format("refused-{}.gguf", ++n_);
    const std::string error = error_of(
        [&] {
          export_gguf(posix_files(), find_model_source(posix_files(), model), out, GgufDtype::f32);
        },
        folder_.path());
    EXPECT_FALSE(posix_files().exists(out) || posix_files().exists(out + ".parts"));
    write_atomically(posix_files(), path, before);
    // Without the file, which is gone.
    const size_t file = error.find(" DIR");
    return file == error.npos ? error : error.substr(0, file) + error.substr(error.find(": "));
  };
  const std::string tokenizer = "tokenizer.json";
  EXPECT_EQ(refused(tokenizer,
                    [](Json& json) {
                      json["pre_tokenizer"] = {
                          {"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
                    }),
            "[convert]: expected a byte-level BPE with words and normalizer that "
            "tokenizer.ggml.pre names, or SentencePiece's BPE, got another");
  EXPECT_EQ(refused(tokenizer, [](Json& json) { json["added_tokens"][0]["lstrip"] = true; }),
            "[convert]: added token '<|im_start|>': 'lstrip' has no key in a GGUF file");
  for (const std::string affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto change = [&affix](Json& json) {
      json["model"][affix] = "a";
      json["model"]["merges"] = Json::array();
    };
    EXPECT_EQ(refused(tokenizer, change),
              "[convert]: model: '" + affix + "' has no key in a GGUF file");
  }
  EXPECT_EQ(refused("config.json", [](Json& json) { json["hidden_act"] = "gelu"; }),
            "[convert] a GGUF file: expected mlp_act silu, which llama has no other key for, got "
            "gelu_erf");
}

TEST_F(GgufExport, damaged_files_beside_the_weights_are_one_line) {
  const std::string model = import(fixture_of("llama"));
  const auto error_with = [&](const std::string& name, const Json& json) {
    const std::string path = join_path(model, name), before = text(model, name);
    write_atomically(posix_files(), path, json.dump());
    std::string error = error_of([&] { write(model); });
    write_atomically(posix_files(), path, before);
    return error.substr(error.find(name));
  };
  Json config = Json::parse(text(model, "tokenizer_config.json"));
  config["chat_template"] = {{{"name", "default"}, {"template", "x"}}, {{"name", "other"}}};
  EXPECT_TRUE(error_with("tokenizer_config.json", config).find("template") != std::string::npos);
  EXPECT_TRUE(
      error_with("generation_config.json", Json::array({1})).starts_with("generation_config.json"));
}

// An adapter of two linears, one of which lies in another order in the file.
std::string put_adapter(const ScratchFolder& folder) {
  constexpr int64_t kRank = 2;
  Numbers numbers;
  std::vector<test::ArrayToPut> arrays;
  const auto put = [&](const std::string& name, const Shape& shape) {
    std::vector<float> values(static_cast<size_t>(n_elems(shape)));
    for (float& value : values) value = static_cast<float>(numbers.next(2001)) / 1000 - 1;
    arrays.push_back(test::array_of(name, SafeDtype::f32, shape, values));
  };
  for (const int64_t layer : {0, 1}) {
    for (const auto& [module, n_out] :
         {std::pair("self_attn.q_proj", kHeads * kHeadDim), std::pair("mlp.up_proj", kFfn)}) {
      const std::string name = fmt::format("base_model.model.model.layers.{}.{}", layer, module);
      put(name + ".lora_A.weight", {kRank, kHidden});
      put(name + ".lora_B.weight", {n_out, kRank});
    }
  }
  folder.put("adapter/adapter_config.json", R"({"peft_type": "LORA", "r": 2, "lora_alpha": 3, )"
                                            R"("target_modules": ["q_proj", "up_proj"]})");
  test::put_arrays(folder / "adapter/adapter_model.safetensors", arrays);
  return folder / "adapter";
}

TEST_F(GgufExport, of_a_model_with_an_adapter_the_merged_weights_go_out) {
  const std::string model = import(fixture_of("llama"));
  const ModelSource base = find_model_source(posix_files(), model);
  const ModelSource both = with_adapter(posix_files(), base, put_adapter(folder_));
  const std::string path = folder_ / "merged.gguf", to = folder_ / "merged";
  export_gguf(posix_files(), both, path, GgufDtype::f32);
  import_gguf(posix_files(), path, to, {});
  const WeightReader before(posix_files(), base.weights, base.spec);
  const WeightReader merged(posix_files(), both.weights, both.spec);
  const WeightReader written(posix_files(), to, find_model_source(posix_files(), to).spec);
  for (const ParameterSpec& p : model_parameters(both.spec)) {
    const bool is_adapted =
        p.name.find("q_proj") != p.name.npos || p.name.find("up_proj") != p.name.npos;
    EXPECT_EQ(written.read(p.name), merged.read(p.name)) << p.name;
    EXPECT_EQ(written.read(p.name) == before.read(p.name), !is_adapted) << p.name;
  }
}

// Llama but for the window.
TEST_F(GgufExport, a_mistral_without_a_window_is_a_llama_and_one_with_it_is_refused) {
  const std::string model = import(fixture_of("llama")), path = join_path(model, "config.json");
  Json config = Json::parse(text(model, "config.json"));
  config["model_type"] = "mistral";
  config["architectures"] = {"MistralForCausalLM"};
  for (const char* key : {"attention_bias", "mlp_bias"}) config.erase(key);
  config["sliding_window"] = nullptr;
  write_atomically(posix_files(), path, config.dump());
  ASSERT_EQ(find_model_source(posix_files(), model).spec.kind, ModelKind::mistral);
  const GgufReader file = GgufReader::open(posix_files(), write(model));
  EXPECT_EQ(file.header().string("general.architecture"), "llama");
  config["sliding_window"] = 16;
  write_atomically(posix_files(), path, config.dump());
  EXPECT_EQ(error_of([&] { write(model); }),
            "[convert] a GGUF file: expected sliding_window 0, which mistral has no other key for, "
            "got 16");
}

// Every folder of Qwen's has max_window_layers, which says nothing without a window.
TEST_F(GgufExport, the_first_layer_with_a_window_needs_no_key_without_one) {
  for (const std::string architecture : {"qwen2", "qwen3"}) {
    const std::string model = import(fixture_of(architecture));
    const std::string path = join_path(model, "config.json");
    Json config = Json::parse(text(model, "config.json"));
    config["max_window_layers"] = 28;
    config["sliding_window"] = 16;
    config["use_sliding_window"] = false;
    config.erase("layer_types");
    write_atomically(posix_files(), path, config.dump());
    ASSERT_EQ(find_model_source(posix_files(), model).spec.window_from, 28);
    const GgufReader file = GgufReader::open(posix_files(), write(model));
    EXPECT_EQ(file.header().string("general.architecture"), architecture);
    config["use_sliding_window"] = true;
    config["max_window_layers"] = 1;
    write_atomically(posix_files(), path, config.dump());
    EXPECT_EQ(error_of([&] { write(model); }),
              "[convert] a GGUF file: expected sliding_window 0, which " + architecture +
                  " has no other key for, got 16");
  }
}

TEST_F(GgufExport, other_kinds_are_refused_by_name) {
  ModelSource source;
  source.spec.kind = ModelKind::gpt2;
  EXPECT_EQ(
      error_of([&] { export_gguf(posix_files(), source, folder_ / "x.gguf", GgufDtype::bf16); }),
      "[convert] a GGUF file: expected a model of kind llama, mistral, qwen2 or qwen3, got "
      "gpt2");
}

}  // namespace
}  // namespace octet::infer_gguf_export_test
