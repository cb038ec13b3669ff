// Numbers in generated answers, found as lm-eval's gsm8k finds them:
//   strict    #### (\-?[0-9\.\,]+)                     the first
//   flexible  (-?[$0-9.,]{2,})|(-?[0-9]+)              the last
#include "infer/tasks/evaluate_tasks.h"

namespace octet {
namespace {

constexpr std::string_view kMark = "#### ", kDigits = "0123456789";

// Characters of `set` from `at` on.
size_t n_of(std::string_view text, size_t at, std::string_view set) {
  const size_t end = text.find_first_not_of(set, at);
  return at > text.size() ? 0 : std::min(end, text.size()) - at;
}

}  // namespace

std::string strict_number(const std::string& answer) {
  for (size_t at = answer.find(kMark); at != std::string::npos; at = answer.find(kMark, at + 1)) {
    const size_t begin = at + kMark.size();
    const size_t sign = begin < answer.size() && answer[begin] == '-' ? 1 : 0;
    const size_t n = n_of(answer, begin + sign, "0123456789.,");
    if (n > 0) return answer.substr(begin, sign + n);
  }
  return {};
}

std::string flexible_number(const std::string& answer) {
  std::string last;
  for (size_t at = 0; at < answer.size();) {
    const size_t sign = answer[at] == '-' ? 1 : 0;
    const size_t n_long = n_of(answer, at + sign, "$0123456789.,");
    const size_t n = n_long >= 2 ? n_long : n_of(answer, at + sign, kDigits);
    if (n > 0) last = answer.substr(at, sign + n);
    at += n > 0 ? sign + n : 1;
  }
  return last;
}

std::string plain_number(std::string number) {
  if (const size_t mark = number.rfind(kMark); mark != std::string::npos) {
    number.erase(0, mark + kMark.size());
  }
  std::erase_if(number, [](char c) { return c == ',' || c == '$'; });
  if (number.ends_with('.')) number.pop_back();
  return number;
}

}  // namespace octet
