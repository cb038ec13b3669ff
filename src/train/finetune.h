// A run that starts from a model's folder and a file of data, without a configuration file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "config/load.h"
#include "data/dataset.h"

namespace octet {

// Source of what these defaults say, in place of a file's name ("fine-tuning:5").
inline constexpr std::string_view kFinetuneSource = "fine-tuning";

struct FinetuneOptions {
  std::string model = {};              // Hugging Face layout
  std::vector<std::string> data = {};  // conversations (JSON), text or token shards; of encoders
                                       // what their loss reads; none: to plan alone
  std::string recipe = {};             // empty: the table's default
  std::string out = {};                // empty: runs/finetune
};

// A fine-tuner's defaults (docs/finetuning.md lists them), then `sets` over them. Keys that depend
// on the data are provisional until fit_to_data. Throws Error{invalid_argument} as parse_config
// does, Error{bad_data} for a folder that is no model's, for data that is not there, and for text
// without a tokenizer.
LoadedConfig finetune_config(const Files& files, const FinetuneOptions& options,
                             const std::vector<std::string>& sets);

// True if its losses are of pairs of answers (dpo, ipo, simpo, orpo).
bool compares_answers(const RunConfig& config);

// Keys that no --set names, from the data: model.seq, which the longest document or text fits into
// or the model's limit, train.batch, train.steps, train.eval_every and train.save_every.
void fit_to_data(LoadedConfig& loaded, const Dataset& data);

}  // namespace octet
