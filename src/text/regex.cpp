#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>
#include <time.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "text/oniguruma.h"

namespace octet {
namespace {

// The library bounds the steps of an attempt; this many are made before the clock is read.
constexpr size_t kAttempts = 64;

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};

using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>>;

}  // namespace

struct Regex::Compiled {
  std::unique_ptr<pcre2_code, Freed<pcre2_code_free>> code;
  std::string pattern;
  RegexLimits limits;
};

Regex::Regex(std::string_view pattern, const RegexLimits& limits, RegexSyntax syntax)
    : compiled_(std::make_unique<Compiled>()) {
  const auto bad = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, "expected a regular expression, got '{}': {}",
                pattern.substr(0, 200), why);
  };
  if (pattern.size() > limits.max_pattern_bytes)
    bad(fmt::format("longer than {} bytes", limits.max_pattern_bytes));
  std::string spelled(pattern);
  if (syntax == RegexSyntax::oniguruma) {
    try {
      spelled = pcre2_expression(pattern);
    } catch (const Error& error) {
      bad(error.what());
    }
  }
  constexpr uint32_t kOptions =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_USE_OFFSET_LIMIT;
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled_->pattern = pattern;
  compiled_->limits = limits;
  compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                                      kOptions, &error, &offset, nullptr));
  if (!compiled_->code) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof message);
    bad(reinterpret_cast<const char*>(message));
  }
  uint32_t n_groups = 0;
  pcre2_pattern_info(compiled_->code.get(), PCRE2_INFO_CAPTURECOUNT, &n_groups);
  if (n_groups > limits.max_groups)
    bad(fmt::format("{} groups, more than {}", n_groups, limits.max_groups));
  // Without the compiler (a sandbox may forbid code in memory) the expression is interpreted.
  pcre2_jit_compile(compiled_->code.get(), PCRE2_JIT_COMPLETE);
}

Regex::~Regex() = default;

// The searches of one text.
class Regex::Search {
  using Clock = std::chrono::steady_clock;

 public:
  Search(const Compiled& compiled, std::string_view text, MatchBudget& budget)
      : compiled_(compiled),
        text_(text),
        budget_(budget),
        data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    // A word may be as long as the text: white space is walked once more for each alternative.
    const RegexLimits& limits = compiled.limits;
    const size_t n = limits.max_steps + limits.steps_per_byte * text.size();
    const size_t limit = std::min<size_t>(n, UINT32_MAX);
    pcre2_set_match_limit(context_.get(), static_cast<uint32_t>(limit));
  }

  // The first match from `at` on.
  RegexMatch find(size_t at) {
    while (true) {
      const size_t last = start_of_character(std::min(at + kAttempts, text_.size()));
      pcre2_set_offset_limit(context_.get(), last);
      const int status = timed_match(at);
      if (status >= 0) {
        const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data_.get());
        return {ends[0], ends[1]};
      }
      if (status != PCRE2_ERROR_NOMATCH) bad(fmt::format("PCRE2 error {}", status));
      if (last == text_.size()) return {};
      at = start_of_character(last + 1);
    }
  }

 private:
  size_t start_of_character(size_t at) const {
    while (at < text_.size() && (text_[at] & 0xC0) == 0x80) ++at;
    return at;
  }

  static double thread_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  // The thread's own clock takes long to read: only now and then. What is done with the matches
  // counts as well.
  int timed_match(size_t at) {
    constexpr std::chrono::milliseconds kEvery(10);
    const int status = match(at);
    const auto now = Clock::now();
    if (now - looked_ < kEvery) return status;
    const double seconds = thread_seconds();
    budget_.seconds -= seconds - seconds_;
    seconds_ = seconds;
    looked_ = now;
    if (budget_.seconds < 0) bad("it took too long");
    return status;
  }

  int match(size_t at) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text_.data());
    const auto search = [&] {
      return pcre2_match(compiled_.code.get(), subject, text_.size(), at, 0, data_.get(),
                         context_.get());
    };
    const int status = search();
    if (status != PCRE2_ERROR_JIT_STACKLIMIT || stack_) return status;
    constexpr size_t kStackStart = 64 << 10, kStackMax = 64 << 20;
    stack_.reset(pcre2_jit_stack_create(kStackStart, kStackMax, nullptr));
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
    return search();
  }

  [[noreturn]] void bad(const std::string& why) const {
    throw Error(ErrorCode::invalid_argument,
                "expected an expression that matches in bounded time, got '{}' ({})",
                compiled_.pattern.substr(0, 200), why);
  }

  const Compiled& compiled_;
  std::string_view text_;
  MatchBudget& budget_;
  MatchData data_;
  MatchContext context_;
  JitStack stack_;
  Clock::time_point looked_ = Clock::now();
  double seconds_ = thread_seconds();  // of the thread, then
};

MatchBudget match_budget(size_t n_bytes, const RegexLimits& limits) {
  return {limits.seconds + limits.seconds_per_byte * static_cast<double>(n_bytes)};
}

void Regex::for_each(std::string_view text, MatchBudget& budget,
                     const std::function<void(const RegexMatch&)>& visit) const {
  Search search(*compiled_, text, budget);
  size_t last_end = std::string_view::npos;
  for (size_t at = 0; at <= text.size();) {
    const RegexMatch match = search.find(at);
    if (!match.found()) return;
    if (match.end == match.begin && match.end == last_end) {
      at = match.end + 1;
      while (at < text.size() && (text[at] & 0xC0) == 0x80) ++at;
      continue;
    }
    visit(match);
    at = last_end = match.end;
  }
}

}  // namespace octet
