// An adapter's folder as PEFT writes it, beside a model that it fits: adapter_config.json
// (infer/peft_config.h) and adapter_model.safetensors, whose tensors are
//
//   base_model.model.MODULE.lora_A.weight [rank, in], .lora_B.weight [out, rank]
//   base_model.model.MODULE.lora_embedding_A [rank, vocab], .lora_embedding_B [hidden, rank]
//   base_model.model.MODULE.lora_magnitude_vector [out]     DoRA's
//   base_model.model.MODULE.weight, .bias                   modules_to_save; biases
//   base_model.model.MODULE.base_layer.weight               what the base had below an adapter
//
// with MODULE the path in transformers' class. What PEFT would leave out without an error, a tensor
// that no module reads and a module that has no tensor, is refused.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "infer/peft_config.h"
#include "nn/model.h"

namespace octet {

inline constexpr std::string_view kPeftPrefix = "base_model.model.";
// In the metadata of adapter_model.safetensors where Octet wrote it: weights_hash() of the base
// (infer/adapter_note.h), but for what the adapter has whole.
inline constexpr const char* kPeftBaseHash = "octet_base_hash";

struct PeftLinear {
  LoraAdapter adapter;
  std::string a, b, magnitude;  // tensors; "": none
  bool is_of_layers = true;     // else an embedding, or a linear outside of the layers
};

struct PeftAdapter {
  std::string folder;
  PeftConfig config;
  std::vector<PeftLinear> linears;             // in the model's order
  std::map<std::string, std::string> saved;    // parameters that are the adapter's own: tensors
  std::map<std::string, std::string> beneath;  // the base's below adapters
  // A head and an embedding that the base ties, of which the adapter changes one.
  bool unties = false;
  std::string base_hash;  // "": the folder does not say
};

// True if a folder holds an adapter and no model.
bool is_adapter_folder(const Files& files, const std::string& folder);

// `base` is the model that the adapter belongs to. Throws Error{bad_data} naming a key, a module or
// a tensor that does not fit.
PeftAdapter read_peft_adapter(const Files& files, const std::string& folder, const ModelSpec& base);

// Throws Error{bad_data} where the model in `folder` is another than the adapter was made beside:
// by the hash of its weights, else by the hub's names of both. A warning where names do not say.
void expect_base(const Files& files, const std::string& folder, const ModelSpec& spec,
                 const PeftAdapter& adapter, const Log& log);

// The model that both are together.
ModelSpec adapted_spec(const ModelSpec& base, const PeftAdapter& adapter);

// The adapter without the weights below it that the model in `folder` has: PEFT writes embeddings
// and heads beside the factors whether they were trained or not (save_embedding_layers).
PeftAdapter without_base_weights(const Files& files, const std::string& folder,
                                 const ModelSpec& spec, PeftAdapter adapter);

// How training goes on with it, as the keys of `lora` say it. Throws Error{bad_data} naming what
// does not train.
struct PeftTraining {
  LoraOptions lora;                // without a head
  std::vector<std::string> saved;  // parameters that are trained whole
};
PeftTraining peft_training(const PeftAdapter& adapter, const ModelSpec& base);

}  // namespace octet
