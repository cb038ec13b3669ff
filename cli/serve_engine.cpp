#include "cli/serve_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "cli/error_of.h"
#include "infer/log_probabilities.h"

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kMostRead = 128;  // tokens of a prompt between two steps of the others

TokenScore score_of(std::span<const float> logits, int32_t token, int n_top) {
  const LogProbabilities all(logits);
  TokenScore score{.id = token, .logprob = all.of(token)};
  if (std::isnan(*score.logprob))
    throw Error(ErrorCode::numerics, "[serve] expected finite logits, got NaN");
  for (const int32_t id : all.top(static_cast<size_t>(n_top)))
    score.top.emplace_back(id, all.of(id));
  return score;
}

}  // namespace

TextEvent ServeReply::next() {
  std::unique_lock lock(mutex_);
  came_.wait(lock, [&] { return !events_.empty() || error_; });
  if (events_.empty()) throw *error_;
  TextEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void ServeReply::cancel() {
  const std::lock_guard lock(mutex_);
  is_cancelled_ = true;
}

void ServeReply::put(TextEvent event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  came_.notify_one();
}

void ServeReply::fail(const ServeError& error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = error;
  came_.notify_one();
}

bool ServeReply::is_over(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  return is_cancelled_ || error_ || now > deadline;
}

// A text in an entry of the batch.
class ServeEngine::Running : public TextListener {
 public:
  explicit Running(Waiting from) : from_(std::move(from)) {
    event_.index = from_.index;
    if (from_.text.scores_prompt) event_.tokens.push_back({.id = from_.text.prompt.tokens.front()});
  }

  void on_prompt(int64_t token, std::span<const float> logits) override {
    const int32_t next = from_.text.prompt.tokens[static_cast<size_t>(token) + 1];
    event_.tokens.push_back(score_of(logits, next, from_.text.n_logprobs));
  }
  void on_token(int32_t token, std::span<const float> logits) override {
    ++event_.n_tokens;
    if (from_.text.n_logprobs < 0) return;
    event_.tokens.push_back(score_of(logits, token, from_.text.n_logprobs));
  }
  void on_text(std::string_view text) override {
    event_.text = text;
    tell();
  }
  void on_end(Stop stop, const std::string&) override {
    event_.stop = stop;
    tell();
  }

  const Waiting& from() const { return from_; }

 private:
  void tell() {
    TextEvent next{.index = from_.index};
    std::swap(next, event_);
    from_.reply->put(std::move(next));
  }

  Waiting from_;
  TextEvent event_;
};

ServeEngine::ServeEngine(TextModel& model, const Tokenizer& tokenizer,
                         std::vector<int32_t> stop_tokens, const ServeLimits& limits)
    : model_(model),
      batch_(model, tokenizer, kMostRead),
      stop_tokens_(std::move(stop_tokens)),
      limits_(limits),
      running_(batch_.n_entries()),
      held_pictures_(batch_.n_entries()),
      thread_([this] { run(); }) {}

ServeEngine::~ServeEngine() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::shared_ptr<ServeReply> ServeEngine::submit(std::vector<ServeText> texts) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) throw closing_error();
  const size_t most = running_.size() + static_cast<size_t>(limits_.queue);
  if (texts.size() > most) {
    throw ServeError{.message = fmt::format("expected at most {} texts in a request, got {}", most,
                                            texts.size()),
                     .param = "n"};
  }
  if (n_running_ + waiting_.size() + texts.size() > most) {
    throw ServeError{.status = 503,
                     .message = fmt::format("{} texts run or wait already; try again",
                                            n_running_ + waiting_.size()),
                     .code = "overloaded"};
  }
  auto reply = std::make_shared<ServeReply>();
  reply->deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(limits_.seconds));
  for (size_t i = 0; i < texts.size(); ++i) waiting_.push_back({reply, i, std::move(texts[i])});
  changed_.notify_all();
  return reply;
}

void ServeEngine::close() {
  std::unique_lock lock(mutex_);
  is_closed_ = true;
  changed_.wait(lock, [&] { return waiting_.empty() && n_running_ == 0; });
}

// Under the lock: texts whose client has gone, or whose time is over.
void ServeEngine::drop_ended(Clock::time_point now) {
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    const bool is_over = waiting.reply->is_over(now);
    if (is_over) waiting.reply->fail(late_error(limits_.seconds));
    return is_over;
  });
  for (size_t entry = 0; entry < running_.size(); ++entry) {
    if (!running_[entry]) continue;
    if (running_[entry]->from().reply->is_over(now)) {
      running_[entry]->from().reply->fail(late_error(limits_.seconds));
      batch_.remove(entry);
    }
    if (batch_.is_free(entry)) running_[entry].reset();
  }
  n_running_ = static_cast<size_t>(std::ranges::count_if(running_, [](auto& r) { return !!r; }));
}

void ServeEngine::start(size_t entry, std::unique_ptr<Running> text) {
  const ServeText& what = text->from().text;
  const bool has_pictures = what.pictures != nullptr;
  if (has_pictures || held_pictures_[entry])
    model_.read_pictures(static_cast<int64_t>(entry),
                         has_pictures ? *what.pictures : EntryPictures());
  held_pictures_[entry] = has_pictures;
  batch_.add(entry, {.prompt = what.prompt,
                     .max_tokens = what.max_tokens,
                     .stop_tokens = stop_tokens_,
                     .stop_texts = what.stop_texts,
                     .wants_logits = what.n_logprobs >= 0,
                     .reads_prompt = what.scores_prompt,
                     .listener = text.get()});
  running_[entry] = std::move(text);
  ++n_running_;
}

void ServeEngine::start_waiting() {
  for (size_t entry = 0; entry < running_.size() && !waiting_.empty(); ++entry) {
    if (running_[entry]) continue;
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    const std::shared_ptr<ServeReply> reply = next.reply;
    try {
      start(entry, std::make_unique<Running>(std::move(next)));
    } catch (const std::exception& thrown) {  // memory ran out: of this text alone
      reply->fail({.status = 500, .message = error_of(thrown).what()});
    }
  }
}

void ServeEngine::fail_all(const ServeError& error) {
  for (size_t entry = 0; entry < running_.size(); ++entry) {
    if (!running_[entry]) continue;
    running_[entry]->from().reply->fail(error);
    batch_.remove(entry);
  }
}

void ServeEngine::run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      drop_ended(Clock::now());
      changed_.notify_all();
      changed_.wait(lock, [&] { return ends_ || n_running_ > 0 || !waiting_.empty(); });
      if (ends_) {
        const ServeError error = closing_error();
        for (const Waiting& waiting : waiting_) waiting.reply->fail(error);
        return fail_all(error);
      }
      start_waiting();
    }
    try {
      batch_.step();
    } catch (const std::exception& thrown) {
      fail_all({.status = 500, .message = error_of(thrown).what()});
    }
  }
}

}  // namespace octet
