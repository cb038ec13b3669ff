#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>

#include "base/error.h"

namespace octet {
namespace {

constexpr std::string_view kSpaces =
    R"(\t-\r\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

constexpr size_t kLongestPattern = 64 << 10;

// PCRE2's \s has U+180E as well.
std::string with_white_space(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        out += in_class ? std::string(kSpaces) : fmt::format("[{}]", kSpaces);
      } else if (escaped == 'S' && !in_class) {
        out += fmt::format("[^{}]", kSpaces);
      } else {
        out += {c, escaped};
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

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
};

Regex::Regex(const std::string& pattern) : compiled_(std::make_unique<Compiled>()) {
  const auto bad = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, "expected a regular expression, got '{}': {}",
                pattern.substr(0, 200), why);
  };
  if (pattern.size() > kLongestPattern) bad("longer than 64 KiB");
  const std::string spelled = with_white_space(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled_->pattern = pattern;
  compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                                      PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error,
                                      &offset, nullptr));
  if (!compiled_->code) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof message);
    bad(reinterpret_cast<const char*>(message));
  }
  // Without the compiler (a sandbox may forbid code in memory) the expression is interpreted.
  pcre2_jit_compile(compiled_->code.get(), PCRE2_JIT_COMPLETE);
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

Match Regex::find(std::string_view text, size_t at) const {
  const MatchData data(pcre2_match_data_create_from_pattern(compiled_->code.get(), nullptr));
  int status = pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                           text.size(), at, 0, data.get(), nullptr);
  if (status == PCRE2_ERROR_JIT_STACKLIMIT) {
    constexpr size_t kStackStart = 64 << 10, kStackMost = 64 << 20;
    const MatchContext context(pcre2_match_context_create(nullptr));
    const JitStack stack(pcre2_jit_stack_create(kStackStart, kStackMost, nullptr));
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    status = pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                         text.size(), at, 0, data.get(), context.get());
  }
  if (status == PCRE2_ERROR_NOMATCH) return {};
  if (status <= 0) {
    throw Error(ErrorCode::invalid_argument,
                "expected an expression that matches in bounded time, got '{}' (PCRE2 error {})",
                compiled_->pattern.substr(0, 200), status);
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
  return {ends[0], ends[1]};
}

}  // namespace octet
