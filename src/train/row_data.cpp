#include "train/row_data.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/few.h"
#include "base/named_enum.h"
#include "data/images/image_rows.h"
#include "data/text_samples.h"
#include "infer/array_rows.h"
#include "infer/image_transforms.h"
#include "train/picture_texts.h"
#include "train/preference_data.h"
#include "train/run_inputs.h"
#include "train/run_setup.h"
#include "train/source_texts.h"
#include "train/text_rows.h"

namespace octet {
namespace {

// Keys of text that such data has no meaning for.
void check_keys(const RunConfig& config) {
  const auto refuse = [](const char* key, const char* got) {
    throw Error(ErrorCode::invalid_argument,
                "{}: expected none with arrays, pictures or an encoder's text, got {}", key, got);
  };
  if (!config.data.train_weights.empty()) refuse("data.train.weight", "weights");
  if (has_conversations(config)) refuse("data.chat.template", "a template");
  if (config.data.pack) refuse("data.pack", "true");
}

// Rows of several lengths are conversations, or pairs of texts that are read here.
void check_buckets(const RunConfig& config, const RunInputs& inputs) {
  const DataConfig& data = config.data;
  const bool are_pairs = reads_sources(inputs) && !are_arrays(data.train) && data.spans.share == 0;
  if (data.buckets == 1 || has_conversations(config) || are_pairs) return;
  throw Error(ErrorCode::invalid_argument,
              "data.buckets: expected 1 but for conversations (data.chat.template) and pairs of "
              "texts, got {}",
              data.buckets);
}

}  // namespace

Dataset split_rows(const RunConfig& config, const RowOpener& open) {
  Dataset data;
  data.n_sources = std::ssize(config.data.train) + std::ssize(config.data.val);
  data.train_rows = open(config.data.train);
  if (!config.data.val.empty()) data.val_rows = open(config.data.val);
  const int64_t n = data.train_rows->n_samples();
  const int64_t n_trained = first_held_out(n, config.data.val_fraction);
  if (n_trained == n) return data;
  if (config.data.val.empty()) data.val_rows = slice_rows(data.train_rows, n_trained, n);
  data.train_rows = slice_rows(data.train_rows, 0, n_trained);
  return data;
}

namespace {

RowOpener array_opener(const Files& files, const RunConfig& config, const RunInputs& inputs) {
  return [&](const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      if (path.ends_with(kArrayFiles)) continue;
      throw Error(ErrorCode::bad_data, "[data] '{}': expected {} as beside it, got other data",
                  path, kArrayFiles);
    }
    return array_rows(files, paths,
                      {.inputs = inputs.all,
                       .made = completed_inputs(),
                       .seq = config.model.seq,
                       .rows_per_sample = inputs.rows_per_sample});
  };
}

// Tells where the folder that a run starts from says other pictures than data.images.
void tell_other_pictures(const Files& files, const RunConfig& config, const ModelSpec& spec,
                         const Log& log) {
  if (config.model.path.empty()) return;
  const auto file = image_processor_file(files, config.model.path);
  if (!file) return;
  ModelSource source;
  source.folder = config.model.path;
  source.spec = spec;
  const auto text = [&](ImageTransforms how) {
    for (std::vector<float>* values : {&how.mean, &how.std_dev}) {
      if (values->size() == 1) values->resize(static_cast<size_t>(spec.channels), values->front());
    }
    return fmt::format("mean [{}], std [{}], size {}, stretch {}, filter {}",
                       fmt::join(how.mean, ", "), fmt::join(how.std_dev, ", "),
                       how.resize == 0 ? spec.image_size : how.resize, how.stretches,
                       enum_name(how.filter));
  };
  try {
    const std::string own = text(transforms_of(config.data.images)),
                      said = text(evaluation_transforms(files, source));
    if (own != said)
      log.warning("data.images: {} says {}; this run has {}", file->where, said, own);
  } catch (const Error&) {  // an evaluation of the folder says what is not understood
  }
}

// A folder of such folders is no folder of classes.
void tell_parts(const std::set<std::string>& classes, const Log& log) {
  constexpr std::string_view kParts[] = {"train",      "training", "val",  "valid",
                                         "validation", "dev",      "eval", "test"};
  const auto is_part = [&](const std::string& name) {
    return std::ranges::count(kParts, name) > 0;
  };
  if (classes.size() < 2 || !std::ranges::all_of(classes, is_part)) return;
  log.warning(
      "[images] the classes are {}: where these are parts of the data, let data.train and data.val "
      "name them",
      fmt::join(classes, ", "));
}

// All classes of data.train, of which a run's data.val has some.
std::vector<std::string> picture_classes(const Files& files, const RunConfig& config,
                                         const ModelSpec& spec, const Log& log, DataUse use) {
  std::set<std::string> found;
  const auto add = [&](const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      for (std::string& name : class_folders(files, path)) found.insert(std::move(name));
    }
  };
  add(config.data.train);
  if (use == DataUse::evaluation) add(config.data.val);
  if (found.empty()) return {};
  tell_parts(found, log);
  return number_classes(
      {found.begin(), found.end()},
      {.known = names_of_model(files, config, spec), .config = config, .use = use, .log = log});
}

