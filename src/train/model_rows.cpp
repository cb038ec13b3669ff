#include "train/model_rows.h"

#include <algorithm>

#include "base/error.h"
#include "infer/image_transforms.h"
#include "infer/sentence_folder.h"
#include "train/data_checks.h"
#include "train/picture_texts.h"
#include "train/row_data.h"
#include "train/run_setup.h"
#include "train/text_rows.h"

namespace octet {
namespace {

RunConfig config_of(const Files& files, const ModelRowsQuery& query, const ModelSpec& spec,
                    const Log& log) {
  const ModelSource& source = query.source;
  RunConfig config = source.run.value_or(RunConfig());
  config.model.path = source.folder;  // its config.json names the classes
  config.model.seq = query.seq;
  if (query.stride >= 0) config.data.stride = query.stride;
  config.train.loss.clear();
  config.data.train = query.calib;
  config.data.train_weights.clear();
  config.data.targets.clear(), config.data.val_targets.clear();
  config.data.val = query.eval;
  config.data.val_fraction = 0;
  const ModelDef& def = model_def(source.spec.kind);
  if (def.reads_text) {
    config.data.tokenizer = source.tokenizer;
    config.model.images = source.spec.images;
    // JSON files are conversations, also for a folder; arrays are none, also for a run.
    const bool has_arrays = are_arrays(query.eval.empty() ? query.calib : query.eval);
    if (def.sees_pictures && has_arrays) {
      config.data.chat.chat_template = "none";
    } else if (def.sees_pictures && !has_conversations(config)) {
      config.data.chat.chat_template = "auto";
    }
    if (def.sees_pictures && !source.run) config.data.too_long = TooLong::drop;  // which is told
  }
  if (def.sees_pictures || !def.reads_text)
    config.data.images = evaluation_images(files, source, log);
  if (!query.reads_negatives) config.data.fields.negatives.clear();
  settle_negatives(files, config, spec);
  return config;
}

// Labels must be the model's.
Dataset open_evaluated(Files& files, const RunConfig& config, const ModelSource& source,
                       const ModelSpec& spec, const Log& log) {
  Dataset data = open_run_data(
      files, config, spec,
      {.log = log, .keeps_tokens = source.run.has_value(), .use = DataUse::evaluation});
  const auto& rows = data.val_rows != nullptr ? data.val_rows : data.train_rows;
  if (rows != nullptr) tell_inner_padding(*rows, config.model.seq, spec, log);
  return data;
}

}  // namespace

ModelSpec with_loss(const Files& files, const ModelSource& source) {
  const ModelSpec& spec = source.spec;
  const auto& heads = model_def(spec.kind).heads;
  const bool has_embeddings =
      std::ranges::find(heads, ModelHead::embeddings, &HeadDef::head) != heads.end();
  ModelSpec result = spec;
  if (!has_embeddings || head_of(spec).head != ModelHead::features) return result;
  result.head = ModelHead::embeddings;
  result.pooling = read_sentence_folder(files, source.folder).pooling;
  return result;
}

std::vector<WeightedLoss> row_losses(const ModelSpec& spec, int64_t rows_per_sample) {
  std::vector<WeightedLoss> losses = resolved_losses(spec, {});
  for (WeightedLoss& one : losses) {
    const LossDef& loss = *find_loss(one.name);
    one.options.negatives = loss.takes_negatives ? rows_per_sample - loss.rows_per_sample : 0;
  }
  return losses;
}

Dataset open_model_rows(Files& files, const ModelRowsQuery& query, const Log& log) {
  const ModelSpec spec = with_loss(files, query.source);
  Dataset data = open_evaluated(files, config_of(files, query, spec, log), query.source, spec, log);
  if (data.train_rows != nullptr || query.calib.empty()) return data;
  throw Error(ErrorCode::invalid_argument,
              "[data] '{}': expected rows that kind {} is evaluated on, got text (conversations of "
              "models that see pictures are JSON files)",
              query.calib.front(), model_def(spec.kind).name);
}

std::shared_ptr<const RowSource> held_out_rows(Files& files, const ModelSource& run, int64_t seq,
                                               const Log& log) {
  RunConfig config = *run.run;
  config.model.path = run.folder;  // its config.json names the classes
  config.model.seq = seq;
  config.train.loss.clear();
  auto rows = open_evaluated(files, config, run, with_loss(files, run), log).val_rows;
  if (rows != nullptr) return rows;
  throw Error(ErrorCode::invalid_argument,
              "--data: expected files, got none: '{}' has no validation data of its own",
              run.folder);
}

}  // namespace octet
