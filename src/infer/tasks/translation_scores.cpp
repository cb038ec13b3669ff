#include "infer/tasks/translation_scores.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "text/unicode.h"

namespace octet {
namespace {

constexpr size_t kWordOrder = 4, kCharacterOrder = 6;

// White space at the beginning of a text as Python's str.split() has it, in bytes of UTF-8; 0 where
// there is none.
size_t n_space(std::string_view text) {
  if (text.empty()) return 0;
  const Character c = decode_utf8(text, 0);
  return is_white_space(c.code) || (c.code >= 0x1c && c.code <= 0x1f) ? c.length : 0;
}

// Bytes of the character at the beginning of a text that is not empty.
size_t n_character(std::string_view text) {
  size_t n = 1;
  while (n < text.size() && (static_cast<unsigned char>(text[n]) & 0xc0) == 0x80) ++n;
  return n;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  bool is_within = false;
  while (!text.empty()) {
    if (const size_t space = n_space(text); space > 0) {
      is_within = false;
      text.remove_prefix(space);
      continue;
    }
    if (!std::exchange(is_within, true)) words.emplace_back();
    const size_t n = n_character(text);
    words.back() += text.substr(0, n);
    text.remove_prefix(n);
  }
  return words;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_stop(char c) {
  return c == '.' || c == ',';
}
// All symbols of ASCII but apostrophe, comma, hyphen and full stop; and the space.
bool is_symbol(char c) {
  const auto within = [&](char first, char last) { return c >= first && c <= last; };
  return within('{', '~') || within('[', '`') || within(' ', '&') || within('(', '+') ||
         within(':', '@') || c == '/';
}

// Each two characters for which `is_pair` holds, from left to right, with spaces by `spaced`.
template <typename IsPair, typename Spaced>
std::string with_pairs(const std::string& text, const IsPair& is_pair, const Spaced& spaced) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    if (i + 1 < text.size() && is_pair(text[i], text[i + 1])) {
      result += spaced(text[i], text[i + 1]);
      i += 2;
    } else {
      result += text[i++];
    }
  }
  return result;
}

using Counts = std::map<std::string, int64_t>;

// n-grams of n parts each, joined by what no part holds.
Counts n_grams(const std::vector<std::string>& parts, size_t n, std::string_view joint) {
  Counts counts;
  for (size_t first = 0; first + n <= parts.size(); ++first) {
    std::string gram;
    for (size_t i = 0; i < n; ++i) gram.append(parts[first + i]).append(joint);
    ++counts[gram];
  }
  return counts;
}

int64_t sum_of(const Counts& counts) {
  int64_t sum = 0;
  for (const auto& [gram, count] : counts) sum += count;
  return sum;
}

int64_t n_matches(const Counts& text, const Counts& reference) {
  int64_t sum = 0;
  for (const auto& [gram, count] : text) {
    const auto at = reference.find(gram);
    if (at != reference.end()) sum += std::min(count, at->second);
  }
  return sum;
}

// The nearest length of a reference, the shorter of equals.
int64_t nearest_length(int64_t length, const std::vector<int64_t>& references) {
  return *std::ranges::min_element(references, {}, [&](int64_t reference) {
    return std::pair(std::abs(length - reference), reference);
  });
}

struct BleuCounts {
  int64_t n_words = 0, n_reference = 0;
  std::array<int64_t, kWordOrder> right = {}, all = {};

  void add(const ScoredText& scored) {
    const std::vector<std::string> words = words_13a(scored.text);
    std::vector<std::vector<std::string>> references;
    std::vector<int64_t> lengths;
    for (const std::string& reference : scored.references) {
      references.push_back(words_13a(reference));
      lengths.push_back(std::ssize(references.back()));
    }
    n_words += std::ssize(words);
    n_reference += nearest_length(std::ssize(words), lengths);
    for (size_t n = 1; n <= kWordOrder; ++n) {
      const Counts grams = n_grams(words, n, " ");
      Counts most;
      for (const auto& reference : references) {
        for (const auto& [gram, count] : n_grams(reference, n, " "))
          most[gram] = std::max(most[gram], count);
      }
      all[n - 1] += sum_of(grams);
      right[n - 1] += n_matches(grams, most);
    }
  }
};

// Counts of n-grams of each order: of the text, of the reference, and of both.
struct ChrfCounts {
  struct Order {
    int64_t text = 0, reference = 0, both = 0;
  };
  std::array<Order, kCharacterOrder> orders = {};

