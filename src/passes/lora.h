// Low-rank adapters as a graph pass: Logical -> Logical. Source: Hu et al., LoRA, ICLR 2022; names
// and scaling are PEFT's.
//
// Each linear y = x W^T of the layers that a target names becomes
//   y = x W^T + (s drop(x) A^T) B^T
//   s = alpha / rank; of rslora alpha / sqrt(rank) (Kalajdzievski 2023)
//   A: [rank, in], B: [out, rank], new parameters "<module>.lora_A.weight",
//   "<module>.lora_B.weight"
// where <module>.weight is W. Of dora (Liu et al., DoRA, ICML 2024)
//   y = g (x W^T + s (x A^T) B^T),  g[o] = m[o] / n[o],  n[o] = |W[o] + s B[o] A|
//   m: [out], a new parameter "<module>.lora_magnitude_vector"
// where n is a constant to the gradient, as in PEFT. It is made of |W|, the constant
// "lora_norm:<module>", without another matrix of W's size:
//   n^2 = |W|^2 + s sum_r B[o, r] (2 A W^T + s A A^T B^T)[r, o]
// with sums over r and what follows in f32. What were parameters before, but those of a new head,
// are frozen (passes/freeze.h). drop multiplies by the batch input "dropout:<module>", like x,
// where the share is above 0: 0 with this probability, else 1 / (1 - share). Deterministic.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/named_enum.h"
#include "ir/graph.h"

namespace octet {

enum class LoraKind : uint8_t { lora, rslora, dora };
constexpr auto value_names(LoraKind) {
  return name_list("lora", "rslora", "dora");
}

// Scale of the product of an adapter's two factors.
double lora_scale(LoraKind kind, int64_t rank, double alpha);

// Rank of linears that have another one: "PATTERN=RANK" or "PATTERN=RANK:ALPHA".
struct LoraRank {
  std::string pattern;
  int64_t rank = 0;
  std::optional<double> alpha;
};
// Nothing for a text that is none.
std::optional<LoraRank> lora_rank_from_text(std::string_view text);

inline constexpr int64_t kMaxLoraRank = 1 << 16;

struct LoraOptions {
  LoraKind kind = LoraKind::lora;
  int64_t rank = 0;  // 0: no adapters
  double alpha = 32;
  double dropout = 0;  // share of x's elements, from 0 to below 1
  // Patterns (passes/precision/policy.h) over the module's path, its last part, or the linear's
  // short name "layers.3.q_proj".
  std::vector<std::string> targets = {"*"};
  std::vector<std::string> ranks = {};  // texts of LoraRank; the first that matches counts
  std::vector<std::string> head = {};   // parameters that are trained whole, beside the adapters
  // Patterns of parameters (train.freeze): a linear whose weight matches has no adapter.
  std::vector<std::string> freeze = {};
  bool operator==(const LoraOptions&) const = default;
};

// True if a pattern of `freeze` matches a parameter.
bool is_kept_frozen(const LoraOptions& options, std::string_view parameter);

// An adapter: two factors beside the weight of one linear.
struct LoraAdapter {
  std::string module;  // "model.layers.3.self_attn.q_proj"
  int64_t n_in = 0, n_out = 0;
  bool out_in = true;  // how the weight lies: [out, in], or [in, out] (GPT-2's)
  int64_t rank = 0;
  double alpha = 0, scale = 1;  // alpha / rank, or as the kind says
  // The last part of the path, "q_proj".
  std::string part() const { return module.substr(module.rfind('.') + 1); }
  std::string weight() const { return module + ".weight"; }
  std::string a() const { return module + ".lora_A.weight"; }
  std::string b() const { return module + ".lora_B.weight"; }
  std::string magnitude() const { return module + ".lora_magnitude_vector"; }  // of DoRA, [out]
};

// Adapters of a model's forward graph, in order. Throws Error{invalid_argument} naming a target, or
// a pattern of a rank, that matches no linear of the layers.
std::vector<LoraAdapter> lora_adapters(const Graph& forward, const LoraOptions& options);

// The constant |W| of each output that DoRA reads; [out].
std::string lora_norm_name(std::string_view module);

// The module of such a name; nothing where it is none.
std::optional<std::string> dropout_module(std::string_view input);

// Throws as lora_adapters does.
Graph add_lora(const Graph& forward, const LoraOptions& options);

}  // namespace octet
