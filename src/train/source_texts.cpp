#include "train/source_texts.h"

#include <algorithm>
#include <utility>

#include "base/cores.h"
#include "base/error.h"
#include "base/integer.h"
#include "base/thread_pool.h"
#include "data/line_pairs.h"
#include "data/source_rows.h"
#include "data/span_rows.h"
#include "text/padding.h"
#include "text/translation_text.h"
#include "train/data_checks.h"
#include "train/run_setup.h"
#include "train/text_rows.h"

namespace octet {
namespace {

struct EncodedPair {
  TranslationText source, target;
  std::string problem;  // where the pair is left out
};

// Pairs with the tokens of both sides, by several threads.
class PairEncoder {
 public:
  PairEncoder(const Tokenizer& tokenizer, const RunConfig& config, const ModelSpec& spec,
              CutSide cut)
      : tokenizer_(tokenizer), config_(config), n_source_(spec.source_seq), cut_(cut) {}

  std::vector<EncodedPair> encode(const std::vector<TextRecord>& records) const {
    constexpr int64_t kPart = 256;
    std::vector<EncodedPair> pairs(records.size());
    ThreadPool pool(std::max(1, usable_cores() / static_cast<int>(config_.parallel.ranks)));
    std::vector<WordCache> words(static_cast<size_t>(pool.n_threads()));
    pool.run(ceil_div(std::ssize(records), kPart), [&](int64_t part, int thread) {
      const auto end = std::min<size_t>(static_cast<size_t>((part + 1) * kPart), records.size());
      for (auto i = static_cast<size_t>(part * kPart); i < end; ++i)
        pairs[i] = encode(records[i], words[static_cast<size_t>(thread)]);
    });
    return pairs;
  }

 private:
  EncodedPair encode(const TextRecord& record, WordCache& words) const {
    EncodedPair pair;
    if (record.first.empty() || !record.second || record.second->empty()) {
      pair.problem = "expected a source and a target, got an empty text";
      return pair;
    }
    const auto at_most = [&](int64_t n) {
      return TranslationTextOptions{.max_tokens = n, .cut = cut_, .text = {.words = &words}};
    };
    try {
      pair.source =
          source_tokens(tokenizer_, config_.data.source_prefix + record.first, at_most(n_source_));
      pair.target = target_tokens(tokenizer_, *record.second, at_most(config_.model.seq));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_data) throw;
      pair.problem = error.what();
    }
    if (config_.data.too_long == TooLong::drop && (pair.source.is_cut || pair.target.is_cut)) {
      pair.problem = fmt::format("expected at most {} tokens (model.{}), got more",
                                 pair.source.is_cut ? n_source_ : config_.model.seq,
                                 pair.source.is_cut ? "source_seq" : "seq");
    }
    return pair;
  }

  const Tokenizer& tokenizer_;
  const RunConfig& config_;
  int64_t n_source_;
  CutSide cut_;
};

struct CutTexts {
  int64_t n = 0, n_all = 0;
  CutSide side = CutSide::end;
};

void tell_cut(const Log& log, const CutTexts& cut, std::string_view what, std::string_view key) {
  if (cut.n == 0) return;
  log.warning("[data] {} of {} {} lost their {} ({}, data.too_long)", cut.n, cut.n_all, what,
              cut.side == CutSide::end ? "ends" : "starts", key);
}

std::vector<int32_t> sentinels_of(const Tokenizer& tokenizer, const ModelSpec& spec) {
  std::vector<int32_t> ids;
  while (const auto id = tokenizer.special_id(fmt::format("<extra_id_{}>", ids.size())))
    ids.push_back(*id);
  if (!ids.empty()) return ids;
  for (int64_t id = spec.vocab - 1; id >= tokenizer.vocab_size(); --id)
    ids.push_back(static_cast<int32_t>(id));
  if (!ids.empty()) return ids;
  throw Error(
      ErrorCode::invalid_argument,
      "data.spans.share: expected a tokenizer with <extra_id_0>, or a model.vocab above its "
      "{} tokens, for what stands in the place of spans, got none",
      tokenizer.vocab_size());
}

}  // namespace

