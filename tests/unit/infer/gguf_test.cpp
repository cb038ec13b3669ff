#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "formats/codec.h"
#include "infer/import_gguf.h"
#include "infer/loaded_rms.h"
#include "infer/model_source.h"
#include "infer/weights.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"
#include "unit/infer/gguf_file.h"

namespace octet {
namespace {

using test::error_of;
using test::GgufFile;
using test::ScratchFolder;

constexpr uint32_t kF32 = 0, kF16 = 1, kQ41 = 3, kQ80 = 8;
constexpr int64_t kHidden = 64, kFfn = 96, kHeads = 4, kKvHeads = 2, kHeadDim = 16;

// Numbers of no pattern, from 0 to below `bound`.
class Numbers {
 public:
  uint32_t next(uint32_t bound) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<uint32_t>(state_ >> 33) % bound;
  }

 private:
  uint64_t state_ = 88172645463325252ull;
};

std::string half(float x) {
  return GgufFile::raw(static_cast<uint16_t>(encode<Dtype::fp16>(x)));
}

// A tensor's bytes and what they mean, each worked out from the same draws.
struct Drawn {
  std::string bytes;
  std::vector<float> values;
};

Drawn draw(uint32_t type, int64_t n, Numbers& numbers) {
  Drawn drawn;
  for (int64_t at = 0; at < n; at += 32) {
    const float d = static_cast<float>(numbers.next(7) + 1) / 64;
    const float m = -static_cast<float>(numbers.next(9)) / 32;
    float block[32];
    std::string codes(16, '\0');
    if (type == kQ80 || type == kQ41) drawn.bytes += half(d) + (type == kQ41 ? half(m) : "");
    for (int i = 0; i < 32; ++i) {
      if (type == kQ41) {
        const uint32_t q = numbers.next(16);
        codes[static_cast<size_t>(i % 16)] |= static_cast<char>(q << (i < 16 ? 0 : 4));
        block[i] = d * static_cast<float>(q) + m;
      } else if (type == kQ80) {
        const auto q = static_cast<int8_t>(static_cast<int>(numbers.next(255)) - 127);
        drawn.bytes += static_cast<char>(q);
        block[i] = d * static_cast<float>(q);
      } else {
        block[i] = static_cast<float>(numbers.next(4096)) / 1024 - 2;
        drawn.bytes += type == kF16 ? half(block[i]) : GgufFile::raw(block[i]);
      }
    }
    if (type == kQ41) drawn.bytes += codes;
    drawn.values.insert(drawn.values.end(), block, block + 32);
  }
  return drawn;
}

struct Fixture {
  GgufFile file;
  std::map<std::string, std::vector<float>> tensors;  // as the file has them
  Numbers numbers;

