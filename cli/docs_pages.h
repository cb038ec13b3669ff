// Reference pages made from the program's tables: `octet docs PAGE`, and with --json their data.
#pragma once

#include <string>

#include "base/ordered_json.h"

namespace octet {

struct DocsPage {
  std::string markdown;
  OrderedJson json = OrderedJson::array();
};

// The table of scale rules in docs/scalify.md: a line for each rule, with the ops that have it.
// JSON: op, operands, as_values (wanted as values, scale 1), scale, data; the last two, of its
// results, are null where it has no rule. CHECKs that each rule of an op has its words.
DocsPage scale_rules_page();

// The table of quantized types in docs/numerics.md, formats x granularities, made by asking both
// back ends how an op reads an operand of the type: with a kernel, decoded before, or not at all.
// JSON: type, gemm, norm, activation, moment, dequantize: cpu and gpu of each.
DocsPage types_page();

// docs/kernels.md: the rows of kernels of both back ends, made by planning every recipe. JSON:
// backend, op, row, speed (empty, generic, reference), types (text: recipes), bytes (an element of
// the largest tensor), flops (a byte).
DocsPage kernels_page();

}  // namespace octet
