// Escapes and classes of Oniguruma's expressions (text/oniguruma.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "text/oniguruma_reader.h"
#include "text/oniguruma_sets.h"

namespace octet {

enum class Case { counts, ignored };

// Behind a backslash: \d and its like, \p{...}. None, and nothing read, for other escapes.
std::optional<NamedSet> take_escaped_set(PatternReader& reader, SetPlace place);
// Behind a backslash: the character that it stands for.
int32_t take_escaped_character(PatternReader& reader);
// Behind an opening bracket, up to and with the closing one.
CharacterSet take_class(PatternReader& reader, Case letters);

// A character with its case folded, which may be several.
std::u32string folded_case(int32_t code);
// Calls fn for each character that folds to several.
using FoldVisit = std::function<void(int32_t code, const std::u32string& folded)>;
void for_each_folded_to_several(const FoldVisit& fn);

}  // namespace octet
