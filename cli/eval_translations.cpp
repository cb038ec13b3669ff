// octet eval --tasks bleu:FILE,chrf:FILE: how near what a model writes about sources is to their
// targets.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "base/error.h"
#include "cli/backend.h"
#include "cli/eval_tasks.h"
#include "cli/model_flags.h"
#include "data/text_records.h"
#include "infer/model_texts.h"
#include "infer/tasks/translation_scores.h"
#include "infer/translate.h"

namespace octet {
namespace {

constexpr std::pair<std::string_view, double (*)(std::span<const ScoredText>)> kMeasures[] = {
    {"bleu", bleu}, {"chrf", chrf}};

struct Measure {
  std::string name, file;
  double (*of)(std::span<const ScoredText>) = nullptr;
};

// Nothing where the task is another.
std::optional<Measure> measure_of(const std::string& task) {
  const size_t colon = task.find(':');
  for (const auto& [name, measure] : kMeasures) {
    if (task.substr(0, colon) != name) continue;
    const std::string file = colon == std::string::npos ? "" : task.substr(colon + 1);
    return Measure{.name = std::string(name), .file = file, .of = measure};
  }
  return std::nullopt;
}

// The pairs of a file; a run's keys say which columns are read.
std::vector<TextRecord> read_pairs(const std::string& file, const ModelSource& source,
                                   int64_t limit, const Log& log) {
  LeftOut left_out(log);
  const TextFields fields = source.run ? source.run->data.fields : TextFields();
  std::vector<TextRecord> records =
      read_text_records(posix_files(), {file}, fields, ReadLabels::none, left_out);
  std::erase_if(records, [&](const TextRecord& record) {
    const bool is_whole = !record.first.empty() && record.second && !record.second->empty();
    if (!is_whole) left_out.add(record.place, "expected a source and a target, got an empty text");
    return !is_whole;
  });
  left_out.finish();
  if (limit > 0 && std::ssize(records) > limit) records.resize(static_cast<size_t>(limit));
  if (!records.empty()) return records;
  throw Error(ErrorCode::bad_data, "[eval] {}: expected a pair of texts at least, got none", file);
}

class Translations {
 public:
  Translations(const EvalTasksCall& call, const GlobalOptions& options)
      : call_(call),
        log_(make_log(options)),
        backend_(open_backend(options, {.same_rows = true})) {}

  // A model's texts for a file's sources, beside their targets.
  std::vector<ScoredText> of(const std::string& file, ModelSource source) {
    warn_of_measured_batches(log_, source.recipe, call_.batch);
    const std::vector<TextRecord> records = read_pairs(file, source, call_.flags.limit, log_);
    std::vector<std::string> texts;
    texts.reserve(records.size());
    for (const TextRecord& record : records) texts.push_back(record.first);
    const auto tokenizer = make_tokenizer(posix_files(), source.tokenizer);
    const TranslateOptions how = options_of(source, *tokenizer);
    const std::string prefix = source.run ? source.run->data.source_prefix : "";
    const auto sources = encode_sources(*tokenizer, texts, prefix, file, source.spec);
    const int64_t n_sources = std::min(call_.batch, std::ssize(sources));
    const auto model = make_text_model(source,
                                       {.n_entries = n_sources * how.beams.n_beams,
                                        .capacity = how.rules.max_tokens,
                                        .n_sources = n_sources},
                                       text_machine(backend_, log_));
    const std::vector<Translation> done = translate(*model, source.spec, sources, how);
    std::vector<ScoredText> scored;
    for (size_t i = 0; i < done.size(); ++i)
      scored.push_back(
          {.text = text_of(*tokenizer, done[i], how), .references = {*records[i].second}});
    return scored;
  }

 private:
  TranslateOptions options_of(const ModelSource& source, const Tokenizer& tokenizer) const {
    return translate_options(posix_files(), source, stop_tokens(posix_files(), source, tokenizer),
                             {.max_tokens = call_.flags.max_tokens, .n_beams = call_.flags.beams});
  }

  const EvalTasksCall& call_;
  Log log_;
  Backend backend_;
};

}  // namespace

bool are_translation_tasks(const std::vector<std::string>& tasks) {
  const auto is_one = [](const std::string& task) { return measure_of(task).has_value(); };
  const auto n = std::ranges::count_if(tasks, is_one);
  if (n == 0) return false;
  const auto has_file = [](const std::string& task) {
    const auto measure = measure_of(task);
    return measure && !measure->file.empty();
  };
  if (std::ranges::all_of(tasks, has_file)) return true;
  throw Error(ErrorCode::invalid_argument,
              "--tasks: expected bleu:FILE and chrf:FILE alone, got {}", fmt::join(tasks, ","));
}

void run_translation_tasks(const EvalTasksCall& call, const std::vector<ModelSource>& sources,
                           const GlobalOptions& options) {
  const ModelSource& source = sources.front();
  if (!model_def(source.spec.kind).translates) {
    throw Error(
        ErrorCode::invalid_argument,
        "--tasks: expected a model that translates (t5, mt5, marian, lstm_seq2seq) for {}, got {}",
        call.tasks.front(), model_def(source.spec.kind).name);
  }
  expect_tokenizer(source);
  Translations translations(call, options);
  std::vector<OrderedJson> rows;
  std::map<std::pair<std::string, size_t>, std::vector<ScoredText>> known;  // by file and source
  for (const std::string& task : call.tasks) {
    const Measure measure = measure_of(task).value();
    for (size_t i = 0; i < sources.size(); ++i) {
      const ModelSource& one = sources[i];
      const auto [at, is_new] = known.try_emplace({measure.file, i});
      if (is_new) at->second = translations.of(measure.file, one);
      rows.push_back({{"task", task},
                      {"recipe", one.recipe},
                      {"n", at->second.size()},
                      {measure.name, measure.of(at->second)}});
    }
  }
  report_evaluations(source, rows, options);
}

}  // namespace octet
