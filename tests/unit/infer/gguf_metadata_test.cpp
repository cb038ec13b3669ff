// Metadata of a GGUF file: what is read, what must have its neutral value, what is refused by name.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "base/json.h"
#include "infer/export_tokenizer.h"
#include "infer/import_gguf.h"
#include "infer/model_source.h"
#include "infer/weights.h"
#include "text/chat_template.h"
#include "text/padding.h"
#include "text/tokenizer.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"
#include "unit/infer/gguf_model.h"

namespace octet::infer_gguf_metadata_test {
namespace {

using namespace test::gguf;
using test::error_of;
using test::GgufFile;
using test::ScratchFolder;

class GgufMetadata : public testing::Test {
 protected:
  ExportResult convert(const ExportOptions& options = {}) {
    to_ = folder_ / fmt::format("model-{}", ++n_);
    return import_gguf(posix_files(), folder_.put("m.gguf", file_.bytes()), to_, options);
  }
  std::string error() {
    const std::string text = error_of([&] { convert(); }, folder_.path());
    const std::string begin = "[gguf] DIR/m.gguf: ";
    return text.starts_with(begin) ? text.substr(begin.size()) : text;
  }
  Json json(const std::string& name) {
    return Json::parse(posix_files().read_text(join_path(to_, name)));
  }
  std::vector<int32_t> ids(const std::string& text) {
    convert();
    const auto whole = [&](const std::string& path) {
      const auto tokenizer = make_tokenizer(posix_files(), path);
      std::vector<int32_t> ids = tokenizer->prefix();
      for (const int32_t id : tokenizer->encode(text)) ids.push_back(id);
      for (const int32_t id : tokenizer->suffix()) ids.push_back(id);
      return ids;
    };
    EXPECT_EQ(whole(folder_ / "m.gguf"), whole(to_));
    return whole(to_);
  }
  void set_real(const std::string& key, float value) { file_.add_real(key, value); }

