// Runs the texts of all requests of `octet serve` side by side: one thread that steps a TextBatch,
// and lets a text in wherever an entry is free.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/serve_error.h"
#include "infer/text_batch.h"

namespace octet {

struct ServeText {
  Prompt prompt;
  int64_t max_tokens = 0;
  std::vector<std::string> stop_texts = {};
  int n_logprobs = -1;         // of the most probable tokens beside each token's own; -1: none
  bool scores_prompt = false;  // of the prompt's tokens too
  std::shared_ptr<const EntryPictures> pictures = {};  // of the prompt; null: it has none
};

struct TokenScore {
  int32_t id = 0;
  std::optional<double> logprob = {};                // nats; none of a text's first token
  std::vector<std::pair<int32_t, double>> top = {};  // the most probable, the first one first
};

// The part of text `index` that came since the event before.
struct TextEvent {
  size_t index = 0;
  std::string text = {};
  std::vector<TokenScore> tokens = {};  // with n_logprobs; also those that ended the text
  int64_t n_tokens = 0;                 // new ones
  Stop stop = Stop::none;               // else this is its last event
};

// The texts of one request, as they come.
class ServeReply {
 public:
  // Waits. Throws ServeError for a request that failed, or whose time is over.
  TextEvent next();
  // Nobody listens any more.
  void cancel();

  void put(TextEvent event);
  void fail(const ServeError& error);
  bool is_over(std::chrono::steady_clock::time_point now) const;

  std::chrono::steady_clock::time_point deadline = {};

 private:
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::deque<TextEvent> events_;
  std::optional<ServeError> error_;
  bool is_cancelled_ = false;
};

struct ServeLimits {
  int64_t queue = 256;   // texts that wait
  double seconds = 600;  // of a request
};

class ServeEngine {
 public:
  ServeEngine(TextModel& model, const Tokenizer& tokenizer, std::vector<int32_t> stop_tokens,
              const ServeLimits& limits);
  ~ServeEngine();  // texts that still run end here

  // Throws ServeError where too many wait, or after close().
  std::shared_ptr<ServeReply> submit(std::vector<ServeText> texts);
  // No more texts; returns when the last one has ended.
  void close();

 private:
  class Running;
  struct Waiting {
    std::shared_ptr<ServeReply> reply;
    size_t index = 0;
    ServeText text;
  };

  void run();
  void drop_ended(std::chrono::steady_clock::time_point now);
  void start(size_t entry, std::unique_ptr<Running> text);
  void start_waiting();
  void fail_all(const ServeError& error);

  TextModel& model_;
  TextBatch batch_;
  std::vector<int32_t> stop_tokens_;
  ServeLimits limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  size_t n_running_ = 0;
  bool is_closed_ = false, ends_ = false;
  std::vector<std::unique_ptr<Running>> running_;  // by entry; the thread's
  std::vector<bool> held_pictures_;                // by entry: those of an earlier text stand there
  std::thread thread_;
};

}  // namespace octet
