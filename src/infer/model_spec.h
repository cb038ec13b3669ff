// Which model a configuration means.
#pragma once

#include "base/files.h"
#include "compile/program.h"
#include "config/run_config.h"
#include "infer/weights.h"
#include "nn/model.h"

namespace octet {

// The model with the head that the configuration names beside model.path, if it does; `folder` says
// how embeddings are pooled. Throws Error{invalid_argument} where its kind has no such head.
ModelSpec with_new_head(const Files& files, const std::string& folder, ModelSpec spec,
                        const RunConfig& config);

// Weights of such a head: whether the folder need not have its parameters.
inline HeadWeights head_weights(const RunConfig& config) {
  return config.model.head == ModelHead::text ? HeadWeights::all_stored : HeadWeights::may_be_new;
}

// A new model of the configuration's shape, or with model.path the one of that folder, with
// with_new_head. A new model has model.seq rows where positions are learned, and one of roberta's
// kind counts them from the tokenizer's padding.
ModelSpec model_from_config(const Files& files, const RunConfig& config);

// The model of a folder: its config.json, but with a head of its own where the weights hold one
// that differs from the embedding which it is said to be tied to. As transformers reads it. Throws
// Error{bad_data} where adapters lie beside it.
ModelSpec read_folder_spec(const Files& files, const std::string& folder);
// True if read_folder_spec differs from config.json, for whoever tells.
bool has_untied_head(const Files& files, const std::string& folder);

// The model as the program's builder of forward graphs, with these losses (its own where none is
// named), and what a program knows of them.
ForwardBuilder forward_builder(const ModelSpec& spec, const std::vector<WeightedLoss>& losses = {});
std::vector<LossTerm> loss_terms(const ModelSpec& spec,
                                 const std::vector<WeightedLoss>& losses = {});

}  // namespace octet
