// The graph as text. One line a statement; the text parses back to the same graph (ir/parse.h).
//
//   graph "name" phase logical
//   %0 = input parameter "w" : real[8]
//   %2, %3 = rms_norm(%1, weight = %0) {eps = 1e-05} : real[4,8], real[4] @ layer 0, forward,
//   "norm" output "y" %2 output "w" %9 updates %0
//
// Operands and results that could be absent are named, `weight = %0` and `%5:dweight`, the others
// stand in the order of their slots (ir/ops/slots.h). Attributes equal to their defaults are
// printed too: a line says all.
#pragma once

#include <string>

#include "ir/graph.h"

namespace octet {

std::string print(const Graph& graph);
// One node as its line, for error messages and reports.
std::string print(const Graph& graph, const Node& node);

}  // namespace octet
