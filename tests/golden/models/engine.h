// The two ways to run a graph that the goldens are compared with.
#pragma once

#include <string_view>

#include "backends/cpu/reference/reference.h"

namespace octet::golden {

struct Engine {
  std::string_view name;
  // Inputs and outputs by name; inputs that the graph has none of are not looked at.
  reference::Tensors (*run)(const Graph& graph, const reference::Tensors& inputs);
};

// The reference interpreter: doubles where the graph is Logical.
extern const Engine kReference;
// The plan on the CPU back end's fast kernels, in f32.
extern const Engine kCpu;

}  // namespace octet::golden
