#include "train/text_rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/cores.h"
#include "base/error.h"
#include "base/integer.h"
#include "base/named_enum.h"
#include "base/parse_text.h"
#include "base/thread_pool.h"
#include "data/masked_rows.h"
#include "data/questions.h"
#include "text/encode_texts.h"
#include "text/padding.h"
#include "train/data_checks.h"
#include "train/run_setup.h"

namespace octet {
namespace {

// The special token that one of these names has, as BERT's and RoBERTa's files spell them.
std::optional<int32_t> named_token(const Tokenizer& tokenizer,
                                   std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (const auto id = tokenizer.special_id(name)) return id;
  }
  return std::nullopt;
}

int32_t padding_token(const Tokenizer& tokenizer) {
  return named_token(tokenizer, {"[PAD]", "<pad>"}).value_or(0);
}

// A number from 0 to 1 for each class; nothing where labels are something else.
std::optional<std::vector<float>> shares_of(const TextRecord& record, int64_t n_classes) {
  if (std::ssize(record.labels) != n_classes) return std::nullopt;
  std::vector<float> shares;
  for (const std::string& label : record.labels) {
    const float share = parse_number<float>(label).value_or(-1);
    if (!(share >= 0 && share <= 1)) return std::nullopt;
    shares.push_back(share);
  }
  return shares;
}

void tell_cut(const Log& log, int64_t n_cut, int64_t n, int64_t seq, CutSide side) {
  if (n_cut == 0) return;
  log.warning("[data] {} of {} samples lost the {} of their texts: rows have {} tokens (model.seq)",
              n_cut, n, side == CutSide::end ? "ends" : "starts", seq);
}

void check_types(const std::vector<int32_t>& types, const InputSpec& input) {
  const int32_t most = types.empty() ? 0 : std::ranges::max(types);
  if (input.bound == 0 || most < input.bound) return;
  throw Error(ErrorCode::bad_data,
              "model.token_types: expected at least {} for what the tokenizer puts around pairs, "
              "got {}",
              most + 1, input.bound);
}

}  // namespace

void check_boundaries(const RunConfig& config) {
  const DocumentBoundaries boundaries = config.data.document_boundaries;
  if (boundaries == DocumentBoundaries::ignore) return;
  throw Error(ErrorCode::invalid_argument,
              "data.document_boundaries: expected ignore for an encoder's text, got {}",
              enum_name(boundaries));
}

std::shared_ptr<const RowSource> encoded_rows(TokenRows rows, const RunConfig& config,
                                              const RunInputs& inputs, const Tokenizer& tokenizer,
                                              const Log& log) {
  check_known(rows.tokens, tokenizer, log);
  TokenRowsOptions options{.rows_per_sample = inputs.rows_per_sample,
                           .padding = padding_token(tokenizer)};
  if (const InputSpec* types = inputs.find("token_types")) {
    check_types(rows.types, *types);
    options.token_types = *types;
  } else {
    rows.types.clear();
  }
  return token_rows(std::move(rows), options);
}

Dataset hide_tokens(const Dataset& text, const RunConfig& config, const RunInputs& inputs,
                    const Tokenizer& tokenizer) {
  check_boundaries(config);
  const auto mask = named_token(tokenizer, {"[MASK]", "<mask>"});
  if (!mask) {
    throw Error(ErrorCode::bad_data,
                "data.tokenizer: expected a tokenizer with a token [MASK] or <mask>, which stands "
                "for hidden ones, got '{}', which has none",
                config.data.tokenizer);
  }
  const TextTemplate around = tokenizer.text_template();
  MaskedRowsOptions options{.seq = config.model.seq,
                            .before = tokens_before(around.single),
                            .behind = tokens_behind(around.single),
                            .padding = padding_token(tokenizer),
                            .labels = *inputs.find("labels")};
  options.masking = {.seed = static_cast<uint64_t>(config.train.seed),
                     .mask_token = *mask,
                     .vocab = tokenizer.vocab_size(),
                     .special_tokens = tokenizer.special_ids(),
                     .chosen = config.data.mask.share};
  Dataset rows = text;
  rows.train = rows.val = {};
  rows.train_rows = masked_rows(text.train, options);
  if (text.val.n_tokens() > 0) rows.val_rows = masked_rows(text.val, options);
  return rows;
}

