// Small runs for tests: text that is easy to learn, and a model of a few thousand parameters.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/philox.h"
#include "config/load.h"
#include "unit/base/scratch_folder.h"

namespace octet::test {

// Words from a small list in a random order: far from uniform, never the same line twice.
inline std::string easy_text(size_t n_bytes) {
  const char* words[] = {"scale ", "amax ", "group ", "moment ", "remainder ", "step\n"};
  const RandomStream random{.name = name_hash("easy text")};
  std::string text;
  for (uint64_t i = 0; text.size() < n_bytes; ++i) text += words[random.bits(i) % 6];
  text.resize(n_bytes);
  return text;
}

inline std::string tiny_yaml(const ScratchFolder& folder) {
  const std::string data = folder.put("text.txt", easy_text(3001));
  return "model: {kind: llama, hidden: 32, layers: 2, heads: 4, ffn: 40, vocab: 256, seq: 24}\n"
         "recipe: fp32\n"
         "optim: {lr: 5.0e-3, warmup: 2}\n"
         "data: {train: [" +
         data +
         "], val_fraction: 0.1}\n"
         "train: {steps: 6, batch: 2, eval_every: 2, eval_bytes: 200, save_every: 0, keep: 9}\n"
         "out: " +
         (folder / "run") + "\n";
}

inline RunConfig tiny_config(const ScratchFolder& folder,
                             const std::vector<std::string>& sets = {}) {
  return parse_config(tiny_yaml(folder), "tiny.yaml", sets).config;
}

// The lines of metrics.jsonl without what depends on the clock and on the machine's power.
inline std::vector<nlohmann::json> metrics(const std::string& run) {
  std::istringstream text(posix_files().read_text(run + "/metrics.jsonl"));
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(text, line);) {
    lines.push_back(nlohmann::json::parse(line));
    for (const char* key : {"tokens_per_s", "time_ms", "joules", "save_s", "save_stall_s"})
      lines.back().erase(key);
  }
  return lines;
}

// The bits of each step's loss, as metrics.jsonl records them.
inline std::vector<std::string> loss_bits(const std::string& run) {
  std::vector<std::string> bits;
  for (const auto& line : metrics(run)) bits.push_back(line.at("loss_bits"));
  return bits;
}

// Losses of the evaluations between the steps, and behind the last.
inline std::vector<double> val_losses(const std::string& run) {
  std::vector<double> losses;
  for (const auto& line : metrics(run)) {
    if (line.contains("val_loss") && line.at("val_loss").is_number())
      losses.push_back(line.at("val_loss"));
  }
  return losses;
}

// The bytes of a checkpoint's parameters and states.
inline std::string checkpoint_bytes(const std::string& run, int64_t step) {
  const std::string path = run + fmt::format("/ckpt/step-{:06}/", step);
  return posix_files().read_text(path + "model.safetensors") +
         posix_files().read_text(path + "optim.safetensors");
}

}  // namespace octet::test