void check_one_class(const RunConfig& config, const ModelSpec& spec) {
  if (spec.head != ModelHead::multi_label) return;
  throw Error(ErrorCode::bad_data,
              "[data] '{}': expected {} files with the targets of each picture for model.head: "
              "multi_label{}, got folders, where a picture has one class (model.head: classes)",
              config.data.train.front(), kArrayFiles,
              config.model.head == ModelHead::text ? " (the problem_type of its config.json)" : "");
}

Dataset open_pictures(const RunInputs& inputs, const RunConfig& config,
                      const ImageSourceOptions& options, const Files& files) {
  std::shared_ptr<const ImageSource> first;  // of the training data
  Dataset data = split_rows(config, [&](const std::vector<std::string>& paths) {
    std::vector<std::shared_ptr<const ImageSource>> sources;
    sources.reserve(paths.size());
    for (const std::string& path : paths) sources.push_back(open_images(files, path, options));
    const auto images = join_images(std::move(sources));
    if (first == nullptr) first = images;
    join_images({first, images});
    return image_rows(images, inputs.brought(), transforms_of(config.data.images), options.log);
  });
  data.label_names = first->classes();
  return data;
}

// Names are as many as the classifier has classes; none where folders without pictures are more.
void fit_names(std::vector<std::string>& names, const ModelSpec& spec) {
  if (std::ssize(names) > spec.classes) names.clear();
  for (int64_t i = std::ssize(names); !names.empty() && i < spec.classes; ++i)
    names.push_back(fmt::format("{}{}", kUnnamedClass, i));
}

// The samples of one evaluation.
std::shared_ptr<const RowSource> evaluated(const Dataset& data, const RunConfig& config) {
  return first_rows(data.val_rows, config.train.eval_rows);
}

}  // namespace

std::vector<std::string> number_classes(const std::vector<std::string>& found,
                                        const ClassNumbering& how) {
  const auto& [known, config, use, log] = how;
  const std::string& folder = config.model.path;
  std::vector<std::string> others;
  for (const std::string& name : found) {
    const auto n = std::ranges::count(known, name);
    if (n == 0) others.push_back(name);
    if (n < 2) continue;
    throw Error(ErrorCode::bad_data, "[data] expected one class '{}' of {}, got {} of that name",
                name, folder, n);
  }
  if (others.empty()) return known;
  const bool are_named = std::ranges::any_of(
      known, [](const std::string& name) { return !name.starts_with(kUnnamedClass); });
  const bool is_new = use == DataUse::training && config.model.head != ModelHead::text;
  if (are_named && !is_new) {
    throw Error(
        ErrorCode::bad_data, "[data] expected classes of {} ({}), got {}{}", folder,
        first_few(known), first_few(others),
        use == DataUse::training ? "; model.head: classes asks for classes of its own" : "");
  }
  if (are_named) {
    log.warning("[data] {} is no class of {} ({}): labels are numbered in their own order",
                first_few(others), folder, first_few(known));
  } else if (use == DataUse::evaluation || (!known.empty() && !is_new)) {
    log.warning("[data] {} has no names of classes: 0 to {} are {}", folder, found.size() - 1,
                first_few(found));
  }
  const int64_t n = config.model.classes;
  if (use == DataUse::training && std::ssize(found) < n) {
    log.warning(
        "[data] {} of {} classes (model.classes) are in the data: {} to {} are of no sample",
        found.size(), n, found.size(), n - 1);
  }
  return found;
}

std::optional<Dataset> open_row_data(const Files& files, const RunConfig& config,
                                     const ModelSpec& spec, const Log& log, DataUse use) {
  if (config.data.train.empty())
    throw Error(ErrorCode::invalid_argument, "data.train: expected files or folders, got none");
  const RunInputs inputs(config, spec);
  check_buckets(config, inputs);
  if (reads_pictures(files, config, spec)) {
    const PictureTexts texts(files, config, spec, inputs, log);
    return split_rows(config, [&](const auto& paths) { return texts.open(paths); });
  }
  const std::vector<std::string> names = inputs.names();
  const auto reads = [&](std::string_view name) {
    return std::ranges::find(names, name) != names.end();
  };
  const bool has_arrays = are_arrays(config.data.train) || are_arrays(config.data.val);
  const InputSpec* labels = inputs.find("labels");
  const bool is_text = reads("tokens") && labels != nullptr && labels->per == Per::token &&
                       std::ranges::all_of(names, [](const auto& name) {
                         return name == "tokens" || name == "labels";
                       });
  if (inputs.compares_answers && !has_arrays && model_def(spec.kind).writes_text)
    return open_preferences({files, config, spec, log}, inputs);
  if (!is_text || has_arrays || inputs.hides_tokens) check_keys(config);
  if (is_text && !has_arrays) return std::nullopt;
  if (has_arrays) return split_rows(config, array_opener(files, config, inputs));
  if (!reads("tokens")) {
    tell_other_pictures(files, config, spec, log);
    check_one_class(config, spec);
    Dataset data = open_pictures(
        inputs, config, {.classes = picture_classes(files, config, spec, log, use), .log = log},
        files);
    fit_names(data.label_names, spec);
    return data;
  }
  if (reads_sources(inputs)) {
    if (config.data.spans.share > 0) return std::nullopt;  // text
    const SourceTexts texts(files, config, spec, inputs, log);
    return split_rows(config, [&](const auto& paths) { return texts.open(paths); });
  }
  if (text_label_of(inputs)) {
    LabelledTexts texts(files, config, spec, inputs, {log, use});
    Dataset data = split_rows(config, [&](const auto& paths) { return texts.open(paths); });
    data.label_names = texts.label_names();
    return data;
  }
  if (reads_spans(inputs)) {
    return split_rows(config, [&](const auto& paths) {
      return open_spans({files, config, spec, log}, inputs, paths);
    });
  }
  throw Error(
      ErrorCode::bad_data,
      "[data] '{}': expected {} files with arrays {}, which the model reads, got other data",
      config.data.train.front(), kArrayFiles, fmt::join(names, ", "));
}

