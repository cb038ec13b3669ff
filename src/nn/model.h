// Models as graph builders: one definition per model, in the Logical phase. Nothing here names a
// number format, a machine or what is kept for the backward part: passes do that.
//
// A model's graph has these inputs (B sequences of T tokens, rows b*T + t):
//   parameters   by their Hugging Face names and in Hugging Face's layouts
//   tokens       index [B*T]
//   positions    index [B*T], of the token in its sequence
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

#include "ir/graph.h"

namespace octet {

enum class ModelKind : uint8_t { llama, olmo, gpt2 };

// The shape of a model; nothing of how it is trained. Zeros are filled by resolved().
struct ModelSpec {
  ModelKind kind = ModelKind::llama;
  int64_t hidden = 512;
  int64_t layers = 8;
  int64_t heads = 8;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: hidden / heads
  int64_t ffn = 1408;
  int64_t vocab = 256;
  int64_t max_positions = 2048;  // gpt2: rows of the position table; a bound of nothing elsewhere
  double norm_eps = 1e-5;
  bool tied = false;               // the head shares the embedding's weight
  GeluKind gelu = GeluKind::tanh;  // gpt2
  double rope_theta = 10000;       // llama, olmo; as are the fields below
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 1;
  double rope_low_freq_factor = 1;
  double rope_high_freq_factor = 4;
  int64_t rope_original_max_position = 8192;
  bool operator==(const ModelSpec&) const = default;
};

enum class Init : uint8_t { normal, ones, zeros };

struct ParameterSpec {
  std::string name;
  Shape shape;
  Init init = Init::normal;
  double std = 0;      // of Init::normal, mean 0
  bool decay = false;  // weight decay: matrices, but not embeddings (a tied head is one)
  bool operator==(const ParameterSpec&) const = default;
};

struct BatchShape {
  int64_t batch = 1;
  int64_t seq = 1;
};

enum class ModelOutputs : uint8_t { loss, logits };

struct ModelGraph {
  Graph graph;
  std::vector<ParameterSpec> parameters;  // in the order of the graph's inputs
};

// What the list of models (nn/list.h) knows of each.
class Blocks;
struct ModelDef {
  ModelKind kind;
  std::string_view name;                 // "llama"
  std::string_view architecture;         // Hugging Face's, "LlamaForCausalLM"
  std::string_view prefix;               // of every parameter but the head's, "model."
  void (*check)(const ModelSpec& spec);  // what this kind asks besides the common rules
  ValueId (*logits)(Blocks& blocks);     // appends the model up to its logits [B*T, vocab]
};

std::span<const ModelDef* const> models();  // the visible list
const ModelDef& model_def(ModelKind kind);
const ModelDef* find_model(std::string_view name);  // nullptr where none has this name

// Fills the zeros and checks; throws Error{invalid_argument} "[model] expected ..., got ...".
ModelSpec resolved(const ModelSpec& spec);

// Both resolve first. build_model throws also where the batch is empty or longer than a position
// table.
std::vector<ParameterSpec> model_parameters(const ModelSpec& spec);
ModelGraph build_model(const ModelSpec& spec, const BatchShape& batch, ModelOutputs outputs);

// Elements of all parameters; a tied head counts once.
int64_t parameter_count(const ModelSpec& spec);

}  // namespace octet
