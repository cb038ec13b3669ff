#include "cli/eval_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/integer.h"
#include "cli/backend.h"
#include "cli/calib_option.h"
#include "cli/eval_flags.h"
#include "cli/model_flags.h"
#include "cli/progress.h"
#include "data/chat_dataset.h"
#include "data/row_plan.h"
#include "data/text_samples.h"
#include "infer/evaluate.h"
#include "infer/inference.h"
#include "infer/tasks/evaluations.h"
#include "train/row_data.h"

namespace octet {
namespace {

constexpr int64_t kSeqStep = 16;  // a window is no longer than a short text needs, up to this

int64_t seq_of(const ModelSource& source, const EvalTextFlags& flags) {
  if (flags.seq > 0) return flags.seq;
  return source.run ? source.seq : std::min(source.seq, kLongestWindow);
}

int64_t batch_of(const ModelSource& source, const EvalTextFlags& flags) {
  if (flags.batch > 0) return flags.batch;
  return source.run ? source.run->train.batch : kEvalBatch;
}

// True if training would read one of the paths as conversations: of a run of text, and of a folder,
// by names alone.
bool hold_conversations(const ModelSource& source, const std::vector<std::string>& paths) {
  const Files& files = posix_files();
  const bool is_of_chats = source.run && has_conversations(*source.run);
  return std::ranges::any_of(paths, [&](const std::string& path) {
    if (is_json_name(path)) return true;
    if (!files.exists(path) || (source.run && !is_of_chats)) return false;
    const bool is_folder = files.is_directory(path);
    const bool is_file = files.kind(path) == EntryKind::file;
    return (is_folder || (is_file && is_of_chats)) && holds_conversations(files, path);
  });
}

// Configuration of the run; of a folder the one that `octet train --model DIR --data` begins with.
RunConfig config_of(const ModelSource& source, const EvalTextFlags& flags) {
  RunConfig config = source.run.value_or(RunConfig());
  if (!source.run) config.model.path = source.folder;
  if (!config.data.sampling) config.data.sampling = WindowOrder::sequential;
  config.data.tokenizer = source.tokenizer;
  config.model.seq = seq_of(source, flags);
  config.train.batch = batch_of(source, flags);
  return config;
}

RunConfig conversation_config(const ModelSource& source, const EvalTextFlags& flags,
                              const std::vector<std::string>& paths) {
  RunConfig config = config_of(source, flags);
  if (!has_conversations(config)) {
    config.data.chat.chat_template = "auto";
    config.data.pack = true;
    config.data.document_boundaries = DocumentBoundaries::isolate;
    config.data.sampling = WindowOrder::sequential;
  }
  config.data.train = paths;
  config.data.train_weights.clear();
  config.data.val.clear();
  config.data.val_fraction = 0;
  config.data.buckets = 1;
  return config;
}

void refuse_text_flags(const EvalTextFlags& flags, std::string_view advice) {
  const char* flag = !flags.split_on.empty()   ? "--split-on"
                     : flags.max_documents > 0 ? "--max-documents"
                     : flags.ends_texts        ? "--text-end"
                                               : nullptr;
  if (flag == nullptr) return;
  throw Error(ErrorCode::invalid_argument, "{}: expected none with conversations{}", flag, advice);
}

[[noreturn]] void fail_without_text(const ModelSource& source) {
  throw Error(ErrorCode::bad_data,
              "--data: expected text, got none: '{}' has no validation text of its own",
              source.folder);
}

// Rows as the run's own evaluation has them, or of the files of `config`.
struct RowsQuery {
  RunConfig config;
  TokenStream stream;
  int64_t max_tokens = 0;
  std::vector<int64_t> shorter = {};  // lengths of rows beside model.seq
};
EvalText rows_of(const ModelSource& source, RowsQuery query, const EvalTextFlags& flags) {
  auto& [config, stream, max_tokens, shorter] = query;
  EvalText text{.task = {}, .stream = stream};
  if (has_whole_documents(config) && (flags.per_document || flags.per_row))
    config.data.pack = false;
  text.rows = make_eval_rows(stream, config, max_tokens, shorter);
  text.lengths = shorter;
  text.lengths.push_back(config.model.seq);
  text.boundaries = row_documents(config);
  text.batch = config.train.batch;
  if (shorter.empty()) text.batch = std::clamp<int64_t>(text.rows->n_rows(), 1, text.batch);
  if (!has_whole_documents(config)) {
    const int64_t n = stream.n_tokens();
    text.amount = {.n = std::min(n, max_tokens), .n_all = n, .unit = "tokens"};
    return text;
  }
  text.amount = amount_of_documents(stream, row_options(config), max_tokens);
  text.n_documents = text.amount.n;
  if (text.n_documents == 0) {
    throw Error(ErrorCode::bad_data,
                "[eval] '{}': expected a conversation of at most {} tokens with a token to score, "
                "got none (--seq)",
                source.folder, config.model.seq + 1);
  }
  return text;
}

int64_t fitting(int64_t n_tokens) {
  return std::max(ceil_div(n_tokens, kSeqStep), int64_t{1}) * kSeqStep;
}

bool wants_documents(const EvalTextFlags& flags) {
  return !flags.split_on.empty() || flags.max_documents > 0 || flags.per_document;
}

int64_t wanted_tokens(const EvalTextFlags& flags, int64_t otherwise) {
  if (flags.max_tokens < 0) return otherwise;
  return flags.max_tokens > 0 && flags.max_tokens < INT64_MAX ? flags.max_tokens + 1 : INT64_MAX;
}

// A text in windows, or its documents one by one.
EvalText plain_text(const ModelSource& source, TokenStream stream, const EvalTextFlags& flags) {
  EvalText text{.task = {}, .stream = std::move(stream)};
  const int64_t n = text.stream.n_tokens(), seq = seq_of(source, flags);
  if (source.run) text.boundaries = row_documents(*source.run);
  text.batch = batch_of(source, flags);
  const auto window = [&](int64_t longest) { return std::min(seq, fitting(longest)); };
  if (wants_documents(flags)) {
    text.documents =
        documents_of(text.stream, {.max_documents = flags.max_documents, .max_tokens = seq});
    text.amount = {.n_all = n, .unit = "tokens"};
    int64_t longest = 0;
    for (const auto& document : text.documents) {
      longest = std::max<int64_t>(longest, std::ssize(document));
      text.amount.n += std::ssize(document);
    }
    text.lengths = {window(longest)};
    text.n_documents = std::ssize(text.documents);
    text.batch = std::clamp<int64_t>(text.n_documents, 1, text.batch);
    return text;
  }
  const int64_t n_read = std::min(wanted_tokens(flags, n), n);
  text.lengths = {window(std::max<int64_t>(n_read - 1, 1))};
  const RowOptions rows{.seq = text.lengths.front(),
                        .boundaries = eval_boundaries(text.boundaries)};
  text.rows = std::make_unique<SampleEval>(text.stream, rows, n_read);
  text.batch = std::clamp<int64_t>(text.rows->n_rows(), 1, text.batch);
  text.amount = {.n = n_read, .n_all = n, .unit = "tokens"};
  return text;
}

EvalText own_text(const ModelSource& source, const EvalTextFlags& flags,
                  const RunDataOptions& options) {
  const RunConfig config = config_of(source, flags);
  expect_files_beside("--raw-text", flags.is_raw);
  if (has_whole_documents(config)) refuse_text_flags(flags, "");
  expect_files_beside("--text-end", flags.ends_texts);
  expect_files_beside("--split-on", flags.splits_own_data());
  const Dataset data = open_run_data(posix_files(), config, source.spec, options);
  if (data.val.n_tokens() < 2) fail_without_text(source);
  if (!has_whole_documents(config) && wants_documents(flags))
    return plain_text(source, data.val, flags);
  std::vector<int64_t> shorter;
  if (config.data.buckets > 1)
    shorter = shorter_lengths(make_loader(data, config), config.model.seq);
  const int64_t n_tokens = wanted_tokens(flags, eval_tokens(config, source.spec));
  return rows_of(source, {config, data.val, n_tokens, shorter}, flags);
}

EvalText conversations_of(const ModelSource& source, const TextTask& task,
                          const EvalTextFlags& flags, const RunDataOptions& options) {
  refuse_text_flags(flags, " (--raw-text: read as text)");
  expect_tokenizer(source);
  RunConfig config = conversation_config(source, flags, task.data);
  RunDataOptions how = options;
  how.keeps_tokens = source.run.has_value();
  const TokenStream stream = open_run_data(posix_files(), config, source.spec, how).train;
  // As training fits a row to the longest record, whose last token is a label alone.
  if (!source.run && flags.seq == 0) {
    const int64_t longest = find_pieces(stream, row_options(config)).longest - 1;
    config.model.seq = std::min(config.model.seq, fitting(longest));
  }
  return rows_of(source, {config, stream, wanted_tokens(flags, INT64_MAX)}, flags);
}

// Tokenized once where the model is a run, unless nothing ends its texts (data/dataset.h).
TokenStream named_stream(const ModelSource& source, const TextTask& task,
                         const EvalTextFlags& flags, const RunDataOptions& options) {
  const bool are_shards = are_token_shards(posix_files(), task.data);
  if (!are_shards) expect_tokenizer(source);
  if (flags.ends_texts) expect_text_ends(source.tokenizer, are_shards);
  if (flags.is_raw) expect_json(hold_conversations(source, task.data), task.data.front());
  ModelTextOptions text{.split_on = flags.split_on,
                        .end = flags.ends_texts ? DocumentEnd::eos : DocumentEnd::none};
  if (source.run)
    text.cached = token_cache_options(*source.run, source.tokenizer, flags.split_on, options);
  return open_model_text(source, task.data, options.log, text);
}

std::vector<NllSum> score_text(Inference& model, const EvalText& text) {
  const auto of_length = [&](int64_t length) -> BoundPlan& {
    return model.function(function::evaluate,
                          {.batch = text.batch, .seq = length, .documents = text.boundaries});
  };
  if (text.rows != nullptr) return row_nll(of_length, *text.rows, text.batch);
  const int64_t seq = text.lengths.front();
  return document_nll(of_length(seq), text.documents, {.batch = text.batch, .seq = seq});
}

// The table, and whose sum is not finite.
class TextResults {
 public:
  TextResults(const std::vector<ModelSource>& sources, const EvalTextFlags& flags)
      : flags_(flags), are_compared_(sources.size() > 1) {
    const auto is_other = [&](const ModelSource& source) {
      return source.weights != sources.front().weights;
    };
    has_models_ = std::ranges::any_of(sources, is_other);
    has_steps_ = std::ranges::any_of(
        sources, [](const ModelSource& source) { return checkpoint_step(source).has_value(); });
    table_.columns = {"task", "documents", "tokens", "nll", "perplexity", "recipe", "window"};
    if (has_models_) table_.columns.emplace_back("model");
    if (has_steps_) table_.columns.emplace_back("step");
    table_.columns.emplace_back("read");
    if (!are_compared_) return;
    table_.columns.emplace_back("difference");
    table_.columns.emplace_back("stderr_difference");
  }

