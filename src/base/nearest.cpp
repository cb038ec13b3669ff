#include "base/nearest.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace octet {
namespace {

bool is_digit(char ch) {
  return ch >= '0' && ch <= '9';
}

// A name in the form that is compared: small letters, underscores, no dashes of a flag.
std::string plain(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of("- "), name.size()));
  while (name.ends_with(' ')) name.remove_suffix(1);
  std::string text(name);
  for (char& ch : text) {
    if (ch >= 'A' && ch <= 'Z') ch = static_cast<char>(ch - 'A' + 'a');
    if (ch == '-' || ch == ' ') ch = '_';
  }
  return text;
}

// True if dots part sections: not in "llama-1.2b" and "qwen2.5".
bool is_path(std::string_view name) {
  for (size_t at = name.find('.'); at != name.npos; at = name.find('.', at + 1)) {
    if ((at > 0 && is_digit(name[at - 1])) || (at + 1 < name.size() && is_digit(name[at + 1])))
      return false;
  }
  return name.find('.') != name.npos && std::ranges::all_of(name, [](char ch) {
           return (ch >= 'a' && ch <= 'z') || is_digit(ch) || ch == '_' || ch == '.';
         });
}

std::string_view leaf(std::string_view name) {
  return is_path(name) ? name.substr(name.rfind('.') + 1) : name;
}

std::string_view section(std::string_view name) {
  return is_path(name) ? name.substr(0, name.rfind('.')) : std::string_view();
}

// The numbers of a name, each with the letter of its unit: 2 and 7b of llama-2-7b.
std::vector<std::string> numbers(std::string_view name) {
  std::vector<std::string> all;
  for (size_t i = 0; i < name.size();) {
    if (!is_digit(name[i++])) continue;
    std::string number(1, name[i - 1]);
    while (i < name.size() && is_digit(name[i])) number += name[i++];
    if (i < name.size() && std::string_view("bmkg").find(name[i]) != std::string_view::npos)
      number += name[i];
    all.push_back(std::move(number));
  }
  return all;
}

// True if one has the other's numbers, in their order.
bool have_equal_numbers(std::string_view a, std::string_view b) {
  std::vector<std::string> more = numbers(a), fewer = numbers(b);
  if (more.size() < fewer.size()) more.swap(fewer);
  auto at = more.begin();
  for (const std::string& number : fewer) {
    at = std::find(at, more.end(), number);
    if (at == more.end()) return false;
    ++at;
  }
  return true;
}

