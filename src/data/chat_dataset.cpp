#include "data/chat_dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/thread_pool.h"
#include "data/byte_stream.h"
#include "data/documents.h"
#include "data/json_values.h"
#include "text/jinja/template.h"

namespace octet {
namespace {

constexpr size_t kBatchRecords = 1024, kBatchBytes = 64 << 20, kMaxPlaces = 5;

class ChatSource : public TokenSource {
 public:
  ChatSource(std::vector<int32_t> tokens, std::vector<uint8_t> flags)
      : tokens_(std::move(tokens)), flags_(std::move(flags)) {
    Xxh64 hash;
    hash.update(tokens_);
    hash.update(flags_);
    identity_ = hash.digest();
  }
  int64_t n_tokens() const override { return static_cast<int64_t>(tokens_.size()); }
  uint64_t identity() const override { return identity_; }
  void read(int64_t first, std::span<int32_t> tokens, std::span<uint8_t> flags) const override {
    std::copy_n(tokens_.begin() + first, tokens.size(), tokens.begin());
    std::copy_n(flags_.begin() + first, flags.size(), flags.begin());
  }

 private:
  std::vector<int32_t> tokens_;
  std::vector<uint8_t> flags_;
  uint64_t identity_ = 0;
};

struct Entry {
  JsonText json;
  ChatRecord record = {};
  EncodedRecord encoded = {};
  std::string dropped = {}, detail = {};
};

// A template's own words may differ from record to record: what they begin with stays.
std::string reason_of(const Error& error) {
  constexpr size_t kLongest = 160;
  std::string reason = error.what();
  std::replace(reason.begin(), reason.end(), '\n', ' ');
  if (reason.size() > kLongest) reason = reason.substr(0, kLongest) + "...";
  return reason;
}

class Reader {
 public:
  Reader(const Files& files, const ChatEncoder& encoder, const ChatOptions& options)
      : files_(files),
        encoder_(encoder),
        options_(options),
        pool_(options.threads),
        words_(static_cast<size_t>(pool_.n_threads())) {
    data_.report.template_name = encoder.template_name();
  }

  ChatData read() {
    for (const std::string& file : conversation_files(files_, options_.paths, data_.report))
      read_file(file);
    if (data_.samples.empty()) fail();
    data_.source = std::make_shared<ChatSource>(std::move(tokens_), std::move(flags_));
    return std::move(data_);
  }

 private:
  [[noreturn]] void fail() const {
    std::string why = "there are no JSON files";
    if (data_.report.n_files > 0) why = "the files hold none";
    for (const auto& [reason, records] : data_.report.dropped) {
      why = fmt::format("{} dropped: {} ({})", records.n, reason, records.places.front());
    }
    throw Error(ErrorCode::bad_data, "[data] expected conversations in '{}', got no record: {}",
                fmt::join(options_.paths, "', '"), why);
  }

  void read_file(const std::string& path) {
    JsonValues values(files_, path, {.long_values = JsonLimits::LongValues::are_told});
    ++data_.report.n_files;
    while (true) {
      std::vector<Entry> batch;
      for (size_t n_bytes = 0; batch.size() < kBatchRecords && n_bytes < kBatchBytes;) {
        auto value = values.next();
        if (!value) break;
        n_bytes += value->text.size();
        batch.push_back({std::move(*value)});
      }
      if (batch.empty()) return;
      pool_.run(static_cast<int64_t>(batch.size()), [&](int64_t i, int thread) {
        encode(path, batch[static_cast<size_t>(i)], words_[static_cast<size_t>(thread)]);
      });
      for (Entry& entry : batch) add(path, entry);
    }
  }

  void encode(const std::string& path, Entry& entry, WordCache& words) const {
    try {
      if (entry.json.is_too_long) {
        bad_record(fmt::format("more than {} bytes", JsonLimits{}.max_value_bytes));
      }
      entry.record = read_chat_record(entry.json.text, options_.fields);
      entry.encoded = encoder_.encode(entry.record, words);
      std::erase_if(entry.encoded.samples,
                    [](const MaskedTokens& tokens) { return tokens.ids.size() < 2; });
      if (entry.encoded.samples.empty()) bad_record("fewer than two tokens");
    } catch (const jinja::BudgetExceeded&) {
      throw;  // the template would take as long for each record
    } catch (const DataRefusal& error) {
      throw Error(ErrorCode::bad_data, "[data] {}:{}: {}", path, entry.json.line, error.what());
    } catch (const BadRecord& error) {
      entry.dropped = reason_of(error);
      entry.detail = error.detail();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_data) throw;
      entry.dropped = reason_of(error);
    }
    std::string().swap(entry.json.text);
  }

