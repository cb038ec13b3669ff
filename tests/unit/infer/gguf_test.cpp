#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/gguf.h"
#include "infer/import_gguf.h"
#include "infer/loaded_rms.h"
#include "infer/model_source.h"
#include "infer/weights.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"
#include "unit/infer/gguf_model.h"

namespace octet::infer_gguf_test {
namespace {

using namespace test::gguf;
using test::error_of;
using test::GgufFile;
using test::ScratchFolder;

TEST(Gguf, becomes_a_model_folder_with_the_values_of_its_blocks) {
  const ScratchFolder folder;
  const GgufModel fixture = small_gguf();
  const std::string to = folder / "model";
  const ExportResult result =
      import_gguf(posix_files(), folder.put("m.gguf", fixture.file.bytes()), to, {});
  EXPECT_EQ(result.n_tensors, 20);
  const ModelSource source = find_model_source(posix_files(), to);
  EXPECT_EQ(source.spec.hidden, kHidden);
  EXPECT_EQ(source.spec.kv_heads, kKvHeads);
  EXPECT_EQ(source.spec.norm_eps, 1e-5);
  EXPECT_EQ(source.spec.rope_theta, 1e5);
  EXPECT_TRUE(source.spec.tied);
  const WeightReader weights(posix_files(), to, source.spec);
  const std::string layer = "model.layers.1.";
  EXPECT_EQ(weights.read("model.embed_tokens.weight"), fixture.tensors.at("token_embd.weight"));
  EXPECT_EQ(weights.read("model.norm.weight"), fixture.tensors.at("output_norm.weight"));
  EXPECT_EQ(weights.read(layer + "self_attn.v_proj.weight"),
            fixture.tensors.at("blk.1.attn_v.weight"));
  EXPECT_EQ(weights.read(layer + "mlp.down_proj.weight"),
            fixture.tensors.at("blk.1.ffn_down.weight"));
  EXPECT_EQ(weights.read(layer + "mlp.gate_proj.weight"),
            fixture.tensors.at("blk.1.ffn_gate.weight"));
}

// Rows 2 i and 2 i + 1 of a head rotate together in the file, i and i + 8 in the model.
TEST(Gguf, queries_and_keys_have_their_rows_where_rotary_positions_want_them) {
  const ScratchFolder folder;
  const GgufModel fixture = small_gguf();
  const std::string to = folder / "model";
  import_gguf(posix_files(), folder.put("m.gguf", fixture.file.bytes()), to, {});
  const ModelSource source = find_model_source(posix_files(), to);
  const WeightReader weights(posix_files(), to, source.spec);
  for (const auto& [name, stored, heads] : {std::tuple("self_attn.q_proj", "attn_q", kHeads),
                                            {"self_attn.k_proj", "attn_k", kKvHeads}}) {
    const auto values = weights.read(fmt::format("model.layers.0.{}.weight", name));
    const auto& in_file = fixture.tensors.at(fmt::format("blk.0.{}.weight", stored));
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t i = 0; i < kHeadDim / 2; ++i) {
        for (int64_t part = 0; part < 2; ++part) {
          const int64_t row = head * kHeadDim + part * kHeadDim / 2 + i;
          const int64_t from = head * kHeadDim + 2 * i + part;
          for (int64_t col = 0; col < kHidden; ++col) {
            ASSERT_EQ(values[static_cast<size_t>(row * kHidden + col)],
                      in_file[static_cast<size_t>(from * kHidden + col)])
                << name << " row " << row;
          }
        }
      }
    }
  }
}

TEST(Gguf, vocabulary_and_chat_template_come_along) {
  const ScratchFolder folder;
  const std::string path = folder.put("m.gguf", small_gguf().file.bytes());
  const std::string to = folder / "model";
  import_gguf(posix_files(), path, to, {});
  const std::string text = "<|im_start|>ab 12\nb<|im_end|>";
  const std::vector<int32_t> expected = {0, 8, 6, 4, 5, 7, 3, 1};  // digits one by one
  EXPECT_EQ(make_tokenizer(posix_files(), to)->encode(text), expected);
  EXPECT_EQ(make_tokenizer(posix_files(), path)->encode(text), expected);
  const ChatTemplateSource chat = find_chat_template(posix_files(), to, false);
  EXPECT_NE(chat.text.find("bos_token"), std::string::npos);
  EXPECT_EQ(chat.special_tokens.at("eos_token"), "<|im_end|>");
}

