// Models as graph builders: one definition per model, in the Logical phase. Nothing here names a
// number format, a machine or what is kept for the backward part: passes do that.
//
// A model's graph has these inputs (B sequences of T tokens, rows b*T + t):
//   parameters   by their Hugging Face names and in Hugging Face's layouts
//   tokens       index [B*T]
//   positions    index [B*T], of the token in its sequence or document
// with RowDocuments::isolated
//   doc_starts   index [B*T], where in its row the document of the token begins
// with ModelOutputs::loss also
//   labels       index [B*T], the token that row predicts (already shifted); -1: not counted
//   inv_n        step scalar [], 1 / number of labels that count in the whole step
// and these outputs:
//   ModelOutputs::loss     loss [] = inv_n * sum of nll;  nll [B*T], nats
//   ModelOutputs::logits   logits [B*T, vocab]
// Nodes are tagged with the decoder layer (-1: embeddings, final norm, head, loss) and the module's
// name as origin.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/batch_size.h"
#include "ir/graph.h"
#include "nn/fields.h"

namespace octet {

enum class Init : uint8_t { normal, ones, zeros };

struct ParameterSpec {
  std::string name;
  Shape shape;
  Init init = Init::normal;
  double std = 0;      // of Init::normal, mean 0
  bool decay = false;  // weight decay: matrices, but not embeddings (a tied head is one)
  bool operator==(const ParameterSpec&) const = default;
};

enum class ModelOutputs : uint8_t { loss, logits };

struct ModelGraph {
  Graph graph;
  std::vector<ParameterSpec> parameters;  // in the order of the graph's inputs
};

enum class Positions : uint8_t { rotary, learned };
enum class MlpKind : uint8_t { gated, gelu };

// What the list of models (nn/list.h) knows of each.
class Blocks;
struct ModelDef {
  ModelKind kind;
  std::string_view name;          // "llama", as model.kind and as config.json's model_type
  std::string_view architecture;  // Hugging Face's, "LlamaForCausalLM"
  std::string_view prefix;        // of every parameter but the head's, "model."
  std::string_view head = "lm_head.weight";
  Positions positions = Positions::rotary;
  MlpKind mlp = MlpKind::gated;
  bool grouped_heads = true;  // whether query heads may share keys and values
  bool plain_linears = true;  // whether Hugging Face stores their weights [out, in]
  // Keys of its config.json in the order they are read, shared ones and its own, which take the
  // place of a shared one of the same field, and those that are refused unless they are neutral
  // (nn/hf_keys.h).
  std::span<const HfKey> hf_keys, own_hf_keys;
  std::span<const HfNeutral> hf_neutrals;
  ValueId (*logits)(Blocks& blocks);  // appends the model up to its logits [B*T, vocab]
};

std::span<const ModelDef* const> models();  // the visible list
const ModelDef& model_def(ModelKind kind);
const ModelDef* find_model(std::string_view name);  // nullptr where none has this name

// The keys of its config.json, in the order they are read; the one of a field, or nullptr.
std::vector<HfKey> hf_keys_of(const ModelDef& def);
const HfKey* find_hf_key(const ModelDef& def, std::string_view field);

// Fills the zeros and checks; throws Error{invalid_argument} "[model] FIELD: expected ..., got
// ...".
ModelSpec resolved(const ModelSpec& spec);

// Both resolve first. build_model throws also where the batch is empty or longer than a position
// table.
std::vector<ParameterSpec> model_parameters(const ModelSpec& spec);
ModelGraph build_model(const ModelSpec& spec, const BatchSize& batch, ModelOutputs outputs);

// Elements of all parameters; a tied head counts once.
int64_t parameter_count(const ModelSpec& spec);

}  // namespace octet
