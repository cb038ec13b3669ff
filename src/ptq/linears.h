// The places of a model that post-training quantization works on, in the order of its graph.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace octet {

struct PtqLinear {
  std::string name = {};    // "layers.3.q_proj", "lm_head", of encoders "classifier"
  std::string weight = {};  // the parameter's
  NodeId node = kNoNode;
  int64_t n_in = 0, n_out = 0;
  bool is_in_out = false;  // the weight is stored [in, out]
};

// The norm whose result only these linears read: what their inputs are divided by, its parameters
// may be divided by instead. Without weight: there is none.
struct PtqNorm {
  std::string weight = {}, bias = {};
};

// Linears of a layer that read one value, or (no linears) a residual sum that reads two.
struct PtqSite {
  NodeId first = kNoNode;  // node: what it reads is made before
  ValueIds reads = {};     // x; a and b of a sum
  std::vector<PtqLinear> linears = {};
  std::vector<std::string> kept = {};  // names of a layer's linears that read x and are left out
  PtqNorm norm = {};
  std::string layer = {};  // of a sum, "layers.3", and which of the layer's it is
  int sum = 0;
};

struct PtqSearch {
  std::vector<std::string> keep;  // patterns of linears that are left out; "lm_head": the last one
  // The prefix of modules that are in no layer, which their names leave out; nothing: a decoder,
  // whose one such linear is the head. Those of a model that sees pictures are named by their part:
  // vision.patch_embedding, projector.linear_1.
  std::optional<std::string> prefix = {};
  bool residual = false;  // sums too
};

// By value: true of what is made of pictures alone ("pictures"), before it stands among tokens.
std::vector<bool> picture_values(const Graph& graph);

// "layers.3.q_proj, k_proj", "layers.3.residual.1".
std::string site_name(const PtqSite& site);

// Sites of a typed graph that runs forward. A weight that the graph reads otherwise (a tied head)
// is left out. Throws Error{invalid_argument} where no linear is left, or a pattern matches none
// (but the default's).
std::vector<PtqSite> find_sites(const Graph& graph, const PtqSearch& search);

}  // namespace octet
