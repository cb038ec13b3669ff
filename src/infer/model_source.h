// Source of a trained model: a run of ours, one of its checkpoints, or a Hugging Face folder.
#pragma once

#include <optional>
#include <string>

#include "base/files.h"
#include "base/log.h"
#include "config/load.h"
#include "config/run_config.h"
#include "infer/weights.h"
#include "nn/model.h"
#include "passes/precision/recipe.h"
#include "passes/precision/store_frozen.h"

namespace octet {

struct ModelSource {
  ModelSpec spec;
  std::string folder;           // the run's, or the model's; has its config.json
  WeightPath weights;           // a model folder or one .safetensors file, and an adapter
  std::string recipe = "fp32";  // of the run
  FrozenFormat stored = FrozenFormat::as_computed;  // what the layers' matrices are kept as
  std::string tokenizer;         // "bytes" or a file; empty where the folder does not say
  int64_t seq = 0;               // trained length of a sequence
  std::optional<RunConfig> run;  // where it is a run
  NonfiniteWeights nonfinite = NonfiniteWeights::refused;
  RecipeOptions recipe_options = {};  // that the caller asks for; forward_reads of the run
  int64_t negatives = 0;              // of an evaluation: LossOptions::negatives
};

// Keys of a model folder's config.json that are in none of the lists (nn/hf_config.h).
enum class UnknownKeys : uint8_t { are_warnings, are_errors };
// A warning for each, or Error{bad_data}. And one for a head that is not tied as config.json says.
void tell_unknown_keys(const Files& files, const std::string& model_folder, const Log& log,
                       UnknownKeys unknown);

// A warning where files of the folder name tokens that its tokenizer.json lacks, which transformers
// adds; nothing of files that are refused.
void tell_tokens_beside(const Files& files, const std::string& folder, const Log& log);

// The same beside a tokenizer's file or folder that is named itself, and a warning for each key of
// its tokenizer_config.json that is not known, or Error{bad_data}.
void tell_beside_tokenizer(const Files& files, const std::string& tokenizer, const Log& log,
                           UnknownKeys unknown = UnknownKeys::are_warnings);

// Whether find_model_source() takes `path` for a run or one of its checkpoints.
bool is_run(const Files& files, const std::string& path);

// `path` is RUN (its newest whole checkpoint), RUN/ckpt/step-N, a folder with config.json and
// weights, or an adapter's folder (infer/peft_adapter.h) whose base_model_name_or_path is one.
// Throws Error{bad_data} where it is none of them, or where a run has no whole checkpoint.
ModelSource find_model_source(Files& files, const std::string& path, const Log& log = {},
                              UnknownKeys unknown = UnknownKeys::are_warnings);

// The source, a model's folder, with PEFT's adapter in this folder, and with its tokenizer where it
// has one. Throws Error{bad_data} where the adapter was made beside another base.
ModelSource with_adapter(const Files& files, ModelSource source, const std::string& adapter,
                         const Log& log = {});

// Tokenizer of the model folder that the configuration names, where data.tokenizer is left out.
void take_tokenizer_of_model(const Files& files, LoadedConfig& loaded);

}  // namespace octet
