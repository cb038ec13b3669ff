#include "train/model_rows.h"

#include <algorithm>

#include "infer/image_transforms.h"
#include "train/run_setup.h"

namespace octet {
namespace {

RunConfig config_of(const Files& files, const ModelRowsQuery& query, const Log& log) {
  const ModelSource& source = query.source;
  RunConfig config = source.run.value_or(RunConfig());
  config.model.path = source.folder;  // its config.json names the classes
  config.model.seq = query.seq;
  if (query.stride >= 0) config.data.stride = query.stride;
  config.train.loss.clear();
  config.data.train = query.calib;
  config.data.train_weights.clear();
  config.data.val = query.eval;
  config.data.val_fraction = 0;
  if (model_def(source.spec.kind).reads_text) {
    config.data.tokenizer = source.tokenizer;
  } else {
    config.data.images = evaluation_images(files, source, log);
  }
  return config;
}

}  // namespace

ModelSpec with_loss(const ModelSpec& spec) {
  const auto& heads = model_def(spec.kind).heads;
  const bool has_embeddings =
      std::ranges::find(heads, ModelHead::embeddings, &HeadDef::head) != heads.end();
  ModelSpec result = spec;
  if (has_embeddings && head_of(spec).head == ModelHead::features)
    result.head = ModelHead::embeddings;
  return result;
}

Dataset open_model_rows(Files& files, const ModelRowsQuery& query, const Log& log) {
  const RunDataOptions options{.log = log, .keeps_tokens = query.source.run.has_value()};
  return open_run_data(files, config_of(files, query, log), with_loss(query.source.spec), options);
}

}  // namespace octet
