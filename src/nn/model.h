// Models as graph builders: one definition per model, in the Logical phase. Nothing here names a
// number format, a machine or what is kept for the backward part: passes do that.
//
// A model's graph has these inputs (B rows of T tokens, rows b*T + t):
//   parameters   by their Hugging Face names and in Hugging Face's layouts
//   what the model declares (ModelDef::inputs): of text
//     tokens       index [B*T]
//     positions    index [B*T], of the token in its sequence or document
//     doc_starts   index [B*T], with RowDocuments::isolated: where in its row the token's document
//                  begins
// with ModelOutputs::loss also, of each loss (nn/losses/loss.h), the next token's where none is
// named:
//   what it declares: labels, index [B*T], the token that row predicts (already shifted); -1: not
//                counted
//   inv_n        step scalar [], 1 / number of its items that count in the whole step; of the
//                second loss and those behind it "inv_n.NAME"
// and these outputs:
//   ModelOutputs::loss     loss [], and each loss's metrics: nll [B*T], nats; or "NAME.nll"
//   ModelOutputs::outputs  what the model declares (ModelDef::outputs): logits [B*T, vocab]
// Nodes are tagged with the layer (-1: embeddings, final norm, head, loss), of several stacks with
// its name, and with the module's name as origin.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/batch_size.h"
#include "ir/graph.h"
#include "nn/fields.h"
#include "nn/losses/loss.h"
#include "nn/parameter_spec.h"

