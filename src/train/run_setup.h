// Options of each part of a run, as a configuration means them. The configuration is resolved.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "compile/program.h"
#include "config/run_config.h"
#include "data/chat_dataset.h"
#include "data/dataset.h"
#include "data/row_plan.h"
#include "data/token_cache.h"
#include "nn/model.h"
#include "optim/schedule.h"
#include "train/data_entries.h"
#include "train/row_data.h"

namespace octet {

// Throws Error{invalid_argument} naming the key for choices that the optimizer does not offer.
ProgramOptions program_options(const RunConfig& config, const ModelSpec& spec, int64_t rank = 0);
// The same for a run as it starts: with the RMS of the weights that it loads, where its recipe
// predicts scales from them (recipe.weight_rms). Reads the weights of model.path, where they are
// there; a folder of config.json alone can be planned without.
ProgramOptions loaded_options(const Files& files, const RunConfig& config, const ModelSpec& spec,
                              int64_t rank = 0);
// The model's parameters as a new run of this recipe begins with them.
std::vector<ParameterSpec> first_parameters(const RunConfig& config, const ModelSpec& spec);
RecipeOptions recipe_options(const RunConfig& config);  // what its recipe.* keys say
// Losses that a run is trained for, with the options that it says of them.
std::vector<WeightedLoss> run_losses(const RunConfig& config, const ModelSpec& spec);
// A head that model.head names beside model.path is trained whole; what train.freeze names is not,
// and has no adapter. Throws Error{invalid_argument} naming the key.
LoraOptions lora_options(const RunConfig& config, const ModelSpec& spec);
FrozenFormat frozen_format(const RunConfig& config);
ParallelOptions parallel_options(const RunConfig& config, int64_t rank);
Schedule schedule_of(const RunConfig& config);
RowOptions row_options(const RunConfig& config);
bool has_conversations(const RunConfig& config);    // as data
bool has_whole_documents(const RunConfig& config);  // in each row
RowDocuments row_documents(const RunConfig& config);

// Text that tokens do not see is no label of an evaluation in windows.
DocumentBoundaries eval_boundaries(RowDocuments documents);

// Rows of the validation text that one evaluation reads; of conversations in rows of their own,
// padded to the first of these lengths, or model.seq, that all rows of a micro-batch of all ranks
// fit.
std::unique_ptr<EvalRows> make_eval_rows(const TokenStream& stream, const RunConfig& config,
                                         int64_t max_tokens,
                                         const std::vector<int64_t>& shorter = {});

// Tokens of the validation stream that one evaluation reads: eval_bytes over the bytes a token
// takes, 1 up to a vocabulary of 256, 2 up to 65,536, else 4.
int64_t eval_tokens(const RunConfig& config, const ModelSpec& spec);

// The configured files as streams; text is tokenized once, but bytes, which are their own tokens.
// Throws Error{invalid_argument} where the configuration names no
// training data, or where the model's vocabulary is smaller than the tokenizer's; Error{bad_data}
// where the data is not what was expected.
struct RunDataOptions {
  Log log = {};
  int threads = 0;  // 0: one per core that this process may use
  std::function<void(const TokenizeProgress&)> on_progress = {};
  bool keeps_tokens = true;  // of text, in a cache beside the run
  DataUse use = DataUse::training;
};
Dataset open_run_data(Files& files, const RunConfig& config, const ModelSpec& spec,
                      const RunDataOptions& options = {});

// The tokenizer for these files. Token shards need none: where `path` names none that can be read
// and fits, one of `vocab` tokens that takes no text stands in its place, with a warning where a
// file was named.
std::unique_ptr<Tokenizer> data_tokenizer(const Files& files, const std::string& path,
                                          std::span<const std::string> data, int64_t vocab,
                                          const Log& log);
// That of the data of a run. Throws Error{invalid_argument} where the model's vocabulary is
// smaller.
std::unique_ptr<Tokenizer> run_tokenizer(const Files& files, const RunConfig& config,
                                         const ModelSpec& spec, const Log& log);
// Entries of data.train, before anything is held out and without a cache.
std::vector<DataEntry> open_run_entries(Files& files, const RunConfig& config,
                                        const Tokenizer& tokenizer,
                                        const RunDataOptions& options = {});
// The conversations that paths of the configuration hold. Throws Error{bad_data} where there are
// none.
ChatData read_run_chat(const Files& files, const RunConfig& config, const Tokenizer& tokenizer,
                       const std::vector<std::string>& paths, int threads);

// Place and options of the cache of text's tokens: beside config.out, for the runs beside it as
// well. Nothing for bytes, which are their own tokens.
std::optional<TokenCacheOptions> token_cache_options(const RunConfig& config,
                                                     const std::string& tokenizer,
                                                     const std::string& separator,
                                                     const RunDataOptions& options);

// Names of the classes of texts or pictures in the folder that a run starts from, by number, as the
// config.json of model.path has them (infer/class_names.h); empty where it has others than the
// model's, or none.
std::vector<std::string> names_of_model(const Files& files, const RunConfig& config,
                                        const ModelSpec& spec);

}  // namespace octet
