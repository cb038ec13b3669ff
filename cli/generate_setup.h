// Flags, and the model with its tokenizer, which the ways to generate share.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/backend.h"
#include "cli/calib_option.h"
#include "cli/common.h"
#include "cli/model_flags.h"
#include "infer/beam_search.h"
#include "infer/chat_prompts.h"
#include "infer/generation_setup.h"
#include "infer/generation_sums.h"
#include "text/chat_source.h"
#include "text/tokenizer.h"

namespace octet {

struct GenerateFlags : ModelFlags {
  std::string prompt, prompts, sources, recipe, chat_template = "auto", system;
  std::optional<std::string> source_prefix;
  std::optional<double> length_penalty;
  std::optional<EarlyStopping> early_stopping;
  int64_t beams = 0;
  std::vector<std::string> stop, images;
  std::optional<int64_t> max_tokens = {};  // 200, or as a model that translates says
  int64_t batch = 1, context = 0;
  FrozenFormat weights = FrozenFormat::as_computed;
  GenerationSums sums = GenerationSums::by_rows;
  Sampling sampling = {};
  CalibFlags calib = {};
  bool chat = false;
};

struct GenerateSetup : GenerationSetup {
  // Made when it is first asked for; what ends its turns then ends texts. `name`: as --template has
  // it.
  ChatPrompts& chat_prompts(const std::string& name);
  std::unique_ptr<ChatPrompts> chat = {};
  GenerationSums sums = GenerationSums::by_rows;
  EntryPictures pictures = {};  // of the one prompt; empty: it has none

  // With the sums that were asked for.
  std::unique_ptr<TextModel> make_model(TextModelOptions wanted, const TextMachine& machine) const;
};

// Finds the model and reads its tokenizer and configuration; no weights yet.
GenerateSetup generate_setup(const GenerateFlags& flags, const GlobalOptions& options);

// Texts of a model about the lines of a file.
void run_sources(const GenerateFlags& flags, const GlobalOptions& options);

// A conversation on standard input, a line a message of the user; with --prompt that one alone.
void run_chat(const GenerateFlags& flags, const GlobalOptions& options);

}  // namespace octet