  void tensor(const std::string& name, const std::vector<uint64_t>& shape, uint32_t type) {
    uint64_t n = 1;
    for (const uint64_t extent : shape) n *= extent;
    const Drawn drawn = draw(type, static_cast<int64_t>(n), numbers);
    tensors[name] = drawn.values;
    file.add_tensor(name, shape, type, drawn.bytes);
  }
};

void add_vocabulary(GgufFile& file) {
  // <|im_start|>, <|im_end|>, a, b, 1, 2, space, newline, ab, 12
  file.add("tokenizer.ggml.model", "gpt2");
  file.add("tokenizer.ggml.pre", "smollm");
  file.add("tokenizer.ggml.tokens",
           std::vector<std::string>{"<|im_start|>", "<|im_end|>", "a", "b", "1", "2", "\u0120",
                                    "\u010A", "ab", "12"});
  file.add("tokenizer.ggml.token_type", std::vector<int32_t>{3, 3, 1, 1, 1, 1, 1, 1, 1, 1});
  file.add("tokenizer.ggml.merges", std::vector<std::string>{"a b", "1 2"});
  file.add("tokenizer.ggml.bos_token_id", 0u);
  file.add("tokenizer.ggml.eos_token_id", 1u);
  file.add_flag("tokenizer.ggml.add_bos_token", false);
  file.add("tokenizer.chat_template",
           "{% for m in messages %}{{ bos_token + m['content'] + eos_token }}{% endfor %}");
}

void add_shape(GgufFile& file) {
  file.add("general.architecture", "llama");
  file.add("llama.block_count", 2u);
  file.add("llama.context_length", 128u);
  file.add("llama.embedding_length", static_cast<uint32_t>(kHidden));
  file.add("llama.feed_forward_length", static_cast<uint32_t>(kFfn));
  file.add("llama.attention.head_count", static_cast<uint32_t>(kHeads));
  file.add("llama.attention.head_count_kv", static_cast<uint32_t>(kKvHeads));
  file.add("llama.rope.dimension_count", static_cast<uint32_t>(kHeadDim));
  file.add_real("llama.rope.freq_base", 100000.0f);
  file.add_real("llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

Fixture small_model() {
  Fixture fixture;
  add_shape(fixture.file);
  add_vocabulary(fixture.file);
  fixture.tensor("token_embd.weight", {10, kHidden}, kQ80);
  fixture.tensor("output_norm.weight", {kHidden}, kF32);
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    fixture.tensor(layer + "attn_norm.weight", {kHidden}, kF32);
    fixture.tensor(layer + "ffn_norm.weight", {kHidden}, kF32);
    fixture.tensor(layer + "attn_q.weight", {kHeads * kHeadDim, kHidden}, kQ41);
    fixture.tensor(layer + "attn_k.weight", {kKvHeads * kHeadDim, kHidden}, kQ80);
    fixture.tensor(layer + "attn_v.weight", {kKvHeads * kHeadDim, kHidden}, kF16);
    fixture.tensor(layer + "attn_output.weight", {kHidden, kHeads * kHeadDim}, kQ41);
    fixture.tensor(layer + "ffn_gate.weight", {kFfn, kHidden}, kQ41);
    fixture.tensor(layer + "ffn_up.weight", {kFfn, kHidden}, kQ41);
    fixture.tensor(layer + "ffn_down.weight", {kHidden, kFfn}, kF16);
  }
  return fixture;
}

TEST(Gguf, becomes_a_model_folder_with_the_values_of_its_blocks) {
  const ScratchFolder folder;
  const Fixture fixture = small_model();
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
  const Fixture fixture = small_model();
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
  const std::string path = folder.put("m.gguf", small_model().file.bytes());
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

TEST(Gguf, what_is_no_whole_file_or_no_llama_is_refused_by_name) {
  const ScratchFolder folder;
  const auto error = [&](const std::string& bytes) {
    const std::string path = folder.put("m.gguf", bytes);
    return error_of([&] { import_gguf(posix_files(), path, folder / "never", {}); }, folder.path());
  };
  const std::string whole = small_model().file.bytes();
  for (size_t n = 0; n < whole.size(); n += n < 2000 ? 61 : 16001)
    EXPECT_TRUE(error(whole.substr(0, n)).starts_with("[gguf] DIR/m.gguf: ")) << n;
  Fixture other = small_model();
  other.tensor("rope_freqs.weight", {32}, kF32);
  EXPECT_EQ(error(other.file.bytes()),
            "[gguf] DIR/m.gguf: the model has no parameter for 'rope_freqs.weight'");
  Fixture unknown = small_model();
  unknown.file.add_tensor("extra", {32}, 14, std::string(64, '\0'));
  EXPECT_EQ(error(unknown.file.bytes()),
            "[gguf] DIR/m.gguf: 'extra': expected F32 (type 0), F16 (1), Q4_1 (3) or Q8_0 (8), got "
            "type 14");
  Fixture experts = small_model();
  experts.file.add("llama.expert_count", 8u);
  EXPECT_EQ(error(experts.file.bytes()),
            "[gguf] DIR/m.gguf: expected 'llama.expert_count' 0, got 8");
  GgufFile bert;
  bert.add("general.architecture", "bert");
  EXPECT_EQ(error(bert.bytes()),
            "[gguf] DIR/m.gguf: expected general.architecture 'llama', got 'bert'");
  EXPECT_FALSE(posix_files().exists(folder / "never"));
}

TEST(LoadedRms, is_that_of_each_parameter) {
  const ScratchFolder folder;
  const Fixture fixture = small_model();
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
}  // namespace octet
