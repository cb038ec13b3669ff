// Reports of a plan about itself: memory by role at the peak, what each layer keeps for its
// backward, counts of kernels, and the straight-line program as text.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace octet {

struct MemoryReport {
  int64_t peak_bytes = 0;  // what is allocated: all arenas
  int peak_step = 0;       // the step with the most bytes live
  // At the peak step; gaps between buffers count as `other`, so the roles sum to peak_bytes.
  std::array<int64_t, kMemoryRoleCount> by_role{};
  // Bytes live at the peak step by layer; -1: outside the layers.
  std::map<int, int64_t> by_layer;
};

MemoryReport report_memory(const Plan& plan);

// Per layer: bytes of the values that forward nodes produced and backward nodes of that layer read,
// its own input included, parameters and inputs of the graph not. Buffers shared by views and
// in-place results count once; a value made outside of all layers counts in the first that reads
// it.
std::vector<int64_t> kept_per_layer(const Graph& graph);
// Their names in the same order: "layers.0", of a model with several stacks "encoder.layers.0".
std::vector<std::string> layer_names(const Graph& graph);

// "gemm e4m3 x e4m3" -> 56: nodes by op and, for gemm, dtypes of its two factors. `layers_only`:
// nodes inside layers.
std::map<std::string, int64_t> count_ops(const Graph& graph, bool layers_only = false);

enum class Offsets : uint8_t { no, yes };
// Titles, then one line a step: number, layer, role, module; kernel; results with their types, and
// where they lie in memory if asked; operands; the results' bytes, and scratch memory; the kernels
// that are launched, where they are told.
std::string program_text(const Plan& plan, Offsets offsets);

}  // namespace octet