std::string amount_text(const Dataset& data) {
  if (data.train_rows == nullptr) {
    return fmt::format("{} training and {} validation tokens", data.train.n_tokens(),
                       data.val.n_tokens());
  }
  return fmt::format("{} training and {} validation samples", data.train_rows->n_samples(),
                     data.val_rows == nullptr ? 0 : data.val_rows->n_samples());
}

std::string EvalAmount::text() const {
  return is_all() ? fmt::format("all {} {}", n_all, unit)
                  : fmt::format("{} of {} {}{}", n, n_all, unit, n < n_all ? "" : ", some in part");
}

void warn_without_rows(const Dataset& data, const RunConfig& config, const Log& log) {
  if (make_eval_rows(data.val, config, data.val.n_tokens(), {})->n_rows() > 0) {
    log.warning(
        "[data] {} bytes of the validation data hold no two tokens: there is no validation loss "
        "(train.eval_bytes)",
        config.train.eval_bytes);
    return;
  }
  log.warning(
      "[data] no document for validation fits into a row of {} tokens with a token to train on: "
      "there is no validation loss (model.seq, data.too_long)",
      config.model.seq);
}

void tell_amount(const EvalAmount& amount, const Log& log) {
  if (amount.is_all()) return;
  log.info("[data] an evaluation reads {} of the validation data ({})", amount.text(), amount.key);
}

EvalAmount amount_of_documents(const TokenStream& text, const RowOptions& options,
                               int64_t max_tokens) {
  const EvaluatedDocuments documents = evaluated_documents(text, options, max_tokens);
  return {.n = documents.n,
          .n_all = documents.n_all,
          .unit = "documents",
          .key = "train.eval_bytes, data.too_long",
          .has_parts = !documents.is_all};
}

EvalAmount eval_amount(const Dataset& data, const RunConfig& config, const ModelSpec& spec) {
  if (data.train_rows != nullptr) {
    if (data.val_rows == nullptr) return {};
    return {.n = evaluated(data, config)->n_samples(), .n_all = data.val_rows->n_samples()};
  }
  const int64_t n_tokens = data.val.n_tokens(), n_read = eval_tokens(config, spec);
  if (!has_whole_documents(config)) {
    return {.n = std::min(n_tokens, n_read),
            .n_all = n_tokens,
            .unit = "tokens",
            .key = "train.eval_bytes"};
  }
  return amount_of_documents(data.val, row_options(config), n_read);
}

RowLoader make_loader(const Dataset& data, const RunConfig& config) {
  RowOptions options = row_options(config);
  if (data.train_rows == nullptr) return {data.train, options};
  if (config.data.buckets > 1 && data.train_rows->source_seq() > 0) {
    options.packing = Packing::single;
    options.buckets = config.data.buckets;
    options.step_batches = config.train.accumulate * config.parallel.ranks;
  }
  return {data.train_rows, options};
}

std::vector<int64_t> shorter_lengths(const RowLoader& loader, int64_t seq) {
  std::vector<int64_t> lengths = loader.lengths();
  std::erase_if(lengths, [&](int64_t length) { return length >= seq; });
  return lengths;
}

std::unique_ptr<EvalRows> make_eval_rows(const Dataset& data, const RunConfig& config,
                                         const ModelSpec& spec,
                                         const std::vector<int64_t>& shorter) {
  if (data.train_rows == nullptr)
    return make_eval_rows(data.val, config, eval_tokens(config, spec), shorter);
  return std::make_unique<SampleEval>(evaluated(data, config), row_options(config));
}

bool has_validation(const Dataset& data) {
  return data.train_rows == nullptr ? data.val.n_tokens() > 1 : data.val_rows != nullptr;
}

uint64_t validation_identity(const Dataset& data, const RunConfig& config, const ModelSpec& spec) {
  if (data.train_rows == nullptr) {
    const int64_t n_tokens = std::min(data.val.n_tokens(), eval_tokens(config, spec));
    return data.val.slice(0, n_tokens).identity();
  }
  if (data.val_rows == nullptr) return 0;
  return evaluated(data, config)->identity();
}

}  // namespace octet
