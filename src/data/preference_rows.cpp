#include "data/preference_rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/thread_pool.h"
#include "data/byte_stream.h"
#include "data/json_values.h"
#include "data/preference_records.h"
#include "data/token_rows.h"
#include "text/jinja/template.h"

namespace octet {
namespace {

constexpr size_t kPairsAtOnce = 256;

struct AnswerRow {
  std::vector<int32_t> tokens, labels;
  int64_t n_trained = 0;
};

struct PairEntry {
  JsonText json;
  AnswerRow chosen = {}, rejected = {};
  std::string format = {}, dropped = {}, detail = {}, prompt_end = {};
  std::vector<std::string> ignored = {};
  std::vector<LeftOutAnswer> left_out = {};
  bool is_apart = false;
};

class PairsReader {
 public:
  PairsReader(const Files& files, const ChatEncoder& encoder, const PreferenceOptions& options)
      : files_(files),
        encoder_(encoder),
        options_(options),
        pool_(options.chat.threads),
        words_(static_cast<size_t>(pool_.n_threads())) {
    data_.rows = std::make_shared<PreferenceRows>(options.has_reference);
    data_.report.template_name = encoder.template_name();
  }

  PreferenceData read() {
    for (const std::string& file : conversation_files(files_, options_.chat.paths, data_.report))
      read_file(file);
    if (data_.rows->n_rows() == 0) fail();
    data_.rows->finish();
    return std::move(data_);
  }

 private:
  [[noreturn]] void fail() const {
    std::string why = data_.report.n_files > 0 ? "the files hold none" : "there are no JSON files";
    for (const auto& [reason, records] : data_.report.dropped)
      why = fmt::format("{} dropped: {} ({})", records.n, reason, records.places.front());
    throw Error(ErrorCode::bad_data,
                "[data] expected pairs of a chosen and a rejected answer in '{}', got no record: "
                "{}",
                fmt::join(options_.chat.paths, "', '"), why);
  }

  void read_file(const std::string& path) {
    JsonValues values(files_, path, {.long_values = JsonLimits::LongValues::are_told});
    ++data_.report.n_files;
    while (true) {
      std::vector<PairEntry> batch;
      while (batch.size() < kPairsAtOnce) {
        auto value = values.next();
        if (!value) break;
        batch.push_back({std::move(*value)});
      }
      if (batch.empty()) return;
      pool_.run(std::ssize(batch), [&](int64_t i, int thread) {
        encode(path, batch[static_cast<size_t>(i)], words_[static_cast<size_t>(thread)]);
      });
      for (const PairEntry& entry : batch) add(path, entry);
    }
  }

  void encode(const std::string& path, PairEntry& entry, WordCache& words) const {
    try {
      if (entry.json.is_too_long)
        bad_record(fmt::format("more than {} bytes", JsonLimits{}.max_value_bytes));
      const PreferenceRecord record = read_preference_record(entry.json.text, options_.chat.fields);
      entry.format = record.chosen.format;
      entry.ignored = record.chosen.ignored;
      entry.chosen = row_of(record.chosen, entry, words);
      entry.rejected = row_of(record.rejected, entry, words);
    } catch (const jinja::BudgetExceeded&) {
      throw;  // the template would take as long for each record
    } catch (const DataRefusal& error) {
      throw Error(ErrorCode::bad_data, "[data] {}:{}: {}", path, entry.json.line, error.what());
    } catch (const BadRecord& error) {
      entry.dropped = error.what();
      entry.detail = error.detail();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_data) throw;
      entry.dropped = error.what();
      std::ranges::replace(entry.dropped, '\n', ' ');
    }
    std::string().swap(entry.json.text);
  }

  AnswerRow row_of(const ChatRecord& record, PairEntry& entry, WordCache& words) const {
    EncodedRecord encoded = encoder_.encode(record, words);
    if (encoded.samples.size() != 1)
      bad_record("several answers behind the prompt, of a template that rewrites earlier turns");
    if (!encoded.prompt_end.empty()) entry.prompt_end = encoded.prompt_end;
    for (const std::string& key : encoded.unread) {
      if (std::ranges::find(entry.ignored, key) == entry.ignored.end())
        entry.ignored.push_back(key);
    }
    std::ranges::move(encoded.left_out, std::back_inserter(entry.left_out));
    const MaskedTokens& tokens = encoded.samples.front();
    entry.is_apart = entry.is_apart || tokens.is_apart;
    auto n = std::ssize(tokens.ids) - 1;
    if (n < 1) bad_record("fewer than two tokens");
    if (n > options_.seq) {
      if (options_.too_long != TooLong::truncate)
        bad_record(fmt::format("more than {} tokens (model.seq; data.too_long: truncate cuts them)",
                               options_.seq));
      n = options_.seq;
    }
    AnswerRow row;
    row.tokens.assign(tokens.ids.begin(), tokens.ids.begin() + n);
    for (int64_t i = 1; i <= n; ++i) {
      const bool is_trained = tokens.is_trained[static_cast<size_t>(i)] != 0;
      row.labels.push_back(is_trained ? tokens.ids[static_cast<size_t>(i)] : kIgnoredLabel);
      row.n_trained += is_trained ? 1 : 0;
    }
    if (row.n_trained == 0) bad_record("an answer behind the end of its row");
    return row;
  }

