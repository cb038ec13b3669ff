// The first few of many things, and how many there are, as a message shows them.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

namespace octet {

inline constexpr int64_t kMaxWarnings = 5;  // of one kind, before they are counted alone

// "a, b, c", of more than `n_most` names "a, b, c and 997 more".
inline std::string first_few(std::span<const std::string> names, size_t n_most = 12) {
  const std::string text =
      fmt::format("{}", fmt::join(names.first(std::min(n_most, names.size())), ", "));
  return names.size() <= n_most ? text : fmt::format("{} and {} more", text, names.size() - n_most);
}

}  // namespace octet