// As llama.cpp reads them: a number, or a list of every layer's.
TEST(Gguf, numbers_by_layer_are_one_where_they_are_equal) {
  const ScratchFolder folder;
  int n = 0;
  const auto import = [&](const GgufFile& file) {
    const std::string path = folder.put("m.gguf", file.bytes());
    const std::string to = folder / fmt::format("m{}", ++n);
    import_gguf(posix_files(), path, to, {});
    return posix_files().read_text(join_path(to, "config.json"));
  };
  const std::string expected = import(small_gguf().file);
  GgufModel lists = small_gguf();
  const auto put = [&](const std::string& key, uint32_t type, std::vector<int32_t> values) {
    std::string bytes = GgufFile::raw(type) + GgufFile::raw<uint64_t>(values.size());
    for (const int32_t value : values) bytes += GgufFile::raw(value);
    lists.file.add_value("llama." + key, 9, bytes);
  };
  constexpr uint32_t kU32 = 4, kI32 = 5;
  put("attention.head_count", kU32, {kHeads, kHeads});
  put("attention.head_count_kv", kI32, {kKvHeads, kKvHeads});
  put("feed_forward_length", kU32, {kFfn, kFfn});
  EXPECT_EQ(import(lists.file), expected);
  const auto error = [&] { return error_of([&] { import(lists.file); }, folder.path()); };
  put("feed_forward_length", kU32, {kFfn, kFfn, kFfn});
  EXPECT_EQ(error(),
            "[gguf] DIR/m.gguf: expected 'llama.feed_forward_length' of 2 layers, got 3 numbers");
  put("feed_forward_length", kU32, {kFfn, 32});
  EXPECT_EQ(error(),
            fmt::format("[gguf] DIR/m.gguf: expected 'llama.feed_forward_length' of one number for "
                        "all layers, got {} and 32",
                        kFfn));
}

TEST(Gguf, what_is_no_whole_file_or_no_llama_is_refused_by_name) {
  const ScratchFolder folder;
  const auto error = [&](const std::string& bytes) {
    const std::string path = folder.put("m.gguf", bytes);
    return error_of([&] { import_gguf(posix_files(), path, folder / "never", {}); }, folder.path());
  };
  const std::string whole = small_gguf().file.bytes();
  for (size_t n = 0; n < whole.size(); n += n < 2000 ? 61 : 16001)
    EXPECT_TRUE(error(whole.substr(0, n)).starts_with("[gguf] DIR/m.gguf: ")) << n;
  GgufModel other = small_gguf();
  other.tensor("rope_freqs.weight", {32}, kF32);
  const auto divisors = [](int64_t n) {
    return "[gguf] DIR/m.gguf: 'rope_freqs.weight': expected " + std::to_string(n) +
           " divisors, one for two columns of a head, got 32";
  };
  EXPECT_EQ(error(other.file.bytes()), divisors(kHeadDim / 2));
  other.file.add("llama.attention.key_length", 4294967294u);  // 8 GiB of them
  EXPECT_EQ(error(other.file.bytes()), divisors(2147483647));
  GgufModel unlike = small_gguf();
  unlike.tensor("rope_freqs.weight", {kHeadDim / 2}, kF32);
  EXPECT_THAT(
      error(unlike.file.bytes()),
      testing::HasSubstr("'rope_freqs.weight': expected 8 divisors of Llama 3's scaling by "));
  GgufModel unknown = small_gguf();
  unknown.file.add_tensor("extra", {256}, 10, std::string(84, '\0'));
  EXPECT_EQ(error(unknown.file.bytes()),
            "[gguf] DIR/m.gguf: 'extra': expected one of the types F32 (0), F16 (1), BF16 (30), "
            "Q4_0 (2), Q4_1 (3), Q5_0 (6), Q5_1 (7), Q8_0 (8), Q4_K (12), Q5_K (13), Q6_K (14), "
            "MXFP4 (39), got type 10");
  GgufModel experts = small_gguf();
  experts.file.add("llama.expert_count", 8u);
  EXPECT_EQ(error(experts.file.bytes()),
            "[gguf] DIR/m.gguf: expected 'llama.expert_count' 0, got 8");
  GgufFile bert;
  bert.add("general.architecture", "bert");
  EXPECT_EQ(
      error(bert.bytes()),
      "[gguf] DIR/m.gguf: expected general.architecture to be one of 'llama', 'qwen2', 'qwen3', "
      "got 'bert'");
  EXPECT_FALSE(posix_files().exists(folder / "never"));
}

TEST(Gguf, names_end_in_small_or_capital_letters) {
  for (const char* name : {"a.gguf", "a.GGUF", "b/a.Gguf", ".gguf"})
    EXPECT_TRUE(is_gguf_name(name)) << name;
  for (const char* name : {"", "gguf", "a.gguf.json", "a_gguf", "a.gguf/"})
    EXPECT_FALSE(is_gguf_name(name)) << name;
}

TEST(LoadedRms, is_that_of_each_parameter) {
  const ScratchFolder folder;
  const GgufModel fixture = small_gguf();
  const std::string to = folder / "model";
  import_gguf(posix_files(), folder.put("m.gguf", fixture.file.bytes()), to, {});
  const ModelSource source = find_model_source(posix_files(), to);
  const auto rms = loaded_rms(WeightReader(posix_files(), to, source.spec), source.spec);
  double squares = 0;
  const auto& values = fixture.tensors.at("blk.0.ffn_up.weight");
  for (const float x : values) squares += static_cast<double>(x) * static_cast<double>(x);
  EXPECT_EQ(rms.at("model.layers.0.mlp.up_proj.weight"),
            0.5 * std::log2(squares / static_cast<double>(values.size())));
}

}  // namespace
}  // namespace octet::infer_gguf_test