bool reads_sources(const RunInputs& inputs) {
  std::vector<std::string> names = inputs.names();
  std::ranges::sort(names);
  return names == std::vector<std::string>{"labels", "source", "source_length", "tokens"};
}

SourceTexts::SourceTexts(const Files& files, const RunConfig& config, const ModelSpec& spec,
                         const RunInputs& inputs, const Log& log)
    : files_(files),
      config_(config),
      spec_(spec),
      inputs_(inputs),
      log_(log),
      tokenizer_(run_tokenizer(files, config, spec, log)) {
  check_boundaries(config);
  ending_tokens(*tokenizer_);
}

std::vector<TextRecord> SourceTexts::read(const std::vector<std::string>& paths,
                                          LeftOut& left_out) const {
  const bool is_train =
      &paths == &config_.data.train;  // what is validated on may be the same files
  const std::vector<std::string>& targets =
      is_train ? config_.data.targets : config_.data.val_targets;
  if (targets.empty())
    return read_text_records(files_, paths, config_.data.fields, ReadLabels::none, left_out);
  return read_line_pairs(files_, paths, targets);
}

std::shared_ptr<const RowSource> SourceTexts::open(const std::vector<std::string>& paths) const {
  LeftOut left_out(log_);
  const std::vector<TextRecord> records = read(paths, left_out);
  const CutSide side = cut_side(files_, config_.data.tokenizer);
  const std::vector<EncodedPair> pairs =
      PairEncoder(*tokenizer_, config_, spec_, side).encode(records);
  SourceRows rows;
  int64_t n_cut_sources = 0, n_cut_targets = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const EncodedPair& pair = pairs[i];
    if (!pair.problem.empty()) {
      left_out.add(records[i].place, pair.problem);
      continue;
    }
    rows.add(pair.source.ids, pair.target.ids);
    n_cut_sources += pair.source.is_cut ? 1 : 0;
    n_cut_targets += pair.target.is_cut ? 1 : 0;
  }
  left_out.finish();
  if (rows.n() == 0) {
    throw Error(ErrorCode::bad_data, "[data] '{}': expected a pair of texts at least, got none{}",
                paths.front(), left_out.n() == 0 ? "" : " (" + left_out.first() + ")");
  }
  tell_cut(log_, {n_cut_sources, rows.n(), side}, "sources", "model.source_seq");
  tell_cut(log_, {n_cut_targets, rows.n(), side}, "targets", "model.seq");
  check_known(rows.sources, *tokenizer_, log_);
  check_known(rows.targets, *tokenizer_, log_);
  const auto start = static_cast<int32_t>(spec_.start_token);
  return source_rows(std::move(rows), {.source = *inputs_.find("source"),
                                       .length = *inputs_.find("source_length"),
                                       .labels = *inputs_.find("labels"),
                                       .start = start,
                                       .padding = start});
}

Dataset with_spans_left_out(const Dataset& text, const RunConfig& config, const ModelSpec& spec,
                            const Tokenizer& tokenizer) {
  check_boundaries(config);
  const RunInputs inputs(config, spec);
  const auto start = static_cast<int32_t>(spec.start_token);
  const SpanRowsOptions options{.seq = config.model.seq,
                                .rule = {.share = config.data.spans.share,
                                         .length = config.data.spans.length,
                                         .sentinels = sentinels_of(tokenizer, spec),
                                         .end = ending_tokens(tokenizer)},
                                .seed = static_cast<uint64_t>(config.train.seed),
                                .rows = {.source = *inputs.find("source"),
                                         .length = *inputs.find("source_length"),
                                         .labels = *inputs.find("labels"),
                                         .start = start,
                                         .padding = start}};
  Dataset rows = text;
  rows.train = rows.val = {};
  rows.train_rows = span_rows(text.train, options);
  if (text.val.n_tokens() > 1) rows.val_rows = span_rows(text.val, options);
  return rows;
}

}  // namespace octet
