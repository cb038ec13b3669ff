// The data of a run as its configuration names it.
#include <span>

#include "base/error.h"
#include "data/dataset.h"
#include "text/tokenizer.h"
#include "train/data_checks.h"
#include "train/data_entries.h"
#include "train/row_data.h"
#include "train/run_inputs.h"
#include "train/run_setup.h"
#include "train/source_texts.h"
#include "train/text_rows.h"

namespace octet {
namespace {

TokenWidth shard_width(int64_t bytes) {
  CHECK(bytes == 0 || bytes == 2 || bytes == 4);
  return bytes == 0 ? TokenWidth::infer : bytes == 2 ? TokenWidth::u16 : TokenWidth::u32;
}

// Warns if texts of this tokenizer begin with its BOS, as the model has learnt, and these do not.
void warn_without_bos(const ChatData& data, const Tokenizer& tokenizer, const Log& log) {
  const std::vector<int32_t> prefix = tokenizer.prefix();
  if (prefix.empty() || prefix.front() != tokenizer.bos()) return;
  int64_t n_without = 0;
  for (const ChatSample& sample : data.samples) {
    int32_t first = 0;
    uint8_t start = 0;
    data.source->read(sample.first, std::span(&first, 1), std::span(&start, 1));
    n_without += first != prefix.front() ? 1 : 0;
  }
  if (n_without == 0) return;
  log.warning(
      "[data] {} of {} samples begin without the token {}, which the tokenizer puts before a text: "
      "the chat template ({}) does not write it",
      n_without, data.samples.size(), prefix.front(), data.report.template_name);
}

// Options of a text, and of what of it is held out.
DatasetOptions text_options(const RunConfig& config, int64_t vocab, const Log& log) {
  DatasetOptions options;
  options.train = config.data.train;
  options.val = config.data.val;
  options.val_fraction = config.data.val_fraction;
  const bool keeps_whole =
      has_whole_documents(config) || row_documents(config) == RowDocuments::isolated;
  options.hold_out = keeps_whole ? HoldOut::documents : HoldOut::tokens;
  options.document_separator = config.data.document_separator;
  options.shards.width = shard_width(config.data.token_bytes);
  options.shards.vocab = vocab;
  options.log = log;
  return options;
}

struct HowToRead {
  const Tokenizer& tokenizer;
  const DatasetOptions& text;
  const RunDataOptions& run;
};

std::vector<DataEntry> open_entries(Files& files, const RunConfig& config,
                                    std::vector<DataEntry> entries, const HowToRead& how) {
  ChatReport all;
  for (DataEntry& entry : entries) {
    if (entry.is_chat) {
      entry.chat = read_run_chat(files, config, how.tokenizer, entry.paths, how.run.threads);
      log_report(entry.chat.report, how.run.log);
      add_report(entry.chat.report, all);
      warn_without_bos(entry.chat, how.tokenizer, how.run.log);
      entry.stream = TokenStream({entry.chat.source});
    } else {
      DatasetOptions text = how.text;
      text.train = entry.paths;
      text.val.clear();
      text.val_fraction = 0;
      entry.stream = open_dataset(files, text, how.tokenizer).train;
    }
  }
  if (all.n_files > 0) tell_unread_names(config.data.chat, all, how.run.log);
  return entries;
}

std::vector<DataEntry> open_train_entries(Files& files, const RunConfig& config,
                                          const HowToRead& how) {
  return open_entries(files, config,
                      find_entries(files, config, config.data.train, config.data.train_weights),
                      how);
}

Dataset open_in_entries(Files& files, const RunConfig& config, const HowToRead& how) {
  Dataset dataset;
  std::vector<DataEntry> train = open_train_entries(files, config, how),
                         val = open_entries(files, config,
                                            find_entries(files, config, config.data.val), how);
  for (const auto* entries : {&train, &val}) {
    for (const DataEntry& entry : *entries)
      dataset.n_sources += entry.is_chat ? entry.chat.report.n_files : 1;
  }
  for (DataEntry& entry : train) {
    const int64_t end = entry.stream.n_tokens();
    const int64_t cut = held_out_start(entry, config.data.val_fraction, how.text.hold_out);
    if (config.data.val.empty()) val.push_back({.stream = entry.stream.slice(cut, end)});
    entry.stream = entry.stream.slice(0, cut);
  }
  dataset.train = join_entries(train);
  dataset.val = join_entries(val);
  return dataset;
}

}  // namespace

std::vector<DataEntry> open_run_entries(Files& files, const RunConfig& config,
                                        const Tokenizer& tokenizer, const RunDataOptions& options) {
  const DatasetOptions text = text_options(config, tokenizer.vocab_size(), options.log);
  return open_train_entries(files, config, {tokenizer, text, options});
}

std::unique_ptr<Tokenizer> run_tokenizer(const Files& files, const RunConfig& config,
                                         const ModelSpec& spec, const Log& log) {
  std::vector<std::string> paths = config.data.train;
  paths.insert(paths.end(), config.data.val.begin(), config.data.val.end());
  std::unique_ptr<Tokenizer> tokenizer =
      data_tokenizer(files, config.data.tokenizer, paths, spec.vocab, log);
  if (tokenizer->vocab_size() > spec.vocab) {
    throw Error(ErrorCode::invalid_argument,
                "model.vocab: expected at least the tokenizer's {}, got {}",
                tokenizer->vocab_size(), spec.vocab);
  }
  if (!config.model.path.empty() && tokenizer->vocab_size() < spec.vocab) {
    log.info("[data] the model has {} embeddings, the tokenizer {} tokens", spec.vocab,
             tokenizer->vocab_size());
  }
  return tokenizer;
}

Dataset open_run_data(Files& files, const RunConfig& config, const ModelSpec& spec,
                      const RunDataOptions& run_options) {
  if (auto rows = open_row_data(files, config, spec, run_options.log, run_options.use))
    return *std::move(rows);
  const RunInputs inputs(config, spec);
  const bool leaves_out_spans = reads_sources(inputs);
  if (config.train.eval_rows > 0 && !inputs.hides_tokens && !leaves_out_spans) {
    throw Error(ErrorCode::invalid_argument,
                "train.eval_rows: expected 0 for text of a decoder, of which train.eval_bytes says "
                "how much is read, got {}",
                config.train.eval_rows);
  }
  const std::unique_ptr<Tokenizer> tokenizer = run_tokenizer(files, config, spec, run_options.log);
  DatasetOptions options = text_options(config, spec.vocab, run_options.log);
  std::optional<TokenCache> cache;
  if (const auto how = token_cache_options(config, config.data.tokenizer,
                                           config.data.document_separator, run_options)) {
    options.cache = &cache.emplace(files, *tokenizer, *how);
  }
  const bool has_entries = has_conversations(config) || !config.data.train_weights.empty();
  Dataset text = has_entries && !inputs.hides_tokens && !leaves_out_spans
                     ? open_in_entries(files, config, {*tokenizer, options, run_options})
                     : open_dataset(files, options, *tokenizer);
  check_known(text.train, *tokenizer, run_options.log);
  if (leaves_out_spans) return with_spans_left_out(text, config, spec, *tokenizer);
  return inputs.hides_tokens ? hide_tokens(text, config, inputs, *tokenizer) : text;
}

}  // namespace octet