  void add(const EvalText& text, const ModelSource& source, const std::vector<NllSum>& first,
           const std::vector<NllSum>& parts) {
    const bool is_each = flags_.per_document || (text.rows != nullptr && flags_.per_row);
    for (size_t i = 0; is_each && i < parts.size(); ++i)
      add_line({fmt::format("{} #{}", text.task, i), 1}, text, source, {&first[i], 1},
               {&parts[i], 1});
    add_line({text.task, text.n_documents}, text, source, first, parts);
  }

  const Table& table() const { return table_; }
  void expect_finite() const {
    if (nonfinite_.empty()) return;
    throw Error(ErrorCode::numerics, "[eval] expected a finite log-likelihood, got none of {}",
                nonfinite_);
  }

 private:
  struct Line {
    std::string task;
    int64_t n_documents = 1;
  };

  void add_line(const Line& line, const EvalText& text, const ModelSource& source,
                std::span<const NllSum> first, std::span<const NllSum> parts) {
    NllSum nll;
    for (const NllSum& part : parts) nll.add(part);
    std::vector<std::string> row =
        cells(line.task, line.n_documents, nll.n_tokens, fmt::format("{:.6f}", nll.mean()),
              fmt::format("{:.4f}", std::exp(nll.mean())), source.recipe, text.lengths.back());
    const auto step = checkpoint_step(source);
    if (has_models_) row.push_back(source.folder);
    if (has_steps_) row.push_back(step ? fmt::to_string(*step) : "");
    row.push_back(text.amount.text());
    if (are_compared_) {
      const PairedNll paired = paired_nll(first, parts);
      const bool is_first = first.data() == parts.data();
      for (const double x : {paired.difference, paired.difference_error})  // NaN: of one row
        row.push_back(is_first ? "" : std::isnan(x) ? "-" : fmt::format("{:.6f}", x));
    }
    table_.rows.push_back(std::move(row));
    if (nonfinite_.empty() && !std::isfinite(nll.sum)) nonfinite_ = line.task;
  }