  void add(const std::string& path, const PairEntry& entry) {
    ChatReport& report = data_.report;
    const std::string place = fmt::format("{}:{}", path, entry.json.line);
    if (!entry.dropped.empty()) {
      const std::string detail = entry.detail.empty() ? "" : ": " + entry.detail;
      return count_record(report.dropped, entry.dropped, place + detail);
    }
    for (const AnswerRow* row : {&entry.chosen, &entry.rejected}) {
      data_.rows->add_row(row->tokens, row->labels);
      report.n_tokens += std::ssize(row->tokens);
      report.n_trained += row->n_trained;
    }
    for (const LeftOutAnswer& answer : entry.left_out)
      count_record(report.left_out, answer.why,
                   fmt::format("{} message {}", place, answer.message));
    for (const std::string& key : entry.ignored) ++report.ignored[key];
    if (!entry.prompt_end.empty()) ++report.prompt_ends[entry.prompt_end];
    report.n_apart += entry.is_apart ? 1 : 0;
    ++report.n_records;
    ++report.formats[entry.format + ", chosen and rejected"];
  }

  const Files& files_;
  const ChatEncoder& encoder_;
  const PreferenceOptions& options_;
  ThreadPool pool_;
  std::vector<WordCache> words_;
  PreferenceData data_;
};

}  // namespace

PreferenceData read_preferences(const Files& files, const ChatEncoder& encoder,
                                const PreferenceOptions& options) {
  return PairsReader(files, encoder, options).read();
}

PreferenceRows::PreferenceRows(bool has_reference) : has_reference_(has_reference) {
  inputs_ = {tokens_input(), token_labels_input()};
  if (has_reference)
    inputs_.push_back({.name = "reference_nll", .per = Per::row, .type = HostType::real});
}

void PreferenceRows::add_row(std::span<const int32_t> tokens, std::span<const int32_t> labels) {
  CHECK(tokens.size() == labels.size());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  labels_.insert(labels_.end(), labels.begin(), labels.end());
  ends_.push_back(std::ssize(tokens_));
  longest_ = std::max(longest_, std::ssize(tokens));
}

void PreferenceRows::finish() {
  CHECK(n_rows() % 2 == 0);
  Xxh64 hash;
  hash.update_sized(tokens_);
  hash.update_sized(labels_);
  hash.update_sized(ends_);
  identity_ = hash.digest();
  reference_.assign(ends_.size(), std::numeric_limits<float>::quiet_NaN());
}

void PreferenceRows::set_reference(std::vector<float> nll) {
  CHECK(has_reference_ && nll.size() == ends_.size());
  reference_ = std::move(nll);
}

void PreferenceRows::write(int64_t sample, const RowCell& where, Batch& to) const {
  for (int64_t i = 0; i < 2; ++i) write_row(2 * sample + i, where.row + i, to);
}

void PreferenceRows::write_row(int64_t row, int64_t place, Batch& to) const {
  const int64_t begin = row == 0 ? 0 : ends_[static_cast<size_t>(row - 1)];
  const int64_t n = ends_[static_cast<size_t>(row)] - begin;
  CHECK(n <= to.seq);
  const auto own = [&](const std::vector<int32_t>& all) {
    return std::span(all).subspan(static_cast<size_t>(begin), static_cast<size_t>(n));
  };
  put_row(own(tokens_), 0, place, to.seq, to.ints("tokens"));
  put_row(own(labels_), kIgnoredLabel, place, to.seq, to.ints("labels"));
  if (has_reference_)
    to.reals("reference_nll")[static_cast<size_t>(place)] = reference_[static_cast<size_t>(row)];
  to.lengths[static_cast<size_t>(place)] = n;
}

}  // namespace octet
