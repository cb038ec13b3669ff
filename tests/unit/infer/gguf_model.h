// A small Llama as a GGUF file, with what its tensors hold.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "formats/codec.h"
#include "unit/infer/gguf_file.h"

namespace octet::test::gguf {

inline constexpr uint32_t kF32 = 0, kF16 = 1, kQ41 = 3, kQ80 = 8;
inline constexpr int64_t kHidden = 64, kFfn = 96, kHeads = 4, kKvHeads = 2, kHeadDim = 16;

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

inline std::string half(float x) {
  return GgufFile::raw(static_cast<uint16_t>(encode<Dtype::fp16>(x)));
}

// A tensor's bytes and what they mean, each worked out from the same draws.
struct Drawn {
  std::string bytes;
  std::vector<float> values;
};

inline Drawn draw(uint32_t type, int64_t n, Numbers& numbers) {
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

struct GgufModel {
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

inline void add_vocabulary(GgufFile& file) {
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

inline void add_shape(GgufFile& file, const std::string& architecture = "llama") {
  file.add("general.architecture", architecture);
  const auto add = [&](const std::string& key, int64_t value) {
    file.add(architecture + "." + key, static_cast<uint32_t>(value));
  };
  add("block_count", 2);
  add("context_length", 128);
  add("embedding_length", kHidden);
  add("feed_forward_length", kFfn);
  add("attention.head_count", kHeads);
  add("attention.head_count_kv", kKvHeads);
  add("rope.dimension_count", kHeadDim);
  file.add_real(architecture + ".rope.freq_base", 100000.0f);
  file.add_real(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
}

// All tensors but the embedding.
inline void add_layers(GgufModel& fixture) {
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
}

inline GgufModel small_gguf() {
  GgufModel fixture;
  add_shape(fixture.file);
  add_vocabulary(fixture.file);
  fixture.tensor("token_embd.weight", {10, kHidden}, kQ80);
  add_layers(fixture);
  return fixture;
}

}  // namespace octet::test::gguf
