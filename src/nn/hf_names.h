// Which parameter a tensor of a checkpoint is.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nn/model.h"

namespace octet {

// The model's name for a tensor of a Hugging Face checkpoint; nothing for what is no parameter.
// Known variants:
//   the bare decoder without its prefix ("wte.weight", "layers.0.mlp.up_proj.weight")
//   buffers beside the parameters (the masks "attn.bias" of gpt2 and "attention.bias" of gpt_neox,
//   "rotary_emb.inv_freq")
//   names of other programs (ModelDef::renamed)
//   heads of an encoder that is read for its features
//   a head stored beside the embedding that it is tied to, with the same values
std::optional<std::string> parameter_name(const ModelSpec& spec, std::string_view stored);

// The parameter whose values a tensor that is none repeats: the tables of an encoder and a decoder
// that share one, and what a masked head has of the embedding and of its own bias.
std::optional<std::string> copied_parameter(const ModelSpec& spec, std::string_view stored);

// A module by the name that it has in the class of transformers 5 that a folder's config.json
// names: an encoder without a head stands alone.
std::string module_of_class(const ModelSpec& spec, const std::string& module);
// The names under which files may speak of a parameter's module: the model's, and that one.
std::vector<std::string> module_names(const ModelSpec& spec, std::string_view parameter);

// True if a parameter is of what stands on the last hidden state, in this model or with another
// head.
bool is_head_name(const ModelDef& def, std::string_view parameter);

}  // namespace octet
