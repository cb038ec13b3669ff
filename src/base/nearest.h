// The name probably meant by one that is not known, for messages about keys, values, commands,
// flags, tasks and files: a synonym first, then a part of a name, a slip of the pen last, and
// nothing where none of these is near, since a wrong hint costs more than none.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octet {

// Words of other programs, and what they are called here. A word is written in small letters with
// underscores, and holds for every section unless it has a dot.
struct Synonym {
  std::string_view words;  // separated by blanks
  // The first of these that is among the names that are known; none: no hint at all, however near
  // a name may be.
  std::string_view known;
  std::string_view shown = {};  // in its place
};
std::span<const Synonym> synonyms();

// Insertions, deletions, substitutions and swaps of neighbours that turn a into b, each of cost 1.
int edit_distance(std::string_view a, std::string_view b);

// The known name that the word stands for: itself but for case, dashes and section, or by the table
// of synonyms. Empty where there is none.
std::string synonym_of(std::string_view word, const std::vector<std::string>& known);

// The same, else the name that the word is a part of or has for a part, else the one at the least
// edit distance, of at most one edit for four letters. Numbers are never corrected: e3m4 is not
// near e4m3. The first one among equals; empty where nothing is near.
std::string nearest_name(std::string_view word, const std::vector<std::string>& known);

// nearest_name() behind some words, "; the nearest is lr"; empty where it is.
std::string nearest_hint(std::string_view before, std::string_view word,
                         const std::vector<std::string>& known);

}  // namespace octet