bool is_among(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

// A row's answer: the first of its names that is known. What is shown in the place of a command
// stands for no key, whose section may have the command's name.
std::string answer(const Synonym& row, const std::vector<std::string>& known) {
  if (!row.shown.empty() && std::ranges::any_of(known, is_path)) return "";
  std::string_view rest = row.known;
  while (!rest.empty()) {
    const std::string name(rest.substr(0, rest.find(' ')));
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
    if (std::ranges::find(known, name) == known.end()) continue;
    return row.shown.empty() ? name : std::string(row.shown);
  }
  return "";
}

// By the table; nullopt where it has no row for the word, empty where it has one that forbids.
std::optional<std::string> by_table(std::string_view word, const std::vector<std::string>& known) {
  std::optional<std::string> found;
  for (const Synonym& row : synonyms()) {
    if (!is_among(row.words, word)) continue;
    const std::string name = answer(row, known);
    if (!name.empty()) return name;
    if (row.known.empty()) found = "";
  }
  return found;
}

// The first name that is the word, as seen through `part`.
template <typename Part>
std::optional<std::string> equal_name(std::string_view word, const std::vector<std::string>& known,
                                      const Part& part) {
  const auto found = std::ranges::find_if(known, [&](const std::string& name) {
    const std::string candidate = plain(name);
    return part(candidate) == word;
  });
  return found == known.end() ? std::nullopt : std::optional(*found);
}

// The answer that needs no guess: all of the word before its part behind the section.
std::optional<std::string> meant(const std::string& word, const std::vector<std::string>& known) {
  const auto all = [](std::string_view name) { return name; };
  if (auto found = equal_name(word, known, all)) return found;
  if (auto found = by_table(word, known)) return found;
  if (auto found = equal_name(leaf(word), known, leaf)) return found;
  return by_table(leaf(word), known);
}

// The share of the longer one that the shorter one is, where it is a part of it and near enough for
// a hint; 0 where not. An abbreviation may be shorter than another part.
double part_of(std::string_view word, std::string_view name) {
  constexpr size_t kShortest = 4;
  constexpr double kMinShare = 0.5, kMinBeginningShare = 0.3;
  const bool is_within = name.find(word) != name.npos;
  if (!is_within && word.find(name) == word.npos) return 0;
  const size_t shorter = std::min(word.size(), name.size());
  const double share =
      static_cast<double>(shorter) / static_cast<double>(std::max(word.size(), name.size()));
  const bool is_near = share >= (name.starts_with(word) ? kMinBeginningShare : kMinShare);
  return is_near && shorter >= kShortest && have_equal_numbers(word, name) ? share : 0;
}

// True if names of the word's section are known: another section's names that only look alike are
// not what is meant.
bool has_section(std::string_view word, const std::vector<std::string>& known) {
  return !section(word).empty() && std::ranges::any_of(known, [&](const std::string& name) {
    return section(plain(name)) == section(word);
  });
}

std::string by_part(const std::string& word, const std::vector<std::string>& known) {
  const bool is_of_section = has_section(word, known);
  std::string best;
  double best_share = 0;
  for (const std::string& name : known) {
    const std::string candidate = plain(name);
    if (is_of_section && section(word) != section(candidate)) continue;
    double share = part_of(leaf(word), leaf(candidate));
    if (share > 0 && section(word) != section(candidate)) share -= 0.01;
    if (share <= best_share) continue;
    best = name;
    best_share = share;
  }
  return best;
}

// A key that was written below another.
std::string by_section(const std::string& word, const std::vector<std::string>& known) {
  const auto found = std::ranges::find_if(known, [&](const std::string& name) {
    const std::string candidate = plain(name);
    return is_path(candidate) && word.starts_with(candidate + ".");
  });
  return found == known.end() ? "" : *found;
}

// Nobody mistypes the first letter, but for its neighbour.
bool begin_alike(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return false;
  return a[0] == b[0] || (a.size() > 1 && b.size() > 1 && a[0] == b[1] && a[1] == b[0]);
}

std::string by_distance(const std::string& word, const std::vector<std::string>& known) {
  constexpr size_t kLettersAnEdit = 4;
  const bool is_of_section = has_section(word, known);
  std::string best;
  int best_cost = 0;
  for (const std::string& name : known) {
    const std::string candidate = plain(name);
    if (is_of_section && section(word) != section(candidate)) continue;
    const std::string_view a = leaf(word), b = leaf(candidate);
    const size_t longer = std::max(a.size(), b.size());
    if (!begin_alike(a, b) || longer < 3 || !have_equal_numbers(a, b)) continue;
    const int distance = edit_distance(a, b);
    if (distance > static_cast<int>((longer + kLettersAnEdit - 1) / kLettersAnEdit)) continue;
    const int cost = 2 * distance + (section(word) == section(candidate) ? 0 : 1);
    if (!best.empty() && cost >= best_cost) continue;
    best = name;
    best_cost = cost;
  }
  return best;
}

// The distance is quadratic, and a message needs no more.
std::string short_word(std::string_view word) {
  constexpr size_t kLongestWord = 200;
  return plain(word.substr(0, kLongestWord));
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

std::string synonym_of(std::string_view word, const std::vector<std::string>& known) {
  return meant(short_word(word), known).value_or("");
}

std::string nearest_name(std::string_view word, const std::vector<std::string>& known) {
  const std::string name = short_word(word);
  if (name.empty()) return "";
  if (const auto found = meant(name, known)) return *found;
  for (const auto find : {by_part, by_distance, by_section}) {
    std::string near = find(name, known);
    if (!near.empty()) return near;
  }
  return "";
}

std::string nearest_hint(std::string_view before, std::string_view word,
                         const std::vector<std::string>& known) {
  const std::string name = nearest_name(word, known);
  return name.empty() ? "" : std::string(before) + name;
}

}  // namespace octet
