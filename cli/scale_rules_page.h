// The table of scale rules in docs/scalify.md, made from the op table: `octet docs scale-rules`.
#pragma once

#include <string>

namespace octet {

// A line for each rule, with the ops that have it. CHECKs that each rule of an op has its words.
std::string scale_rules_markdown();

}  // namespace octet
