// The nearest known name, for messages about unknown keys, commands and flags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octet {

// Insertions, deletions, substitutions and swaps of neighbours that turn a into b, each of cost 1.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to word; the first one among equals, empty without candidates. A candidate
// whose part after the last dot equals the word's is at distance 1: a key written in the wrong
// section finds its own.
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace octet
