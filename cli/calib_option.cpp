#include "cli/calib_option.h"

#include <algorithm>

#include "base/error.h"
#include "cli/backend.h"
#include "config/load.h"
#include "data/dataset.h"
#include "data/row_plan.h"
#include "infer/loaded_rms.h"
#include "text/tokenizer.h"
#include "train/eval_scales.h"
#include "train/run_setup.h"

namespace octet {
namespace {

constexpr int64_t kLongestCalib = 1024;

void expect_predicted(const std::string& recipe) {
  if (predicts_scales(recipe)) return;
  throw Error(ErrorCode::invalid_argument,
              "--calib: expected a recipe whose scales are predicted (scalify_fp8, coat-static, "
              "scalify_fp16), got '{}', which measures its own",
              recipe);
}

// Scales that a run measured on the weights that it loaded.
std::vector<EdgeScale> scales_of_run(const std::string& file, const std::string& recipe) {
  const RunConfig run = load_config(file).config;
  const RecipeConfig& config = run.recipe;
  if (config.weight_rms != WeightRms::loaded || config.base != recipe) {
    throw Error(ErrorCode::invalid_argument,
                "--calib: expected text, or the config.yaml of a run of '{}' that began with a "
                "model's weights, got {} (recipe {}, weight_rms {})",
                recipe, file, config.base, enum_name(config.weight_rms.value()));
  }
  return recipe_options(run).edge_scales;
}

}  // namespace

void add_calib_option(CLI::App& command, CalibFlags& flags) {
  command
      .add_option("--calib", flags.files,
                  "recipes whose scales are predicted: measure those of edges that do not fit on "
                  "this text (files, folders or token shards), or take them from a run's "
                  "config.yaml; without it a run's own, and none for a model folder")
      ->type_name("FILE")
      ->delimiter(',');
}

TokenStream open_model_text(const ModelSource& source, const std::vector<std::string>& paths,
                            const Log& log, const ModelTextOptions& text) {
  Files& files = posix_files();
  const auto tokenizer = data_tokenizer(files, source.tokenizer, paths, source.spec.vocab, log);
  if (tokenizer->vocab_size() > source.spec.vocab) {
    throw Error(ErrorCode::invalid_argument,
                "--tokenizer: expected at most the model's {} tokens, got {}", source.spec.vocab,
                tokenizer->vocab_size());
  }
  DatasetOptions options;
  options.train = paths;
  options.val_fraction = 0;
  options.document_separator = text.split_on;
  // No BOS ends a text that begins with its BOS.
  options.document_end = tokenizer->bos() ? DocumentEnd::eos : text.end;
  options.shards.vocab = source.spec.vocab;
  options.log = log;
  std::optional<TokenCache> cache;
  if (text.cached) options.cache = &cache.emplace(files, *tokenizer, *text.cached);
  return open_dataset(files, options, *tokenizer).train;
}

void calibrate_source(ModelSource& source, const CalibFlags& flags, const GlobalOptions& options) {
  const Log log = make_log(options);
  if (flags.files.empty()) return take_run_scales(posix_files(), source, source.recipe, log);
  expect_predicted(source.recipe);
  if (flags.files.size() == 1 && flags.files.front().ends_with(".yaml")) {
    source.recipe_options.edge_scales = scales_of_run(flags.files.front(), source.recipe);
    return;
  }
  const TokenStream stream =
      open_model_text(source, flags.files, log, {.split_on = flags.split_on});
  if (stream.n_tokens() < 2) {
    throw Error(ErrorCode::bad_data, "--calib: expected at least two tokens, got {}",
                stream.n_tokens());
  }
  const int64_t longest = flags.seq > 0 ? flags.seq : std::min(source.seq, kLongestCalib);
  const int64_t seq = std::min(longest, stream.n_tokens() - 1);
  const SampleEval windows(stream, {.seq = seq}, flags.batch * seq + 1);
  Backend backend = open_backend(options, {.same_rows = true});
  const int64_t n_rows = std::min(flags.batch, windows.n_rows());
  measure_edge_scales(source, windows.at(0, n_rows), text_machine(backend, log));
  log.info("[calib] {} edges rescaled over {} rows of {} tokens",
           source.recipe_options.edge_scales.size(), n_rows, seq);
}

}  // namespace octet
