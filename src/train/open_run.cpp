#include "train/open_run.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "data/byte_stream.h"
#include "data/documents.h"
#include "data/tokenize.h"
#include "infer/model_source.h"
#include "infer/model_spec.h"
#include "infer/peft_adapter.h"
#include "nn/model.h"
#include "nn/shape.h"
#include "optim/beta_error.h"
#include "optim/standing_moment.h"
#include "passes/precision/policy.h"
#include "train/data_checks.h"
#include "train/data_entries.h"
#include "train/finetune.h"
#include "train/picture_texts.h"
#include "train/resume.h"
#include "train/run_length.h"
#include "train/run_setup.h"
#include "train/text_rows.h"
#include "train/unused_keys.h"

namespace octet {
namespace {

// Batch norms whose parameters are frozen normalize by the batch in training all the same.
void tell_statistics(const RunConfig& config, const ModelSpec& spec, const Log& log) {
  if (config.train.freeze.empty()) return;
  int64_t n = 0;
  for (const ParameterSpec& one : model_parameters(spec)) {
    const bool moves = one.name.ends_with(".running_mean");
    const auto names_it = [&](const std::string& pattern) {
      return matches_pattern(pattern, one.name);
    };
    n += moves && std::ranges::any_of(config.train.freeze, names_it) ? 1 : 0;
  }
  if (n == 0) return;
  log.warning(
      "train.freeze: the running means and variances of {} batch norms that it names follow the "
      "batches all the same",
      n);
}

void tell_betas(const RunConfig& config, const Log& log) {
  for (const double beta : config.optim.betas) {
    if (beta_error(beta) > kMaxBetaError) log.warning("[optim.betas] {}", beta_warning(beta));
  }
  const std::string standing = standing_warning(config.optim.state_v, config.optim.betas[1]);
  if (!standing.empty() && config.optim.kind != UpdateKind::sgd)
    log.warning("[optim.state_v] {}", standing);
}

// The positions that a model knows: its rotary ones may be stretched.
int64_t known_positions(const ModelSpec& spec) {
  const auto stretched = [&](int64_t positions) {
    return static_cast<int64_t>(static_cast<double>(positions) * spec.rope_factor);
  };
  switch (spec.rope_scaling) {
    case RopeScaling::none:
      return longest_row(spec);
    case RopeScaling::linear:
    case RopeScaling::dynamic:
      return std::max(spec.max_positions, stretched(spec.max_positions));
    default:
      return std::max(spec.max_positions, stretched(spec.rope_original_max_position));
  }
}

void check_positions(const RunConfig& config, const ModelSpec& spec, bool resumes, const Log& log) {
  const ModelDef& def = model_def(spec.kind);
  if (config.model.path.empty() || def.positions == Positions::relative) return;  // without end
  const auto check = [&](const char* key, int64_t positions) {
    if (positions <= known_positions(spec)) return;
    const std::string text =
        fmt::format("{}: expected at most the {} positions that {} knows, got {}", key,
                    known_positions(spec), config.model.path, positions);
    if (!resumes) throw Error(ErrorCode::invalid_argument, "{}", text);
    log.warning("{}", text);
  };
  check("model.seq", config.model.seq);
  if (def.translates) check("model.source_seq", spec.source_seq);
}

// Before anything is read, with the key that names other data.
void expect_data_there(const Files& files, const RunConfig& config) {
  const auto expect = [&](const char* key, const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      if (files.exists(path)) continue;
      throw Error(ErrorCode::bad_data,
                  "[data] '{}': expected a file or a folder, got neither: --set {}=FILE names "
                  "another",
                  path, key);
    }
  };
  expect("data.train", config.data.train);
  expect("data.val", config.data.val);
}

// The loss of a single sample is 0, whatever the model.
void expect_enough_samples(const RunConfig& config, const ModelSpec& spec) {
  for (const WeightedLoss& one : run_losses(config, spec)) {
    const LossDef& loss = *find_loss(one.name);
    const int64_t n_rows = loss.min_samples * rows_per_sample({one});
    if (config.train.batch >= n_rows) continue;
    throw Error(ErrorCode::invalid_argument,
                "train.batch: expected at least {}, the rows of {} samples that {} tells from each "
                "other, got {}",
                n_rows, loss.min_samples, loss.name, config.train.batch);
  }
}

void expect_whole_samples(const RunConfig& config, const Dataset& data) {
  const int64_t n_rows = data.train_rows == nullptr ? 1 : data.train_rows->rows_per_sample();
  if (config.train.batch % n_rows == 0) return;
  throw Error(ErrorCode::invalid_argument,
              "train.batch: expected a multiple of {}, the rows of a sample, got {}", n_rows,
              config.train.batch);
}

bool is_table_name(const std::string& path) {
  const std::string name = unpacked_name(path);
  return name.ends_with(".csv") || name.ends_with(".tsv");
}

// Tells of the first file that is named so and is read as text, of data.train and of data.val.
void tell_text_of(const Files& files, const RunConfig& config, bool (*is_named)(const std::string&),
                  std::string_view how, const Log& log) {
  for (const auto* paths : {&config.data.train, &config.data.val}) {
    std::vector<std::string> texts = *paths;
    std::erase_if(texts, [&](const std::string& path) {
      const bool holds_shards = files.exists(join_path(path, kTokenizeManifest));
      return holds_shards || (has_conversations(config) && holds_conversations(files, path));
    });
    const std::vector<std::string> all = expand_paths(files, texts).paths;
    const auto found = std::ranges::find_if(all, [&](const std::string& path) {
      return is_named(path) && file_name(path) != kTokenizeManifest;
    });
    if (found != all.end()) log.warning("[data] '{}' is read as text, {}", *found, how);
  }
}

// Tells of data that are not what somebody may take them for, or keys that do nothing with them.
void tell_of_data(const Files& files, const LoadedConfig& loaded, const OpenRun& run,
                  const Log& log) {
  const RunConfig& config = loaded.config;
  const auto is_given = [&](const char* key) { return loaded.source.at(key) != "default"; };
  const bool is_users = is_written(loaded.source, "train.eval_bytes") &&
                        !loaded.source.at("train.eval_bytes").starts_with(kFinetuneSource);
  if (run.data.train_rows != nullptr && is_users) {
    log.warning(
        "train.eval_bytes: not used: it says how much text of a decoder is read; train.eval_rows "
        "limits samples");
  }
  if (!config.data.val.empty() && config.data.val_fraction > 0) {
    log.info(
        "[data] the last {:g} % of the training data are left out, for training and for validation "
        "(data.val_fraction beside data.val)",
        100 * config.data.val_fraction);
  }
  if (run.data.train_rows == nullptr && !is_given("data.chat.template"))
    tell_text_of(
        files, config, is_json_name,
        "with its braces and keys: data.chat.template=auto reads conversations, =none says "
        "that text is meant",
        log);
  const bool says_text = is_given("data.chat.template") && !has_conversations(config);
  if (run.data.train_rows == nullptr && !says_text)
    tell_text_of(files, config, is_table_name,
                 "with its names and separators: conversations are read from JSON alone, and "
                 "data.chat.template=none says that text is meant",
                 log);
}

}  // namespace

