#include "train/picture_texts.h"

#include <algorithm>

#include "base/error.h"
#include "base/named_enum.h"
#include "data/picture_rows.h"
#include "infer/image_transforms.h"
#include "infer/picture_prompt.h"
#include "train/data_entries.h"
#include "train/run_setup.h"

namespace octet {

bool reads_pictures(const Files& files, const RunConfig& config, const ModelSpec& spec) {
  if (!model_def(spec.kind).sees_pictures || !has_conversations(config)) return false;
  const auto is_chat = [&](const std::string& path) { return holds_conversations(files, path); };
  const bool is_any = std::ranges::any_of(config.data.train, is_chat);
  for (const auto* paths : {&config.data.train, &config.data.val}) {
    const auto other = std::ranges::find_if_not(*paths, is_chat);
    if (!is_any || other == paths->end()) continue;
    throw Error(ErrorCode::invalid_argument,
                "data.train: expected conversations alone for kind {}, got '{}' beside them",
                model_def(spec.kind).name, *other);
  }
  return is_any;
}

void settle_pictures(const Files& files, LoadedConfig& loaded, const ModelSpec& spec,
                     const Log& log) {
  RunConfig& config = loaded.config;
  const ModelDef& def = model_def(spec.kind);
  if (!(def.sees_pictures || def.reads_images) || config.model.path.empty()) return;
  if (!def.sees_pictures && !image_processor_file(files, config.model.path)) return;
  ModelSource source;
  source.folder = config.model.path;
  source.spec = spec;
  const auto is_open = [&](const char* key) { return !is_written(loaded.source, key); };
  ImagesConfig said = evaluation_images(files, source, log);
  ImagesConfig& images = config.data.images;
  const auto take = [&](const char* key, auto ImagesConfig::*field) {
    if (!is_open(key)) return;
    images.*field = std::move(said.*field);
    loaded.source[key] = "derived";
  };
  take("data.images.size", &ImagesConfig::size);
  take("data.images.stretch", &ImagesConfig::stretch);
  take("data.images.filter", &ImagesConfig::filter);
  take("data.images.mean", &ImagesConfig::mean);
  take("data.images.std", &ImagesConfig::std_dev);
}

PictureTexts::PictureTexts(const Files& files, const RunConfig& config, const ModelSpec& spec,
                           const RunInputs& inputs, const Log& log)
    : files_(files),
      config_(config),
      spec_(spec),
      inputs_(inputs),
      log_(log),
      tokenizer_(run_tokenizer(files, config, spec, log)) {
  const auto refuse = [](const char* key, const char* expected, const std::string& got) {
    throw Error(ErrorCode::invalid_argument,
                "{}: expected {} where conversations have pictures: a row holds one, got {}", key,
                expected, got);
  };
  const DataConfig& data = config.data;
  if (data.pack) refuse("data.pack", "false", "true");
  if (data.buckets > 1) refuse("data.buckets", "1", fmt::to_string(data.buckets));
  if (!data.train_weights.empty()) refuse("data.train.weight", "none", "weights");
  if (data.document_boundaries != DocumentBoundaries::ignore)
    refuse("data.document_boundaries", "ignore", std::string(enum_name(data.document_boundaries)));
}

std::shared_ptr<const RowSource> PictureTexts::open(const std::vector<std::string>& paths) const {
  RunConfig config = config_;
  config.data.chat.image_mark = image_mark(*tokenizer_, spec_);
  const ChatData chat = read_run_chat(files_, config, *tokenizer_, paths, 0);
  log_report(chat.report, log_);
  tell_unread_names(config.data.chat, chat.report, log_);
  PictureRowsOptions options = picture_options(spec_, config.data.images, *tokenizer_);
  options.labels = *inputs_.find("labels");
  options.seq = config.model.seq;
  options.too_long = config.data.too_long;
  return picture_rows(files_, chat, options, log_);
}

}  // namespace octet
