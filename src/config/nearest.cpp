#include "config/nearest.h"

#include <algorithm>
#include <numeric>

namespace octet {
namespace {

std::string_view leaf(std::string_view path) {
  return path.substr(path.rfind('.') + 1);
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  std::iota(previous.begin(), previous.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substituted = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, substituted});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(previous);
    previous.swap(row);
  }
  return previous[b.size()];
}

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kLongestWord = 200;  // the distance is quadratic, and a message needs no more
  word = word.substr(0, kLongestWord);
  std::string best;
  int best_distance = 0;
  for (const std::string& candidate : candidates) {
    int distance = edit_distance(word, candidate);
    if (leaf(word) == leaf(candidate)) distance = std::min(distance, 1);
    if (best.empty() || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace octet