namespace octet {

enum class ModelOutputs : uint8_t { loss, outputs };

struct ModelGraph {
  Graph graph;
  std::vector<ParameterSpec> parameters;  // in the order of the graph's inputs
};

// Another class of transformers whose folders are read as one with this head. What else it has
// stands beside the parameters (ModelDef::skips).
struct HeadAlias {
  std::string_view architecture;
  ModelHead head;
};

// Head that an encoder has on top.
struct HeadDef {
  ModelHead head;
  std::string_view architecture;  // "BertForMaskedLM"
  std::string_view output;
  Per per = Per::token;
  std::string_view loss;  // its own; "": it has none, and is not trained by itself
};

// relative: numbers by the distance of query and key; sinusoidal: added to embeddings; none: of a
// recurrence.
enum class Positions : uint8_t { rotary, learned, relative, sinusoidal, none };
// Of rotary models: all layers, those with a sliding window, or these where there are any.
enum class RotatedLayers : uint8_t { all, windows, windows_if_any };
// chosen: as a field of the model says.
enum class MlpKind : uint8_t { gated, gelu, chosen };

struct OutputSpec {
  std::string_view name;
  Per per = Per::token;      // what its rows are
  std::string_view as = {};  // the output that losses read it as, "logits"; empty: its own name
  std::string_view read_as() const { return as.empty() ? name : as; }
};

// Layers one after the other. A model of one stack has one without a name, whose layers are
// "layers.0"; of several each layer is "NAME.layers.0", and they are numbered through all of them.
struct StackSpec {
  std::string_view name;
  int64_t layers = 0;
};
using Outputs = std::vector<ValueId>;  // in the order of ModelDef::outputs

std::vector<InputSpec> text_inputs(const ModelSpec& spec, const BatchSize& size);
std::vector<OutputSpec> token_logits(const ModelSpec& spec);
std::string_view next_token_loss(const ModelSpec& spec);
struct ModelDef;
struct ModelFault;
// The spec's head; the first where it names none.
const HeadDef& head_of(const ModelSpec& spec);
// By the class of transformers that wrote a file, the first of several; and all known classes.
std::optional<ModelHead> head_of_class(const ModelDef& def, std::string_view architecture);
std::vector<std::string_view> head_classes(const ModelDef& def);
std::vector<OutputSpec> head_output(const ModelSpec& spec);
std::string_view head_loss(const ModelSpec& spec);
std::vector<StackSpec> one_stack(const ModelSpec& spec);
// Inputs and stacks of a model that translates.
std::vector<InputSpec> source_inputs(const ModelSpec& spec, const BatchSize& size);
std::vector<StackSpec> encoder_and_decoder(const ModelSpec& spec);

class Blocks;
// Facts that the list of models (nn/list.h) knows of each.
struct ModelDef {
  ModelKind kind;
  std::string_view name;          // "llama", as model.kind and as config.json's model_type
  std::string_view architecture;  // Hugging Face's, "LlamaForCausalLM"
  std::string_view prefix;        // of every parameter but the head's, "model."
  std::string_view head = "lm_head.weight";
  Positions positions = Positions::rotary;
  MlpKind mlp = MlpKind::gated;
  double usual_norm_eps = 1e-5;       // of new models, and where config.json has no key for it
  bool grouped_heads = true;          // whether query heads may share keys and values
  int64_t full_every = 0;             // new models have a window in all but each n-th layer
  bool reads_window_pattern = false;  // whether a file may have another n
  bool last_is_full = false;          // and but the last; files with a window there are refused
  RotatedLayers rotated = RotatedLayers::all;
  bool plain_linears = true;  // whether Hugging Face stores their weights [out, in]
  // Keys of its config.json in the order they are read, shared ones and its own, which take the
  // place of a shared one of the same field, and those that are refused unless they are neutral
  // (nn/hf_keys.h).
  std::span<const HfKey> hf_keys, own_hf_keys;
  std::span<const HfNeutral> hf_neutrals;
  std::vector<HfFollower> (*hf_followers)(const ModelSpec& spec) = nullptr;
  // Appends the model up to its logits [B*T, vocab]; of other outputs `build` does so.
  ValueId (*logits)(Blocks& blocks) = nullptr;
  Outputs (*build)(Blocks& blocks) = nullptr;
  std::vector<InputSpec> (*inputs)(const ModelSpec& spec, const BatchSize& size) = text_inputs;
  std::vector<OutputSpec> (*outputs)(const ModelSpec& spec) = token_logits;
  std::vector<StackSpec> (*stacks)(const ModelSpec& spec) = one_stack;
  std::string_view (*loss)(const ModelSpec& spec) = next_token_loss;  // of train.loss: auto
  bool writes_text = true;  // next tokens from "tokens", "positions" to "logits"
  bool reads_text = true;   // tokens
  // A text about another: of the ids of "source", [source_seq], the first source_length count;
  // "tokens" begin with ModelSpec::start_token.
  bool translates = false;
  bool is_recurrent = false;  // each step of a text follows from the one before: there is no cache
  bool reads_images = false;  // pixels, as patches
  // Texts with pictures in them: "pictures" and "merged_rows" (data/inputs.h), which a call of one
  // token over a cache does not read; a decoder of the kind ModelSpec::text.
  bool sees_pictures = false;
  bool is_convolutional = false;        // without attention
  int64_t class_tokens = 0;             // before those of an image's patches
  std::span<const HeadDef> heads = {};  // of encoders
  std::span<const HeadAlias> head_aliases = {};
  bool positions_follow_pad = false;  // position 0 is the row behind ModelSpec::pad_token
  int64_t rows_before_positions = 0;  // of the table, besides max_positions
  // Names of parameters that begin so have no prefix; and what a folder may hold beside them.
  std::span<const std::string_view> head_prefixes = {};
  bool (*skips)(const ModelSpec& spec, std::string_view stored) = nullptr;
  // Names of other files of the model in those of transformers; others as they are.
  std::string (*renamed)(const ModelSpec& spec, std::string_view stored) = nullptr;
  // A module by its name in transformers 5, where its files name it otherwise.
  std::string (*module_name)(std::string_view module) = nullptr;
  // The module of the batch norm behind a convolution's; empty: there is none.
  std::string (*norm_behind)(std::string_view convolution) = nullptr;
  // Fills what the kind alone can; says what is wrong with a filled shape (nn/shape.h).
  void (*fill)(ModelSpec& spec) = nullptr;
  std::optional<ModelFault> (*fault)(const ModelSpec& full) = nullptr;
};

std::span<const ModelDef* const> models();  // the visible list
const ModelDef& model_def(ModelKind kind);
const ModelDef* find_model(std::string_view name);  // nullptr where none has this name

// The keys of its config.json, in the order they are read; the one of a field, or nullptr.
std::vector<HfKey> hf_keys_of(const ModelDef& def);
const HfKey* find_hf_key(const ModelDef& def, std::string_view field);

// Fills the zeros and checks; throws Error{invalid_argument} "[model] FIELD: expected ...".
ModelSpec resolved(const ModelSpec& spec);
// Tokens that the layers see of a row: those of an image, or the batch's.
int64_t row_tokens(const ModelSpec& spec, int64_t seq);

// True if attention reads keys of a source, which a function `encode` makes (compile/functions.h).
bool has_source(const ModelSpec& spec);

// Both resolve first. build_model throws also where the batch is empty or longer than a table.
std::vector<ParameterSpec> model_parameters(const ModelSpec& spec);
ModelGraph build_model(const ModelSpec& spec, const BatchSize& batch, ModelOutputs outputs,
                       const std::vector<WeightedLoss>& losses = {});

// The losses by name and weight, the model's own where none is named. Error{invalid_argument}
// "[train] loss: ..." where there is none of that name, or it reads an output that the model lacks.
std::vector<WeightedLoss> resolved_losses(const ModelSpec& spec,
                                          const std::vector<WeightedLoss>& losses);
// How many rows belong together, of the loss that joins most.
int64_t rows_per_sample(const std::vector<WeightedLoss>& losses);
// Names of the i-th loss's step scalar, and of a metric of it.
std::string inv_n_name(const std::vector<WeightedLoss>& losses, size_t i);
std::string metric_name(const std::vector<WeightedLoss>& losses, size_t i, std::string_view metric);

// All inputs that a run's data must bring or that follow from them: the model's, then the losses'.
std::vector<InputSpec> batch_inputs(const ModelSpec& spec, const BatchSize& size,
                                    const std::vector<WeightedLoss>& losses);

// Elements of all parameters; a tied head counts once.
int64_t parameter_count(const ModelSpec& spec);

}  // namespace octet