std::optional<TextLabel> text_label_of(const RunInputs& inputs) {
  std::vector<InputSpec> others = inputs.brought();
  std::erase_if(others, [](const InputSpec& input) { return input.name == "tokens"; });
  if (inputs.brought().size() == others.size()) return std::nullopt;
  if (others.empty() && inputs.rows_per_sample > 1) return TextLabel::none;
  if (others.size() != 1 || inputs.rows_per_sample != 1) return std::nullopt;
  const InputSpec& label = others.front();
  if (label.per != Per::row) return std::nullopt;
  if (!label.inner.empty())
    return label.type == HostType::real ? std::optional(TextLabel::names) : std::nullopt;
  return label.type == HostType::i32 ? TextLabel::name : TextLabel::number;
}

void settle_negatives(const Files& files, RunConfig& config, const ModelSpec& spec) {
  std::vector<std::string>& names = config.data.fields.negatives;
  const bool is_auto = names == std::vector<std::string>{"auto"};
  if (is_auto || names == std::vector<std::string>{"none"}) names.clear();
  if (!is_auto || config.data.train.empty() || are_arrays(config.data.train)) return;
  const auto takes_negatives = [](const WeightedLoss& one) {
    return find_loss(one.name)->takes_negatives;
  };
  if (std::ranges::any_of(run_losses(config, spec), takes_negatives))
    names = text_negatives(files, config.data.train);
}

LabelledTexts::LabelledTexts(const Files& files, const RunConfig& config, const ModelSpec& spec,
                             const RunInputs& inputs, const RowUser& user)
    : files_(files),
      config_(config),
      spec_(spec),
      inputs_(inputs),
      log_(user.log),
      use_(user.use),
      label_(text_label_of(inputs).value()),
      tokenizer_(run_tokenizer(files, config, spec, user.log)) {
  check_boundaries(config);
}

std::shared_ptr<const RowSource> LabelledTexts::open(const std::vector<std::string>& paths) {
  LeftOut left_out(log_);
  const ReadLabels labels = label_ == TextLabel::none    ? ReadLabels::partners
                            : label_ == TextLabel::names ? ReadLabels::lists
                                                         : ReadLabels::yes;
  std::vector<TextRecord> records =
      read_text_records(files_, paths, config_.data.fields, labels, left_out);
  if (is_first_ && label_ == TextLabel::names) {
    have_all_classes_ = std::ranges::all_of(
        records, [&](const TextRecord& one) { return shares_of(one, spec_.classes).has_value(); });
  }
  const bool are_classes = label_ == TextLabel::name || label_ == TextLabel::names;
  if (is_first_ && are_classes && !have_all_classes_) find_names(records);
  is_first_ = false;
  TokenRows rows;
  records = encode(std::move(records), rows, left_out);
  left_out.finish();
  if (records.empty()) {
    throw Error(ErrorCode::bad_data, "[data] '{}': expected a text at least, got none{}",
                paths.front(), left_out.n() == 0 ? "" : " (" + left_out.first() + ")");
  }
  if (label_ != TextLabel::none) add_labels(records, rows);
  return encoded_rows(std::move(rows), config_, inputs_, *tokenizer_, log_);
}

