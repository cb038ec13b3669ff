// Files of conversations as documents of tokens of which some are not trained, with a report of
// what was read and of what was dropped and why.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "data/chat_tokens.h"
#include "data/token_stream.h"

namespace octet {

struct ChatOptions {
  std::vector<std::string> paths = {};  // files; folders stand for their JSON files
  ChatFields fields = {};
  int threads = 0;  // 0: one per core that this process may use
};

struct DroppedRecords {
  int64_t n = 0;
  std::vector<std::string> places = {};  // "FILE:LINE", the first few
};

// The origin of a document.
struct ChatSample {
  std::string place = {};
  std::string_view format = {};
  std::string note = {};
  int64_t record = 0;               // that it is of, counted in the source
  int64_t first = 0, n_tokens = 0;  // in the source
  int64_t n_trained = 0;
  std::vector<ChatPicture> pictures = {};  // of the record, by their places
};

struct ChatReport {
  std::string template_name = {};
  int64_t n_files = 0, n_tokens = 0, n_trained = 0;
  int64_t n_duplicates = 0;  // records of the same tokens as one before; kept
  int64_t n_apart = 0;       // MaskedTokens::is_apart
  int64_t n_records = 0;
  int64_t n_rewritten = 0;  // records with a sample for each answer
  std::map<std::string, int64_t> formats = {};
  std::map<std::string, int64_t> ignored = {};          // records, by a key that nothing is made of
  std::map<std::string, int64_t> prompt_ends = {};      // records, by AnswerTexts::prompt_end
  std::map<std::string, DroppedRecords> left_out = {};  // answers of records that are kept, by why
  std::map<std::string, DroppedRecords> dropped = {};   // by why
  std::map<std::string, DroppedRecords> unread_files = {};  // of folders, by why
};
// The files of these paths, of folders those of conversations; the report counts the others.
std::vector<std::string> conversation_files(const Files& files,
                                            const std::vector<std::string>& paths,
                                            ChatReport& report);
// One more that is left out or dropped for this reason.
void count_record(std::map<std::string, DroppedRecords>& by_why, const std::string& why,
                  const std::string& place);
void add_report(const ChatReport& report, ChatReport& to);
// "FILE:LINE, ..." of the first few.
std::string places_text(const DroppedRecords& records);

struct ChatData {
  std::shared_ptr<const TokenSource> source;
  std::vector<ChatSample> samples;
  ChatReport report;
};

// True if a file's name says that it holds conversations; ".gz", ".xz" and ".zst" may follow.
bool is_json_name(const std::string& path);

// Throws Error{bad_data} where a path is missing, a file cannot be read, a record is a DataRefusal,
// or no record is left; the message then says why the first ones were dropped.
ChatData read_chat_data(const Files& files, const ChatEncoder& encoder, const ChatOptions& options);

// "7473 records of pair (gsm8k.jsonl ...)": a line each, what was dropped as a warning.
void log_report(const ChatReport& report, const Log& log);

// A warning for each key of data.chat that has another name than usual where no record is of a
// format that has it.
void tell_unread_names(const ChatFields& fields, const ChatReport& report, const Log& log);

}  // namespace octet
