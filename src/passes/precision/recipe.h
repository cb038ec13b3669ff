// A recipe turns the differentiated Logical graph into the Typed one: every value gets a dtype, and
// the recipes of eight bits make the quantizers and scales explicit. One file per recipe in this
// folder; the list is in recipe.cpp.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/named_enum.h"
#include "ir/graph.h"
#include "ir/scale.h"
#include "passes/memory/recompute.h"
#include "passes/parallel/options.h"
#include "passes/precision/policy.h"
#include "passes/precision/store_frozen.h"

namespace octet {

// Gradients that are rescaled by a norm that is measured in the step, of recipes with propagated
// scales: those that leave norms, and those of parameters.
enum class DynamicRescale : uint8_t { none, norms, norms_and_gradients };
constexpr auto value_names(DynamicRescale) {
  return name_list("none", "norms", "norms_and_gradients");
}

// Choices of a run; absent: the recipe's own choice.
struct RecipeOptions {
  Dtype gradient = Dtype::bf16;  // of parameters' gradients, where the recipe computes below f32
  std::vector<LinearOverride> overrides = {};
  std::optional<Scaling> scaling = {};
  std::optional<WeightCopy> weight_copy = {};
  std::optional<Recompute> recompute = {};  // what follows; decides where transposed codes are made
  bool tf32 = false;                        // fp32: products may round their factors (GemmAttrs)
  // log2 of the RMS that a parameter starts with, for recipes that predict scales; -inf: zeros.
  std::map<std::string, double> initial_rms = {};
  DynamicRescale rescale = DynamicRescale::none;
  ScaleRounding scale_rounding = ScaleRounding::predicted;  // of values that carry scales
  std::vector<EdgeScale> edge_scales = {};  // there too, and of predicted quantizers
  // Dtype that parameters' gradients are rounded to at their own scales, where values carry scales.
  std::optional<Dtype> scaled_gradient = {};
  bool k_major = true;                // products of codes want both factors K-major
  bool detects_overflow = false;      // saturated gradients refuse the step (quantize_linears.h)
  std::optional<Dtype> compute = {};  // of recipes that compute in BF16: that, or FP16
  Rounding gradient_rounding = Rounding::near;  // of gradients' codes: near, sr; HiFloat8's rne, hr
  BlockScale block_scale = BlockScale::max;     // of blocks, but of E8M0 scales
  ScaleRule mx_rule = ScaleRule::power_ceil;    // of E8M0 scales: that, or mx_floor
  std::optional<Accumulation> accumulation = {};  // of the GEMMs of codes
  std::optional<Dtype> activations = {};  // of saved activations, in groups; bf16: as they are
  ForwardReads forward_reads = ForwardReads::unquantized;  // where activations are saved so
  SavedAttention saved_attention = SavedAttention::wide;   // there too
  Granularity activation_group = kGroupsOf16;              // there too: 1xG or BxB
  // coat-static: linears' results that activations read are stored with one predicted scale each.
  bool quantizes_linear_outputs = false;
  FrozenFormat frozen = FrozenFormat::as_computed;  // of constants (store_frozen.h)
  int64_t trained_seq = 0;  // unit_scaling: what attention's factors are made for; 0: the graph's
};

struct Recipe {
  std::string_view name;
  std::string_view help;
  Dtype compute = Dtype::bf16;                   // of parameters and activations
  LinearFormats linears = {.quantized = false};  // of the GEMMs inside the layers
  // Recomputation and optimizer states of the recipe, unless the run says otherwise.
  Recompute recompute = Recompute::none;
  std::string_view state = "f32";
  std::string_view state_v = {};             // the second moment, where it is stored otherwise
  std::string_view master = {};              // where it is not what default_master says
  ReduceFormat reduce = ReduceFormat::bf16;  // gradients between ranks, likewise
  Scaling scaling = Scaling::current;
  WeightCopy weight_copy = WeightCopy::scale;
  FastAccumulate fast_accumulate = FastAccumulate::forward;
  std::optional<Dtype> activations = {};  // inputs of norms and activations that are kept in groups
  bool scales_loss = true;                // false: scales are propagated, and loss scaling refused
  // The model is another one, with parameters N(0, 1) (passes/scalify/unit_scaling.h).
  bool unit_scales = false;
  Graph (*apply)(const Recipe& recipe, const Graph& graph, const RecipeOptions& options);
};

// The recipe as the run's options change it: what it computes in, and saved activations.
Recipe chosen_recipe(std::string_view name, const RecipeOptions& options);

// Masters unless the run says otherwise: 16 bits more where weights are BF16, else f32.
constexpr std::string_view default_master(Dtype compute) {
  return compute == Dtype::bf16 ? "bf16_remainder" : "fp32";
}
constexpr std::string_view default_master(const Recipe& recipe) {
  return recipe.master.empty() ? default_master(recipe.compute) : recipe.master;
}

// True if the forward pass takes scales over a whole batch, on which a text in it then depends.
constexpr bool measures_batches(const Recipe& recipe) {
  return recipe.linears.quantized && recipe.scales_loss && !recipe.linears.x.is_block();
}

// Short for scalify_fp16.
inline constexpr std::string_view kScalify = "scalify";

std::span<const Recipe* const> all_recipes();
// Throws Error(invalid_argument) naming the known recipes.
const Recipe& find_recipe(std::string_view name);

// One line per linear of the graph: its name and the formats that policy and overrides give it.
std::string resolved_table(const Recipe& recipe, const Graph& graph, const RecipeOptions& options);

// log2 of the RMS that parameters start with, as the run says it; of matrices of which it says
// nothing N(0, 0.02), the models' own choice.
std::map<std::string, double> initial_rms(const Graph& graph, const RecipeOptions& options);

// Gives every `real` value a storage type: parameters, activations and gradients `compute`,
// gradients that are graph outputs ("grad:...") `gradient`, scalars and what f32_values names f32.
// The result is in the Typed phase.
Graph assign_types(const Graph& graph, Dtype compute, Dtype gradient);

// Values that are moved (slice, pad, reshape, transpose) keep their dtype on the way: where a
// gradient that is a graph output is such a value in another dtype, it is cast behind.
Graph cast_behind_moves(const Graph& typed);

// Results that only quantizers read become f32: amax and codes are taken before any narrow store.
Graph widen_quantizer_inputs(const Graph& graph);

// A Typed graph with the layers' linears on codes (quantize_linears.h) as recipe and run choose.
// With `predicted` (ScaleOptions) scales are constants.
Graph quantize_by_recipe(const Recipe& recipe, const Graph& typed, const RecipeOptions& options,
                         const std::map<std::string, LinearRms>& predicted = {});

// Types alone, and frozen weights as the run keeps them.
Graph typed_graph(const Recipe& recipe, const Graph& graph, const RecipeOptions& options);

// Recipe::apply of those that choose types alone (but where an override quantizes), and of those
// that quantize the linears, and saved activations where the recipe names their format.
Graph apply_types(const Recipe& recipe, const Graph& graph, const RecipeOptions& options);
Graph apply_quantized_linears(const Recipe& recipe, const Graph& graph,
                              const RecipeOptions& options);

}  // namespace octet