void LabelledTexts::find_names(const std::vector<TextRecord>& records) {
  for (const TextRecord& record : records) {
    const auto& labels = record.labels;
    names_.insert(names_.end(), labels.begin(), labels.end());
    if (label_ == TextLabel::name) names_.push_back(record.label);
  }
  std::ranges::sort(names_);
  names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
  const auto is_number = [](const std::string& name) {
    return parse_number<int32_t>(name).has_value();
  };
  const std::vector<std::string> known = names_of_model(files_, config_, spec_);
  if (std::ranges::all_of(names_, is_number) && std::ranges::none_of(known, is_number))
    return names_.clear();
  names_ = number_classes(names_, {.known = known, .config = config_, .use = use_, .log = log_});
  for (int64_t i = std::ssize(names_); i < spec_.classes; ++i)
    names_.push_back(fmt::format("{}{}", kUnnamedClass, i));  // of no text
  if (std::ssize(names_) == spec_.classes) return;
  throw Error(ErrorCode::bad_data, "[data] expected at most {} labels (model.classes), got {}: {}",
              spec_.classes, names_.size(), fmt::join(names_, ", "));
}

int32_t LabelledTexts::class_of(const std::string& label, const std::string& place) const {
  if (!names_.empty()) {
    const auto at = std::ranges::find(names_, label);
    if (at != names_.end()) return static_cast<int32_t>(at - names_.begin());
    throw Error(ErrorCode::bad_data, "[data] {}: expected a label of {}, got '{}'", place,
                fmt::join(names_, ", "), label);
  }
  const std::optional<int32_t> number = parse_number<int32_t>(label);
  if (number && *number >= 0 && *number < spec_.classes) return *number;
  throw Error(ErrorCode::bad_data,
              "[data] {}: expected a label from 0 to {} (model.classes - 1), got '{}'", place,
              spec_.classes - 1, label);
}

std::vector<float> LabelledTexts::targets_of(const TextRecord& record) const {
  if (have_all_classes_) {
    if (auto shares = shares_of(record, spec_.classes)) return *std::move(shares);
    throw Error(ErrorCode::bad_data,
                "[data] {}: expected {} numbers from 0 to 1 (model.classes), got [{}]",
                record.place, spec_.classes, fmt::join(record.labels, ", "));
  }
  std::vector<float> targets(static_cast<size_t>(spec_.classes));
  for (const std::string& label : record.labels) {
    float& target = targets[static_cast<size_t>(class_of(label, record.place))];
    if (target == 1 && names_.empty()) {
      throw Error(
          ErrorCode::bad_data,
          "[data] {}: expected numbers of classes, each once, got [{}] beside rows that have "
          "other than {} numbers (model.classes)",
          record.place, fmt::join(record.labels, ", "), spec_.classes);
    }
    target = 1;
  }
  return targets;
}

std::vector<TextRecord> LabelledTexts::encode(std::vector<TextRecord> records, TokenRows& rows,
                                              LeftOut& left_out) const {
  struct Encoded {
    std::vector<EncodedTexts> rows;
    std::string problem;
  };
  constexpr int64_t kPart = 256;
  const CutSide side = cut_side(files_, config_.data.tokenizer);
  const bool are_apart = label_ == TextLabel::none;
  std::vector<Encoded> encoded(records.size());
  ThreadPool pool(std::max(1, usable_cores() / static_cast<int>(config_.parallel.ranks)));
  std::vector<WordCache> words(static_cast<size_t>(pool.n_threads()));
  const auto encode_one = [&](size_t i, int thread) {
    const TextRecord& record = records[i];
    const EncodeTextsOptions options{.max_tokens = config_.model.seq,
                                     .cut = side,
                                     .text = {.words = &words[static_cast<size_t>(thread)]}};
    try {
      if (are_apart && !record.second)
        throw Error(ErrorCode::bad_data, "expected two texts, got one");
      const auto add = [&](const std::string& text, const std::optional<std::string>& pair) {
        encoded[i].rows.push_back(encode_texts(*tokenizer_, text, pair, options));
      };
      add(record.first, are_apart ? std::nullopt : record.second);
      if (are_apart) add(*record.second, std::nullopt);
      for (const std::string& negative : record.negatives) add(negative, std::nullopt);
      if (label_ == TextLabel::number &&
          !std::isfinite(parse_number<float>(record.label).value_or(NAN)))
        throw Error(ErrorCode::bad_data, "expected a number, got '{}'", record.label);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_data) throw;
      encoded[i].problem = error.what();
    }
  };
  pool.run(ceil_div(std::ssize(records), kPart), [&](int64_t part, int thread) {
    const auto end = std::min<size_t>(static_cast<size_t>((part + 1) * kPart), records.size());
    for (auto i = static_cast<size_t>(part * kPart); i < end; ++i) encode_one(i, thread);
  });
  std::vector<TextRecord> kept;
  int64_t n_cut = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    if (!encoded[i].problem.empty()) {
      left_out.add(records[i].place, encoded[i].problem);
      continue;
    }
    for (const EncodedTexts& row : encoded[i].rows) rows.add_row(row.ids, row.types);
    n_cut += std::ranges::any_of(encoded[i].rows, &EncodedTexts::is_cut) ? 1 : 0;
    kept.push_back(std::move(records[i]));
  }
  tell_cut(log_, n_cut, std::ssize(kept), config_.model.seq, side);
  return kept;
}

