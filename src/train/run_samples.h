// Texts that a model writes while it is trained: what it goes on with behind each of
// train.sample_prompts, or answers where the run trains conversations. The weights are those of the
// step, the functions those of an evaluation (its recipe, no dropout), so a run has the same bits
// with samples as without. Each token costs a forward pass over its text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "config/run_config.h"
#include "infer/chat_prompts.h"
#include "infer/generate.h"
#include "nn/model.h"
#include "train/engine.h"

namespace octet {

// A line of samples.jsonl. Format: docs/formats/run.md.
struct TextSample {
  int64_t step = 0;
  std::string prompt, text;  // as the configuration has it; what the model wrote
  std::string stop;          // what ended the text, as Stop names it
};
std::string sample_json(const TextSample& sample);
// Nothing where the line is none.
std::optional<TextSample> parse_sample(std::string_view line);
// For the terminal, on one line.
std::string sample_line(const TextSample& sample);

class RunSamples {
 public:
  // At least one prompt. Throws Error{invalid_argument} naming train.sample_prompts where the model
  // writes no text by itself, the run has no tokenizer for it, or a prompt fills model.seq.
  RunSamples(const Files& files, const RunConfig& config, const ModelSpec& spec);

  // Lengths of rows that an engine must have logits for (ProgramOptions::texts).
  const std::vector<int64_t>& lengths() const { return lengths_; }

  // One for each prompt, in their order; all ranks call it, and have the same. Throws
  // Error{numerics} where a logit is NaN.
  std::vector<TextSample> write(TrainEngine& engine, int64_t step) const;

 private:
  std::vector<int32_t> tokens_of(const std::string& prompt) const;
  void read_prompts();

  TrainConfig config_;
  int64_t vocab_ = 0, seq_ = 0;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatPrompts> chat_;  // where the run trains conversations
  std::vector<Prompt> prompts_;
  GenerateOptions options_;
  std::vector<int64_t> lengths_;
};

// nullptr without prompts.
std::unique_ptr<RunSamples> make_run_samples(const Files& files, const RunConfig& config,
                                             const ModelSpec& spec);

}  // namespace octet