  void add(const std::string& path, Entry& entry) {
    ChatReport& report = data_.report;
    const std::string place = fmt::format("{}:{}", path, entry.json.line);
    if (!entry.dropped.empty()) {
      const std::string detail = entry.detail.empty() ? "" : fmt::format(": {}", entry.detail);
      return count_record(report.dropped, entry.dropped, place + detail);
    }
    const EncodedRecord& encoded = entry.encoded;
    for (size_t i = 0; i < encoded.samples.size(); ++i) {
      std::string note = entry.record.note;
      if (encoded.are_apart) note = fmt::format("answer {} of {}", i + 1, encoded.samples.size());
      add_sample(encoded.samples[i], {.place = place,
                                      .format = entry.record.format,
                                      .note = note,
                                      .record = report.n_records,
                                      .pictures = entry.record.pictures});
    }
    for (const LeftOutAnswer& answer : encoded.left_out) {
      count_record(report.left_out, answer.why,
                   fmt::format("{} message {}", place, answer.message));
    }
    for (const std::string& key : entry.record.ignored) ++report.ignored[key];
    for (const std::string& key : encoded.unread) ++report.ignored[key];
    if (!encoded.prompt_end.empty()) ++report.prompt_ends[encoded.prompt_end];
    report.n_rewritten += encoded.are_apart ? 1 : 0;
    ++report.n_records;
    ++report.formats[std::string(entry.record.format)];
  }

  void add_sample(const MaskedTokens& tokens, ChatSample sample) {
    ChatReport& report = data_.report;
    sample.first = static_cast<int64_t>(tokens_.size());
    sample.n_tokens = static_cast<int64_t>(tokens.ids.size());
    for (size_t i = 0; i < tokens.ids.size(); ++i) {
      tokens_.push_back(tokens.ids[i]);
      flags_.push_back(tokens.is_trained[i] != 0 ? 0 : kNotTrained);
      sample.n_trained += tokens.is_trained[i];
    }
    flags_[static_cast<size_t>(sample.first)] |= kDocumentStart;
    Xxh64 hash;
    hash.update(tokens.ids);
    report.n_duplicates += seen_.insert(hash.digest()).second ? 0 : 1;
    report.n_apart += tokens.is_apart ? 1 : 0;
    report.n_tokens += sample.n_tokens;
    report.n_trained += sample.n_trained;
    data_.samples.push_back(std::move(sample));
  }

  const Files& files_;
  const ChatEncoder& encoder_;
  const ChatOptions& options_;
  ThreadPool pool_;
  std::vector<WordCache> words_;
  ChatData data_;
  std::vector<int32_t> tokens_;
  std::vector<uint8_t> flags_;
  std::unordered_set<uint64_t> seen_;  // hashes of the tokens of records
};

}  // namespace

bool is_json_name(const std::string& path) {
  const std::string name = unpacked_name(path);
  return name.ends_with(".json") || name.ends_with(".jsonl") || name.ends_with(".ndjson");
}

ChatData read_chat_data(const Files& files, const ChatEncoder& encoder,
                        const ChatOptions& options) {
  return Reader(files, encoder, options).read();
}

std::vector<std::string> conversation_files(const Files& files,
                                            const std::vector<std::string>& paths,
                                            ChatReport& report) {
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    const bool is_folder = files.is_directory(path);
    const FolderFiles all = expand_paths(files, {path});
    for (const std::string& file : all.paths) {
      if (!is_folder || is_json_name(file)) {
        found.push_back(file);
      } else {
        count_record(report.unread_files, "their names are not of JSON", file);
      }
    }
    for (int64_t i = 0; i < all.n_links; ++i)
      count_record(report.unread_files, "symbolic links are not followed", path);
    for (const std::string& problem : all.problems)
      count_record(report.unread_files, "they are no regular files, or cannot be listed", problem);
  }
  return found;
}