  const EvalTextFlags& flags_;
  bool are_compared_, has_models_ = false, has_steps_ = false;
  Table table_;
  std::string nonfinite_;  // the first such task
};

std::vector<FunctionKey> functions_of(const std::vector<EvalText>& texts) {
  std::vector<FunctionKey> keys;
  for (const EvalText& text : texts) {
    for (const int64_t length : text.lengths) {
      const FunctionKey key{function::evaluate,
                            {.batch = text.batch, .seq = length, .documents = text.boundaries}};
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
    }
  }
  return keys;
}

}  // namespace

EvalText open_eval_text(const ModelSource& source, const TextTask& task, const EvalTextFlags& flags,
                        const RunDataOptions& options) {
  if (task.data.empty() && !source.run) {
    throw Error(ErrorCode::invalid_argument,
                "--data: expected text or token shards, got none: '{}' is no run with validation "
                "data of its own",
                source.folder);
  }
  const bool are_chats = !flags.is_raw && hold_conversations(source, task.data);
  EvalText text = are_chats ? conversations_of(source, task, flags, options)
                  : task.data.empty()
                      ? own_text(source, flags, options)
                      : plain_text(source, named_stream(source, task, flags, options), flags);
  text.task = task.name;
  if (!text.amount.is_all()) {
    const bool is_of_run = task.data.empty() && flags.max_tokens < 0;
    options.log.warning("[eval] {}: {} are read{}", task.name, text.amount.text(),
                        is_of_run ? ", as in the run's own evaluations (--max-tokens 0: all)" : "");
  }
  return text;
}

namespace {

// True if each id stands for the same bytes; which of them a text becomes the first says alone.
bool have_same_tokens(const std::string& first, const std::string& other) {
  const auto a = make_tokenizer(posix_files(), first), b = make_tokenizer(posix_files(), other);
  if (a->vocab_size() != b->vocab_size()) return false;
  for (int64_t i = 0; i < a->vocab_size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (a->token_bytes(id) != b->token_bytes(id)) return false;
  }
  return true;
}

}  // namespace

void expect_same_tokens(const ModelSource& first, const ModelSource& other) {
  expect_text(other.spec);
  const bool are_named = !first.tokenizer.empty() && !other.tokenizer.empty();
  const bool is_same = are_named ? have_same_tokens(first.tokenizer, other.tokenizer)
                                 : first.spec.vocab == other.spec.vocab;
  if (is_same) return;
  throw Error(ErrorCode::invalid_argument,
              "--against: expected models that read the tokens of '{}', got '{}' with another {}",
              first.folder, other.folder, are_named ? "tokenizer" : "vocabulary");
}

void run_eval_text(const std::vector<TextTask>& tasks, const EvalTextFlags& flags,
                   std::vector<ModelSource> sources, const GlobalOptions& options) {
  const Log log = make_log(options);
  const RunDataOptions data_options = {
      .log = log, .threads = options.threads, .on_progress = tokenize_painter(options)};
  std::vector<EvalText> texts;
  int64_t longest = 0;
  for (const TextTask& task : tasks) {
    texts.push_back(open_eval_text(sources.front(), task, flags, data_options));
    longest = std::max(longest, texts.back().lengths.back());
  }
  const std::vector<FunctionKey> functions = functions_of(texts);
  Backend backend = open_backend(options);
  TextResults results(sources, flags);
  std::vector<std::vector<NllSum>> first;
  for (ModelSource& source : sources) {
    if (!source.run) source.spec.rope_seq = longest;
    Inference model(source, functions, text_machine(backend, log));
    for (size_t i = 0; i < texts.size(); ++i) {
      std::vector<NllSum> parts = score_text(model, texts[i]);
      if (&source == &sources.front()) {
        first.push_back(std::move(parts));
        results.add(texts[i], source, first[i], first[i]);
      } else {
        results.add(texts[i], source, first[i], parts);
      }
    }
  }
  print_table(options, results.table());
  results.expect_finite();
}

}  // namespace octet