OpenRun open_run(Files& files, LoadedConfig loaded, const OpenRunOptions& options) {
  OpenRun run{.loaded = std::move(loaded), .data = {}, .spec = {}};
  const RunConfig& config = run.loaded.config;
  run.spec = model_from_config(files, config);
  expect_data_there(files, config);
  if (!is_written(run.loaded.source, "data.fields.negatives"))
    run.loaded.source["data.fields.negatives"] = "derived";
  settle_negatives(files, run.loaded.config, run.spec);
  settle_pictures(files, run.loaded, run.spec, options.data.log);
  if (!config.model.path.empty())
    tell_unknown_keys(files, config.model.path, options.data.log, options.unknown_keys);
  const auto whole = [](const std::string& path) {
    return (std::filesystem::path(path) / "").lexically_normal();
  };
  const std::string& tokenizer = config.data.tokenizer;
  const bool is_model_s = whole(tokenizer) == whole(config.model.path) ||
                          whole(parent_path(tokenizer)) == whole(config.model.path);
  if (!is_model_s) tell_beside_tokenizer(files, tokenizer, options.data.log, options.unknown_keys);
  if (!config.lora.adapter.empty()) {
    const PeftAdapter adapter = read_peft_adapter(files, config.lora.adapter, run.spec);
    expect_base(files, config.model.path, run.spec, adapter, options.data.log);
  }
  check_positions(config, run.spec, options.resumes, options.data.log);
  expect_enough_samples(config, run.spec);
  tell_betas(config, options.data.log);
  tell_statistics(config, run.spec, options.data.log);
  const bool is_first = options.processes == nullptr || options.processes->rank() == 0;
  std::byte is_ready{};
  if (!is_first) options.processes->broadcast(&is_ready, 1, 0);
  run.data = open_run_data(files, config, run.spec, options.data);
  if (is_first && options.processes != nullptr) options.processes->broadcast(&is_ready, 1, 0);
  if (is_first) tell_of_data(files, run.loaded, run, options.data.log);
  options.fits_to_data ? fit_to_data(run.loaded, run.data)
                       : settle_length(run.loaded, run.data, is_first ? options.data.log : Log());
  expect_whole_samples(config, run.data);
  if (is_first) tell_unused(run.loaded, run.spec, run.data, options.data.log);
  if (is_first && run.data.train_rows != nullptr) {
    tell_constants(*run.data.train_rows, config.model.seq, options.data.log);
    tell_inner_padding(*run.data.train_rows, config.model.seq, run.spec, options.data.log);
  }
  run.spec = model_from_config(files, config);  // of the settled sequence
  return run;
}

void keep_what_resumes(Files& files, LoadedConfig& loaded, const Log& log) {
  keep_step_rows(files, loaded, log);
  keep_recorded(files, loaded);
}

}  // namespace octet
