// Sets of characters within expressions of Oniguruma (text/oniguruma.h), as PCRE2 spells them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octet {

// A union of what stands in brackets and of expressions that match one character each.
struct CharacterSet {
  std::string items;
  std::vector<std::string> others;

  bool empty() const { return items.empty() && others.empty(); }
  void add(const CharacterSet& other);
  std::string expression() const;          // matches one character
  std::string bare_expression() const;     // the same; a property alone without brackets
  std::string without_expression() const;  // matches one that is not in the set
};

CharacterSet complement(const CharacterSet& set);
CharacterSet intersection(const CharacterSet& left, const CharacterSet& right);

enum class SetPlace { bare, in_class };
// \d, \D, \w, \W, \s, \S, \h, \H; empty for other letters.
CharacterSet set_of_letter(char letter, SetPlace place);
// [:name:] and \p{name}; `is_closed` where it holds both cases of each of its letters, or none.
struct NamedSet {
  CharacterSet set;
  bool is_closed = false;
};
// Empty for other names.
NamedSet posix_set(std::string_view name);
NamedSet property_set(std::string_view name);

// Spelled for a class.
std::string class_character(int32_t code);

}  // namespace octet