  double f() const {
    constexpr double kFactor = 4;  // beta^2
    double precision = 0, recall = 0;
    int64_t n_orders = 0;
    for (const Order& order : orders) {
      if (order.text == 0 || order.reference == 0) continue;
      precision += static_cast<double>(order.both) / static_cast<double>(order.text);
      recall += static_cast<double>(order.both) / static_cast<double>(order.reference);
      ++n_orders;
    }
    if (n_orders == 0) return 0;
    precision /= static_cast<double>(n_orders);
    recall /= static_cast<double>(n_orders);
    if (precision + recall == 0) return 0;
    double score = (1 + kFactor) * precision * recall;
    score /= kFactor * precision + recall;
    return 100 * score;
  }
};

std::vector<std::string> characters_of(std::string_view text) {
  std::vector<std::string> characters;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t space = n_space(rest), n = space > 0 ? space : n_character(rest);
    if (space == 0) characters.emplace_back(rest.substr(0, n));
    rest.remove_prefix(n);
  }
  return characters;
}

ChrfCounts chrf_counts(const std::vector<Counts>& text, const std::string& reference) {
  const std::vector<std::string> characters = characters_of(reference);
  ChrfCounts counts;
  for (size_t n = 1; n <= kCharacterOrder; ++n) {
    const Counts grams = n_grams(characters, n, "");
    counts.orders[n - 1] = {.text = grams.empty() ? 0 : sum_of(text[n - 1]),
                            .reference = sum_of(grams),
                            .both = n_matches(text[n - 1], grams)};
  }
  return counts;
}

}  // namespace

std::vector<std::string> words_13a(std::string_view text) {
  // White space at the end goes first, before what is looked for in a line.
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t space = n_space(text.substr(at));
    at += space > 0 ? space : n_character(text.substr(at));
    if (space == 0) end = at;
  }
  std::string line(text.substr(0, end));
  line = replaced(replaced(replaced(line, "<skipped>", ""), "-\n", ""), "\n", " ");
  line = replaced(replaced(line, "&quot;", "\""), "&amp;", "&");
  line = " " + replaced(replaced(line, "&lt;", "<"), "&gt;", ">") + " ";
  std::string spaced;
  for (const char c : line) {
    if (is_symbol(c)) {
      spaced.append(1, ' ').append(1, c).append(1, ' ');
    } else {
      spaced += c;
    }
  }
  spaced = with_pairs(
      spaced, [](char a, char b) { return !is_digit(a) && is_stop(b); },
      [](char a, char b) {
        return std::string{a, ' ', b, ' '};
      });
  spaced = with_pairs(
      spaced, [](char a, char b) { return is_stop(a) && !is_digit(b); },
      [](char a, char b) {
        return std::string{' ', a, ' ', b};
      });
  spaced = with_pairs(
      spaced, [](char a, char b) { return is_digit(a) && b == '-'; },
      [](char a, char b) {
        return std::string{a, ' ', b, ' '};
      });
  return split(spaced);
}

double bleu(std::span<const ScoredText> texts) {
  BleuCounts counts;
  for (const ScoredText& one : texts) counts.add(one);
  const bool has_any = std::ranges::any_of(counts.right, [](int64_t n) { return n > 0; });
  if (!has_any) return 0;
  double penalty = 1;
  if (counts.n_words < counts.n_reference) {
    penalty =
        std::exp(1 - static_cast<double>(counts.n_reference) / static_cast<double>(counts.n_words));
  }
  double halves = 1, sum = 0;
  for (size_t i = 0; i < kWordOrder; ++i) {
    // Orders that no text is long enough for make the product 0.
    constexpr double kLogOfZero = -9999999999;
    double precision = 0;
    if (counts.all[i] > 0 && counts.right[i] > 0) {
      precision = 100.0 * static_cast<double>(counts.right[i]) / static_cast<double>(counts.all[i]);
    } else if (counts.all[i] > 0) {
      halves *= 2;
      precision = 100.0 / (halves * static_cast<double>(counts.all[i]));
    }
    sum += precision > 0 ? std::log(precision) : kLogOfZero;
  }
  return penalty * std::exp(sum / static_cast<double>(kWordOrder));
}

double chrf(std::span<const ScoredText> texts) {
  ChrfCounts total;
  for (const ScoredText& one : texts) {
    const std::vector<std::string> characters = characters_of(one.text);
    std::vector<Counts> grams;
    for (size_t n = 1; n <= kCharacterOrder; ++n) grams.push_back(n_grams(characters, n, ""));
    ChrfCounts best;
    double best_f = -1;
    for (const std::string& reference : one.references) {
      const ChrfCounts counts = chrf_counts(grams, reference);
      if (const double f = counts.f(); f > best_f) best_f = f, best = counts;
    }
    for (size_t i = 0; i < kCharacterOrder; ++i) {
      total.orders[i].text += best.orders[i].text;
      total.orders[i].reference += best.orders[i].reference;
      total.orders[i].both += best.orders[i].both;
    }
  }
  return total.f();
}

}  // namespace octet
