#include "train/preference_data.h"

#include "base/error.h"
#include "data/preference_rows.h"
#include "data/row_plan.h"
#include "infer/model_texts.h"
#include "io/safetensors.h"
#include "train/run_setup.h"

namespace octet {
namespace {

// Name of the tensor of the source with this place among the references.
std::string tensor_of(size_t place, const PreferenceRows& rows) {
  return fmt::format("nll.{}.{:016x}", place, rows.identity());
}

// False where the file has none of these rows.
bool read_references(const Files& files, const Dataset& data, const std::string& path) {
  if (!files.exists(path)) return false;
  const auto reader = SafetensorsReader::open(files, path);
  for (size_t i = 0; i < data.references.size(); ++i) {
    const StoredTensor* tensor = reader.find(tensor_of(i, *data.references[i]));
    if (tensor == nullptr || tensor->stored != SafeDtype::f32 ||
        tensor->shape != Shape{data.references[i]->n_rows()})
      return false;
    std::vector<float> values(static_cast<size_t>(data.references[i]->n_rows()));
    reader.read(*tensor, std::as_writable_bytes(std::span(values)), 0);
    data.references[i]->set_reference(std::move(values));
  }
  return true;
}

// The sums over each row, in order.
std::vector<float> row_sums(TrainEngine& engine, const RunConfig& config,
                            const std::shared_ptr<PreferenceRows>& rows) {
  rows->set_reference(std::vector<float>(static_cast<size_t>(rows->n_rows())));  // any, not NaN
  RowOptions options = row_options(config);
  options.packing = Packing::none;
  options.buckets = 1;
  const SampleEval all(rows, options);
  std::vector<float> nll(static_cast<size_t>(rows->n_rows()));
  for (const SampleMetric& metric : engine.sample_metrics(all)) {
    const bool is_chosen = metric.name.ends_with("chosen_nll");
    if (!is_chosen && !metric.name.ends_with("rejected_nll")) continue;
    CHECK(std::ssize(metric.samples) == rows->n_samples());
    for (size_t i = 0; i < metric.samples.size(); ++i)
      nll[2 * i + (is_chosen ? 0 : 1)] = static_cast<float>(metric.samples[i].sum);
  }
  return nll;
}

}  // namespace

Dataset open_preferences(const SpanRun& run, const RunInputs& inputs) {
  const Files& files = run.files;
  const RunConfig& config = run.config;
  const ModelSpec& spec = run.spec;
  const Log& log = run.log;
  const auto refuse = [](const char* key, const char* expected, const std::string& got) {
    throw Error(ErrorCode::invalid_argument, "{}: expected {} with pairs of answers, got {}", key,
                expected, got);
  };
  for (const WeightedLoss& loss : run_losses(config, spec)) {
    if (!find_loss(loss.name)->compares_answers)
      refuse("train.loss", "losses of two answers alone", loss.name);
  }
  if (config.data.pack) refuse("data.pack", "false", "true");
  if (config.data.buckets != 1) refuse("data.buckets", "1", fmt::to_string(config.data.buckets));
  if (!config.data.train_weights.empty()) refuse("data.train.weight", "none", "weights");
  if (!has_conversations(config)) refuse("data.chat.template", "a template, or auto", "none");
  if (config.model.path.empty() && inputs.find("reference_nll") != nullptr)
    refuse("model.path", "a model, whose start is the reference,", "none");
  const std::unique_ptr<Tokenizer> tokenizer = run_tokenizer(files, config, spec, log);
  const ChatConfig& chat = config.data.chat;
  ChatEncoder encoder(*tokenizer, find_chat_templates(files, *tokenizer, chat_query(config)),
                      config.data.text_end ? TextEnd::eos : TextEnd::none);
  encoder.refuse_split_tokens(
      split_tokens(files, {config.model.path, chat.chat_template}, *tokenizer));
  std::vector<std::shared_ptr<PreferenceRows>> sources;
  Dataset data = split_rows(config, [&](const std::vector<std::string>& paths) {
    PreferenceData read =
        read_preferences(files, encoder,
                         {.chat = {.paths = paths, .fields = chat},
                          .seq = config.model.seq,
                          .too_long = config.data.too_long,
                          .has_reference = inputs.find("reference_nll") != nullptr});
    log_report(read.report, log);
    tell_unread_names(chat, read.report, log);
    sources.push_back(read.rows);
    return read.rows;
  });
  for (const auto& source : sources) {
    if (source->has_reference()) data.references.push_back(source);
  }
  return data;
}

ReferenceFrom set_references(const ReferenceRun& run, const Dataset& data,
                             const std::string& file) {
  if (data.references.empty()) return ReferenceFrom::nowhere;
  if (!file.empty() && read_references(run.files, data, file)) return ReferenceFrom::file;
  std::vector<std::vector<float>> all;
  for (const auto& rows : data.references) all.push_back(row_sums(run.engine, run.config, rows));
  for (size_t i = 0; i < all.size(); ++i) data.references[i]->set_reference(std::move(all[i]));
  return ReferenceFrom::weights;
}

void write_references(Files& files, const Dataset& data, const std::string& file) {
  std::vector<TensorSource> tensors;
  for (size_t i = 0; i < data.references.size(); ++i) {
    const PreferenceRows& rows = *data.references[i];
    tensors.push_back(span_source(tensor_decl(tensor_of(i, rows), Dtype::f32, {rows.n_rows()}),
                                  std::as_bytes(std::span(rows.reference()))));
  }
  write_atomically(files, file, [&](FileWriter& out) { write_safetensors(out, tensors); });
}

}  // namespace octet