void LabelledTexts::add_labels(const std::vector<TextRecord>& records, TokenRows& rows) const {
  const std::vector<InputSpec> inputs = inputs_.brought();
  const auto label =
      std::ranges::find_if(inputs, [](const auto& one) { return one.name != "tokens"; });
  HostTensor& column = rows.of_rows.emplace_back();
  column.spec = *label;
  if (label_ == TextLabel::name) {
    auto& values = column.values.emplace<std::vector<int32_t>>();
    for (const TextRecord& record : records) values.push_back(class_of(record.label, record.place));
    return;
  }
  auto& values = column.values.emplace<std::vector<float>>();
  for (const TextRecord& record : records) {
    if (label_ == TextLabel::names) {
      std::ranges::copy(targets_of(record), std::back_inserter(values));
    } else {
      values.push_back(parse_number<float>(record.label).value());
    }
  }
}

namespace {

constexpr const char* kFirst = "start_positions";
constexpr const char* kLast = "end_positions";

}  // namespace

bool reads_spans(const RunInputs& inputs) {
  std::vector<std::string> names = inputs.names();
  std::ranges::sort(names);
  return names == std::vector<std::string>{kLast, kFirst, "tokens"};
}

std::shared_ptr<const RowSource> open_spans(const SpanRun& run, const RunInputs& inputs,
                                            const std::vector<std::string>& paths) {
  const auto& [files, config, spec, log] = run;
  check_boundaries(config);
  const auto tokenizer = run_tokenizer(files, config, spec, log);
  LeftOut left_out(log);
  const Questions questions = read_questions(files, paths, AnswerPlaces::read, left_out);
  const QuestionWindows all = window_questions(
      questions, *tokenizer,
      {.seq = config.model.seq,
       .stride = config.data.stride,
       .cut = cut_side(files, config.data.tokenizer),
       .threads = std::max(1, usable_cores() / static_cast<int>(config.parallel.ranks))},
      left_out);
  left_out.finish();
  TokenRows rows;
  std::vector<int32_t> first, last;
  for (size_t i = 0; i < all.windows.size(); ++i) {
    const Question& question = questions.all[i];
    for (const AnswerWindow& window : all.windows[i]) {
      AnswerPlace place;
      if (!question.answers.empty()) {
        const Answer& answer = question.answers.front();
        place = answer_place(window, all.contexts[question.context], answer.begin, answer.end);
      }
      rows.add_row(window.row.ids, window.row.types);
      first.push_back(place.first);
      last.push_back(place.last);
    }
  }
  if (first.empty()) {
    throw Error(ErrorCode::bad_data, "[data] '{}': expected a question at least, got none{}",
                paths.front(), left_out.n() == 0 ? "" : " (" + left_out.first() + ")");
  }
  rows.of_rows = {{*inputs.find(kFirst), std::move(first)}, {*inputs.find(kLast), std::move(last)}};
  return encoded_rows(std::move(rows), config, inputs, *tokenizer, log);
}

}  // namespace octet