  ScratchFolder folder_;
  std::string to_;
  int n_ = 0;
  GgufFile file_ = small_gguf().file;
};

using Ids = std::vector<int32_t>;

TEST_F(GgufMetadata, scaled_positions_are_linear_where_no_type_is_said) {
  const std::string type = "llama.rope.scaling.type", factor = "llama.rope.scaling.factor";
  const std::string older = "llama.rope.scale_linear";
  const auto factor_of = [&] {
    convert();
    const ModelSpec spec = find_model_source(posix_files(), to_).spec;
    EXPECT_EQ(spec.rope_scaling, spec.rope_factor == 1 ? RopeScaling::none : RopeScaling::linear);
    return spec.rope_factor;
  };
  EXPECT_EQ(factor_of(), 1);
  set_real(older, 2.3f);
  EXPECT_EQ(factor_of(), 2.3);
  set_real(factor, 4);
  EXPECT_EQ(factor_of(), 4);  // before the older name
  file_.add(type, "linear");
  EXPECT_EQ(factor_of(), 4);
  for (const float neutral : {0.0f, 1.0f}) {
    set_real(factor, neutral);
    EXPECT_EQ(factor_of(), 1) << neutral;
  }
  set_real(factor, 4);
  file_.add(type, "none");
  EXPECT_EQ(factor_of(), 1);
  for (const std::string other : {"yarn", "longrope", "dynamic"}) {
    file_.add(type, other);
    EXPECT_EQ(error(), "expected 'llama.rope.scaling.type' none or linear, got '" + other + "'");
  }
  file_.remove(type);
  for (const float bad : {0.5f, -4.0f, std::numeric_limits<float>::quiet_NaN()}) {
    set_real(factor, bad);
    EXPECT_TRUE(error().starts_with("expected 'llama.rope.scaling.factor' of 1 or more, got "));
  }
}

TEST_F(GgufMetadata, numbers_out_of_bounds_are_named_by_the_file_s_key) {
  const std::string base = "llama.rope.freq_base", factor = "llama.rope.scaling.factor";
  for (const float bad : {0.0f, std::numeric_limits<float>::infinity()}) {
    set_real(base, bad);
    EXPECT_TRUE(error().starts_with("expected '" + base + "' a number in [1, ")) << error();
  }
  file_.remove(base);
  set_real(factor, std::numeric_limits<float>::infinity());
  EXPECT_TRUE(error().starts_with("expected '" + factor + "' a number in [1, ")) << error();
  file_.remove(factor);
  const std::string heads = "llama.attention.head_count";
  file_.add(heads + "_kv", 3u);
  EXPECT_EQ(error(), "expected '" + heads + "_kv' a divisor of " + heads + " = 4, got 3");
  file_.add(heads, 0u);
  EXPECT_TRUE(error().starts_with("expected '" + heads + "' ")) << error();
}

TEST_F(GgufMetadata, each_key_is_read_neutral_or_refused_by_name) {
  // Keys that say nothing, or what a Llama is without them.
  file_.add("general.name", "a model");
  file_.add("general.type", "model");
  file_.add("general.file_type", 7u);
  file_.add("llama.vocab_size", 10u);
  file_.add("llama.attention.key_length", 16u);
  file_.add("llama.attention.value_length", 16u);
  file_.add("llama.expert_count", 0u);
  file_.add("llama.expert_used_count", 0u);
  file_.add("llama.attention.sliding_window", 0u);
  file_.add_flag("llama.attention.causal", true);
  set_real("llama.attention.scale", 0);
  set_real("llama.rope.scaling.attn_factor", 1);
  set_real("llama.rope.scaling.yarn_log_multiplier", 0);
  file_.add_flag("llama.rope.scaling.finetuned", true);
  file_.add("llama.rope.scaling.original_context_length", 64u);
  file_.add_flag("llama.use_parallel_residual", false);
  file_.add("llama.tensor_data_layout", "Meta AI original pth");
  file_.add("tokenizer.ggml.token_type_count", 3u);
  file_.add_flag("tokenizer.ggml.add_space_prefix", false);
  file_.add_flag("tokenizer.ggml.add_sep_token", false);
  file_.add_flag("tokenizer.ggml.remove_extra_whitespaces", false);
  file_.add_value("split.count", 2, GgufFile::raw<uint16_t>(1));
  file_.add("quantize.imatrix.file", "x");
  EXPECT_EQ(error(), "no error");
  file_.add("maker.word", "x");
  std::string said;
  convert({.log = Log([&](LogLevel, const std::string& line) { said += line; })});
  EXPECT_NE(said.find("m.gguf: 'maker.word' is not known, and ignored"), said.npos) << said;

  const GgufFile whole = file_;
  const auto refused = [&](const std::string& expected, const auto& change) {
    file_ = whole;
    change();
    EXPECT_EQ(error(), expected);
    EXPECT_FALSE(posix_files().exists(to_));
  };
  const auto number = [&](const std::string& key, uint32_t got, const std::string& expected) {
    refused(fmt::format("expected '{}' {}, got {}", key, expected, got),
            [&] { file_.add(key, got); });
  };
  number("llama.vocab_size", 9, "10");
  number("llama.attention.value_length", 8, "16");
  number("llama.rope.dimension_count", 8, "16");
  number("llama.expert_count", 8, "0");
  number("llama.expert_used_count", 2, "0");
  number("llama.attention.sliding_window", 64, "0");
  refused("expected 'llama.attention.causal' true, got false",
          [&] { file_.add_flag("llama.attention.causal", false); });
  refused("expected 'llama.attention.scale' 0, got 0.5",
          [&] { set_real("llama.attention.scale", 0.5f); });
  refused("expected 'llama.rope.scaling.attn_factor' 1, got 1.5",
          [&] { set_real("llama.rope.scaling.attn_factor", 1.5f); });
  refused("expected 'llama.use_parallel_residual' false, got true",
          [&] { file_.add_flag("llama.use_parallel_residual", true); });
  refused("expected 'llama.tensor_data_layout' Meta AI original pth, got other",
          [&] { file_.add("llama.tensor_data_layout", "other"); });
  refused("expected 'general.type' model, got adapter",
          [&] { file_.add("general.type", "adapter"); });
  refused("expected a whole file, got one of 2 parts",
          [&] { file_.add_value("split.count", 2, GgufFile::raw<uint16_t>(2)); });
  refused("'llama.logit_scale' is not known: it may change what the model computes",
          [&] { set_real("llama.logit_scale", 1); });
  refused("expected the key 'llama.attention.causal' with its usual type",
          [&] { file_.add("llama.attention.causal", 1u); });
  for (const std::string key : {"add_space_prefix", "add_sep_token", "remove_extra_whitespaces"}) {
    refused("expected 'tokenizer.ggml." + key + "' false, got true",
            [&] { file_.add_flag("tokenizer.ggml." + key, true); });
  }
  refused("'tokenizer.ggml.normalizer' is not known: it may change how texts become tokens",
          [&] { file_.add("tokenizer.ggml.normalizer", "x"); });
  refused("expected each key once, got two 'quantize.imatrix.file'",
          [&] { file_.remove("maker.word"), file_.repeat_last_key(); });
}

TEST_F(GgufMetadata, texts_begin_and_end_as_the_file_or_its_pre_tokenizer_says) {
  const std::string adds_bos = "tokenizer.ggml.add_bos_token", pre = "tokenizer.ggml.pre";
  file_.remove(adds_bos);
  for (const std::string name : {"smollm", "gpt-2", "mpt", "olmo", "qwen2", "default"}) {
    file_.add(pre, name);
    EXPECT_EQ(ids("ab"), (Ids{8})) << name;
  }
  for (const std::string name : {"llama-bpe", "llama3", "llama-v3"}) {
    file_.add(pre, name);
    EXPECT_EQ(ids("ab"), (Ids{0, 8})) << name;
    EXPECT_TRUE(json("tokenizer.json")["model"]["ignore_merges"]) << name;
  }
  file_.add_flag(adds_bos, false);
  EXPECT_EQ(ids("ab"), (Ids{8}));
  file_.add_flag("tokenizer.ggml.add_eos_token", true);
  EXPECT_EQ(ids("ab"), (Ids{8, 1}));
  file_.add_flag(adds_bos, true);
  EXPECT_EQ(ids("ab"), (Ids{0, 8, 1}));
  file_.remove("tokenizer.ggml.bos_token_id");
  EXPECT_EQ(error(),
            "expected 'tokenizer.ggml.bos_token_id', which stands around each text, got none");
}

// Each punctuation on its own, and numbers in threes.
TEST_F(GgufMetadata, no_pre_tokenizer_is_read_as_the_default_one_and_told) {
  file_.remove("tokenizer.ggml.pre");
  std::string said;
  convert({.log = Log([&](LogLevel, const std::string& line) { said += line; })});
  EXPECT_NE(said.find("no 'tokenizer.ggml.pre' says what a word is"), said.npos) << said;
  EXPECT_EQ(json("tokenizer.json")["pre_tokenizer"]["pretokenizers"].size(), 5u);
  EXPECT_EQ(ids("ab 12\nb"), (Ids{8, 6, 9, 7, 3}));
  file_.add("tokenizer.ggml.pre", "other");
  EXPECT_EQ(error(), "tokenizer.ggml.pre 'other' is not supported");
}

// Other files that are held in memory have at most 256 MiB.
TEST_F(GgufMetadata, a_vocabulary_is_read_of_a_file_of_any_size) {
  const std::string path = folder_.put("m.gguf", file_.bytes());
  const auto ids = make_tokenizer(posix_files(), path)->encode("ab 12");
  std::filesystem::resize_file(path, (uint64_t{256} << 20) + 1);
  EXPECT_EQ(make_tokenizer(posix_files(), path)->encode("ab 12"), ids);
}

// Written as by a run's export, whose weights are not this file's.
TEST_F(GgufMetadata, a_vocabulary_is_written_of_a_file_with_weights_of_any_type) {
  constexpr uint32_t kQ4K = 12;
  file_.add_tensor("other.weight", {256}, kQ4K, std::string(144, '\0'));
  ModelSource source;
  source.spec.kind = ModelKind::llama;
  source.run.emplace();
  source.tokenizer = folder_.put("m.gguf", file_.bytes());
  const std::string out = folder_ / "written";
  posix_files().create_directories(out);
  put_tokenizer(posix_files(), source, out, {});
  EXPECT_EQ(make_tokenizer(posix_files(), out + "/tokenizer.json")->encode("ab 12"),
            make_tokenizer(posix_files(), source.tokenizer)->encode("ab 12"));
}

TEST_F(GgufMetadata, padding_is_that_of_the_file_s_key_and_of_nothing_beside_it) {
  folder_.put("tokenizer_config.json", R"({"pad_token": "<|im_end|>"})");
  const auto padding = [&] {
    const std::string path = folder_.put("m.gguf", file_.bytes());
    return padding_id(posix_files(), path, *make_tokenizer(posix_files(), path));
  };
  EXPECT_EQ(padding(), std::nullopt);
  file_.add("tokenizer.ggml.padding_token_id", 2u);
  EXPECT_EQ(padding(), 2);
}

TEST_F(GgufMetadata, ends_of_answers_and_named_templates_come_along) {
  file_.add("tokenizer.ggml.eot_token_id", 9u);
  file_.add("tokenizer.ggml.eom_token_id", 1u);
  file_.add("tokenizer.ggml.padding_token_id", 2u);
  file_.add("tokenizer.ggml.seperator_token_id", 3u);
  file_.add("tokenizer.ggml.fim_pre_token_id", 4u);
  file_.add("tokenizer.chat_templates", std::vector<std::string>{"tool_use"});
  file_.add("tokenizer.chat_template.tool_use", "{{ tools }}");
  convert();
  EXPECT_EQ(json("generation_config.json"),
            (Json{{"bos_token_id", 0}, {"eos_token_id", {1, 9}}, {"pad_token_id", 2}}));
  EXPECT_EQ(json("tokenizer_config.json")["pad_token"], "a");
  EXPECT_EQ(json("tokenizer_config.json")["sep_token"], "b");
  EXPECT_EQ(json("tokenizer_config.json")["model_max_length"], 128);
  EXPECT_EQ(find_chat_template(posix_files(), to_, true).text, "{{ tools }}");
  EXPECT_NE(find_chat_template(posix_files(), to_, false).text.find("bos_token"),
            std::string::npos);
}

TEST_F(GgufMetadata, a_vocabulary_that_its_readers_refuse_is_refused) {
  const std::string tokens = "tokenizer.ggml.tokens", merges = "tokenizer.ggml.merges";
  const std::vector<std::string> usual = {"<|im_start|>", "<|im_end|>", "a",  "b", "1", "2",
                                          "\u0120",       "\u010A",     "ab", "12"};
  const auto with = [&](size_t i, const std::string& token) {
    std::vector<std::string> all = usual;
    all[i] = token;
    return all;
  };
  file_.add(tokens, with(9, "ab"));
  EXPECT_EQ(error(), "tokenizer.ggml.tokens: expected each token once, got 'ab' as 8 and 9");
  file_.add(tokens, with(2, "a\xff"));
  EXPECT_EQ(error(), "'tokenizer.ggml.tokens', element 2: expected UTF-8, got other bytes");
  file_.add(tokens, std::vector<std::string>(usual.begin(), usual.end() - 1));
  EXPECT_EQ(error(), "expected a token for each of 10 rows, got 9 tokens");
  file_.add(tokens, usual);
  file_.add(merges, std::vector<std::string>{"a b", "b a"});
  EXPECT_EQ(error(), "[tokenizer] DIR/m.gguf: merge 1: 'ba' is not in the vocabulary");
  file_.add(merges, std::vector<std::string>{"a \xc3"});
  EXPECT_EQ(error(), "'tokenizer.ggml.merges', element 0: expected UTF-8, got other bytes");
  file_.add(merges, std::vector<std::string>{"a b", "1 2"});
  for (const std::string name : {"bos", "eos", "eot", "unknown", "padding", "mask", "fim_suf"}) {
    const std::string key = "tokenizer.ggml." + name + "_token_id";
    file_.add(key, 10u);
    EXPECT_EQ(error(), "'" + key + "': expected the id of one of 10 tokens, got 10");
    file_.add(key, 1u);
  }
  file_.add("tokenizer.chat_template", "\xe2\x82");
  EXPECT_EQ(error(), "'tokenizer.chat_template': expected UTF-8, got other bytes");
  file_.add("tokenizer.chat_template", "x");
  EXPECT_EQ(error(), "no error");
  file_.add("general.\xff", "x");
  EXPECT_EQ(error(), "a key: expected UTF-8, got other bytes");
}

// Kept as generation_config.json says it; what has no name there is told.
TEST_F(GgufMetadata, how_answers_are_drawn_is_kept) {
  const auto generation = [&] {
    convert();
    Json all = json("generation_config.json");
    for (const char* token : {"bos_token_id", "eos_token_id", "pad_token_id"}) all.erase(token);
    return all;
  };
  EXPECT_EQ(generation(), Json::object());
  set_real("general.sampling.temp", 0.6f);
  set_real("general.sampling.top_p", 0.95f);
  set_real("general.sampling.min_p", 0.05f);
  set_real("general.sampling.penalty_repeat", 1.1f);
  EXPECT_EQ(generation(), (Json{{"do_sample", true},
                                {"temperature", 0.6},
                                {"top_p", 0.95},
                                {"min_p", 0.05},
                                {"repetition_penalty", 1.1}}));
  set_real("general.sampling.temp", 0);
  EXPECT_EQ(generation()["do_sample"], false);
  EXPECT_FALSE(generation().contains("temperature"));
  file_.add_value("general.sampling.top_k", 5, GgufFile::raw<int32_t>(20));
  EXPECT_EQ(generation()["top_k"], 20);
  set_real("general.sampling.min_p", -1);
  EXPECT_EQ(error(), "'general.sampling.min_p': expected a number of 0 or more, got -1");
  set_real("general.sampling.min_p", 0);
  set_real("general.sampling.mirostat_tau", 3);
  std::vector<std::string> said;
  convert({.log = Log([&](LogLevel, const std::string& text) { said.push_back(text); })});
  ASSERT_FALSE(said.empty());
  EXPECT_TRUE(said.front().ends_with(
      "'general.sampling.mirostat_tau' is not used: no sampling here has it"))
      << said.front();
}

TEST_F(GgufMetadata, tensors_that_overlap_are_refused) {
  file_.step_back(32);
  file_.add_tensor("extra", {8}, kF32, std::string(32, '\0'));
  EXPECT_EQ(error(),
            "'extra' and 'blk.1.ffn_down.weight': expected bytes of their own, got overlapping "
            "ones");
}

// A folder that cannot be read is not made, and a second call finds the name free.
TEST_F(GgufMetadata, weights_that_are_not_finite_are_refused_by_the_conversion) {
  GgufModel model;
  const std::string infinite = GgufFile::raw<uint16_t>(0x7C00);
  std::string blocks;
  for (int i = 0; i < 10 * kHidden / 32; ++i)
    blocks += (i == 3 ? infinite : half(1)) + std::string(32, '\1');
  add_shape(model.file);
  add_vocabulary(model.file);
  model.file.add_tensor("token_embd.weight", {10, kHidden}, kQ80, blocks);
  add_layers(model);
  file_ = model.file;
  const std::string expected =
      "[weights] DIR/m.gguf: element [1,32] of 'model.embed_tokens.weight' [10,64]: expected a "
      "finite weight, got inf; --allow-nonfinite (of a run model.allow_nonfinite) reads it as it "
      "is";
  EXPECT_EQ(error(), expected);
  EXPECT_EQ(posix_files().list(to_).size(), 0u);
  EXPECT_EQ(convert({.nonfinite = NonfiniteWeights::allowed}).n_tensors, 20);
}

}  // namespace
}  // namespace octet::infer_gguf_metadata_test