void add_report(const ChatReport& report, ChatReport& to) {
  to.template_name = report.template_name;
  for (int64_t ChatReport::*count :
       {&ChatReport::n_files, &ChatReport::n_tokens, &ChatReport::n_trained,
        &ChatReport::n_duplicates, &ChatReport::n_apart, &ChatReport::n_records,
        &ChatReport::n_rewritten})
    to.*count += report.*count;
  for (auto counts : {&ChatReport::formats, &ChatReport::ignored, &ChatReport::prompt_ends})
    for (const auto& [key, n] : report.*counts) (to.*counts)[key] += n;
  for (auto records : {&ChatReport::left_out, &ChatReport::dropped, &ChatReport::unread_files}) {
    for (const auto& [why, more] : report.*records) {
      DroppedRecords& all = (to.*records)[why];
      all.n += more.n;
      all.places.insert(all.places.end(), more.places.begin(), more.places.end());
      all.places.resize(std::min(all.places.size(), kMaxPlaces));
    }
  }
}

void count_record(std::map<std::string, DroppedRecords>& by_why, const std::string& why,
                  const std::string& place) {
  DroppedRecords& records = by_why[why];
  ++records.n;
  if (records.places.size() < kMaxPlaces) records.places.push_back(place);
}

std::string places_text(const DroppedRecords& records) {
  return fmt::format("{}{}", fmt::join(records.places, ", "),
                     records.n > static_cast<int64_t>(records.places.size()) ? ", ..." : "");
}

void tell_unread_names(const ChatFields& fields, const ChatReport& report, const Log& log) {
  using Formats = std::vector<std::string_view>;
  const Formats talks = {"messages", "ShareGPT"}, messages = {"messages", "pair"};
  const Formats pairs = {"pair"}, tasks = {"Alpaca"}, texts = {"text"};
  const struct {
    const char* key;
    std::string ChatFields::*name;
    Formats formats;
  } keys[] = {{"messages", &ChatFields::messages, talks},
              {"conversations", &ChatFields::conversations, talks},
              {"role", &ChatFields::role, messages},
              {"content", &ChatFields::content, messages},
              {"instruction", &ChatFields::instruction, tasks},
              {"input", &ChatFields::input, tasks},
              {"output", &ChatFields::output, tasks},
              {"prompt", &ChatFields::prompt, pairs},
              {"completion", &ChatFields::completion, pairs},
              {"text", &ChatFields::text, texts}};
  const ChatFields usual;
  for (const auto& one : keys) {
    const std::string& name = fields.*one.name;
    const bool is_read = std::ranges::any_of(one.formats, [&](std::string_view format) {
      return std::ranges::any_of(report.formats, [&](const auto& counted) {
        return std::string_view(counted.first).substr(0, counted.first.find(',')) == format;
      });
    });
    if (name == usual.*one.name || is_read) continue;
    log.warning("data.chat.{} = {} has no effect: no record is of a format that has it", one.key,
                name);
  }
}

void log_report(const ChatReport& report, const Log& log) {
  std::vector<std::string> formats;
  for (const auto& [format, n] : report.formats)
    formats.push_back(fmt::format("{} of {}", n, format));
  log.info(
      "[data] {} records ({}) in {} files, template {}: {} tokens, {:.1f} % of them trained, "
      "{} duplicates",
      report.n_records, fmt::join(formats, ", "), report.n_files, report.template_name,
      report.n_tokens,
      100 * static_cast<double>(report.n_trained) / static_cast<double>(report.n_tokens),
      report.n_duplicates);
  if (report.n_rewritten > 0) {
    log.info(
        "[data] {} records have a sample for each answer: the template rewrites earlier turns, or "
        "its prompt does not begin the answer",
        report.n_rewritten);
  }
  for (const auto& [end, n] : report.prompt_ends) {
    log.warning(
        "[data] in {} records answers stand behind {}, with which the template's prompt ends and "
        "an answer of its own does not begin",
        n, OrderedJson(end).dump());
  }
  if (report.n_apart > 0) {
    log.info(
        "[data] in {} samples an answer begins or ends within a token of the whole: its "
        "parts became tokens apart",
        report.n_apart);
  }
  for (const auto& [key, n] : report.ignored)
    log.info("[data] {} records have a key that nothing is made of: '{}'", n, key);
  for (const auto& [why, files] : report.unread_files) {
    log.warning("[data] {} files of folders are not read: {} ({})", files.n, why,
                places_text(files));
  }
  for (const auto& [why, answers] : report.left_out) {
    log.warning("[data] {} answers are not trained: {} ({})", answers.n, why, places_text(answers));
  }
  for (const auto& [why, records] : report.dropped) {
    log.warning("[data] {} records are dropped: {} ({})", records.n, why, places_text(records));
  }
}

}  // namespace octet
