// JSON values that Python's json module reads and ours cannot hold: NaN, infinities, numbers beyond
// a double, integers beyond 64 bits, and texts with half of a surrogate pair. They are kept as what
// they are called, so that a file is read all the same; whoever uses one refuses it by name.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace octet {

template <typename J>
J unread_json(std::string_view what) {
  return J::binary({what.begin(), what.end()});
}

// "NaN", "the integer 1000...", "a text with \ud83d, half of a pair"; nothing that a file can make.
template <typename J>
std::string what_is_unread(const J& json) {
  const auto& bytes = json.get_binary();
  return {bytes.begin(), bytes.end()};
}

// Text that a strict parser reads: the n-th value that it would not is the text MARK + n, where the
// mark stands nowhere else.
struct ReadableJson {
  struct Odd {
    std::string name;
    bool is_text = false;
  };
  std::string text, mark;
  std::vector<Odd> odd;
};
ReadableJson readable_json(std::string_view text);

std::string name_of_integer(std::string_view digits);

}  // namespace octet
