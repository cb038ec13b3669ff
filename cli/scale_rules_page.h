// The table of scale rules in docs/scalify.md, made from the op table: `octet docs scale-rules`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octet {

// What becomes of the scales of an op's operands, in words.
struct OpScaleRule {
  std::string_view op;
  std::vector<std::string_view> operands = {};
  std::vector<std::string_view> as_values = {};  // operands that are wanted as values, scale 1
  std::string_view scale = {}, data = {};        // of the results; empty where there is no rule
};

// Of every op, in the op table's order. CHECKs that each rule of an op has its words.
std::vector<OpScaleRule> scale_rules();

// A line for each rule, with the ops that have it.
std::string scale_rules_markdown();

}  // namespace octet
