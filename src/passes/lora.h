// Low-rank adapters as a graph pass: Logical -> Logical. Source: Hu et al., LoRA, ICLR 2022; names
// and scaling are PEFT's.
//
// Each linear y = x W^T of the layers that a target names becomes
//   y = x W^T + ((alpha / rank) drop(x) A^T) B^T
//   A: [rank, in], B: [out, rank], new parameters "<module>.lora_A.weight",
//   "<module>.lora_B.weight"
// where <module>.weight is W. What were parameters before, but those of a new head, are frozen
// (passes/freeze.h). drop multiplies by the batch input "dropout:<module>", like x, where the share
// is above 0: 0 with this probability, else 1 / (1 - share). Deterministic.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace octet {

struct LoraOptions {
  int64_t rank = 0;  // 0: no adapters
  double alpha = 32;
  double dropout = 0;  // share of x's elements, from 0 to below 1
  // Patterns (passes/precision/policy.h) over the module's path, its last part, or the linear's
  // short name "layers.3.q_proj".
  std::vector<std::string> targets = {"*"};
  std::vector<std::string> head = {};  // parameters that are trained whole, beside the adapters
  bool operator==(const LoraOptions&) const = default;
};

// An adapter: two factors beside the weight of one linear.
struct LoraAdapter {
  std::string module;  // "model.layers.3.self_attn.q_proj"
  int64_t n_in = 0, n_out = 0;
  bool out_in = true;  // how the weight lies: [out, in], or [in, out] (GPT-2's)
  std::string weight() const { return module + ".weight"; }
  std::string a() const { return module + ".lora_A.weight"; }
  std::string b() const { return module + ".lora_B.weight"; }
};

// Those of a model's forward graph, in order. Throws Error{invalid_argument} naming a target that
// matches no linear of the layers.
std::vector<LoraAdapter> lora_adapters(const Graph& forward, const LoraOptions& options);

// The module of such a name; nothing where it is none.
std::optional<std::string> dropout_module(std::string_view input);

// Throws as lora_adapters does.
Graph add_lora(const Graph& forward, const LoraOptions& options);

}  // namespace octet
