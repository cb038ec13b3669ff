// A tiny model that sees pictures, and conversations about two of them.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "unit/base/scratch_folder.h"

namespace octet::test {

// Bytes, and three special tokens behind them: <image> is 256.
inline std::string byte_tokenizer_json() {
  using nlohmann::json;
  json vocab = json::object();
  int n_others = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_plain = (byte >= 33 && byte < 127) || (byte >= 161 && byte < 173) || byte >= 174;
    const int code = is_plain ? byte : 256 + n_others++;
    const std::string letter = code < 128 ? std::string(1, static_cast<char>(code))
                                          : std::string{static_cast<char>(0xC0 | (code >> 6)),
                                                        static_cast<char>(0x80 | (code & 0x3F))};
    vocab[letter] = byte;
  }
  json added = json::array();
  for (const char* text : {"<image>", "<|im_start|>", "<|im_end|>"})
    added.push_back({{"id", 256 + added.size()}, {"content", text}, {"special", true}});
  const json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return json({{"version", "1.0"},
               {"added_tokens", added},
               {"pre_tokenizer", level},
               {"decoder", level},
               {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}}})
      .dump();
}

// Puts a tokenizer, two pictures and `n` conversations into the folder: of one picture, of two, and
// of none.
inline void put_conversations(const ScratchFolder& folder, int n = 6) {
  folder.put("tokenizer.json", byte_tokenizer_json());
  for (const char* name : {"gray.png", "full_color.jpeg"}) {
    folder.put(name, posix_files().read_text(std::string(OCTET_SOURCE_DIR) +
                                             "/tests/fixtures/images/" + name));
  }
  const std::string image = R"({"type": "image"}, )";
  const auto record = [&](const std::string& images, const std::string& parts, const char* answer) {
    return R"({"images": [)" + images + R"(], "messages": [{"role": "user", "content": [)" + parts +
           R"({"type": "text", "text": "Q?"}]}, {"role": "assistant", "content": ")" + answer +
           "\"}]}\n";
  };
  const std::string kinds[] = {
      record(R"("gray.png")", image, "gray"), record(R"("full_color.jpeg")", image, "blue"),
      record("", "", "none"), record(R"("full_color.jpeg", "gray.png")", image + image, "both")};
  std::string text;
  for (int i = 0; i < n; ++i) text += kinds[i % 4];
  folder.put("chat.jsonl", text);
}

inline std::string llava_yaml(const ScratchFolder& folder, const std::string& recipe) {
  return "model: {kind: llava, text: llama, hidden: 32, layers: 2, heads: 2, ffn: 48, vocab: 272, "
         "seq: 64, images: 2, image_token: 256, image_size: 16, patch_size: 8, vision_hidden: 16, "
         "vision_layers: 2, vision_heads: 2, vision_ffn: 32, vision_layer: -1}\nrecipe: " +
         recipe + "\noptim: {lr: 4.0e-3, warmup: 2, schedule: constant}\ndata: {train: [" +
         (folder / "chat.jsonl") + "], val: [" + (folder / "chat.jsonl") +
         "], tokenizer: " + (folder / "tokenizer.json") +
         ", too_long: drop, chat: {template: chatml}, images: {stretch: true, filter: bicubic}}\n"
         "train: {steps: 4, batch: 4, eval_every: 0, save_every: 0, deterministic: true}\nout: " +
         (folder / "run") + "\n";
}

}  // namespace octet::test
