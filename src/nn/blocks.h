// The blocks that models are written in: parameters by name, linears, embeddings, rotary attention,
// gated MLP, loss.
//
// A model is run twice over the same definition: once to collect its parameters, once with the
// graph's inputs declared, so that a parameter's name, shape and initialisation stand in one place,
// where it is used.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "nn/block_options.h"
#include "nn/model.h"

namespace octet {

struct RotaryDecoder;  // nn/rotary_decoder.h

class Blocks {
 public:
  // For collecting the parameters: one row, inputs appear as they are met.
  explicit Blocks(const ModelSpec& spec);
  // For the graph: all inputs first, parameters in the order of `declared`.
  // Without losses there are none of their inputs.
  Blocks(const ModelSpec& spec, const BatchSize& batch, const std::vector<WeightedLoss>& losses,
         const std::vector<ParameterSpec>& declared);

  const ModelSpec& spec() const { return spec_; }
  const BatchSize& size() const { return batch_; }
  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  Graph take_graph() { return std::move(graph_); }

  // The nodes that follow belong to this layer, -1: to none; `prefix` ("model.layers.3.") starts
  // their parameters' names.
  void enter(int layer, std::string prefix);
  // The same of layer i of one of the model's stacks.
  void enter_layer(std::string_view stack, int64_t i, std::string prefix);
  int64_t layers(std::string_view stack) const;

  // Part of a model that has several: `build` by its spec, as if it were a model of its own, with
  // `batch` rows. Its layers are those of this stack, the names of its parameters begin with
  // `prefix`, which stands in the place of `own`, and `merge` makes of its token embeddings what
  // its first layer reads.
  struct Part {
    std::string_view stack;
    std::string prefix = {}, own = {};
    ModelSpec spec = {};
    int64_t batch = 1;
    std::function<ValueId(ValueId embeddings)> merge = {};
  };
  ValueId in_part(Part part, const std::function<ValueId()>& build);

  // A declared input, as [items, inner extents].
  ValueId input(std::string_view name) const;
  ValueId input_or_none(std::string_view name) const;
  const Shape& shape(ValueId x) const { return builder_.shape(x); }

  // Each takes the module's path below the prefix ("self_attn.q_proj"); its last part is the nodes'
  // origin. Two linears of a layer may not have the same (LinearOptions::whole_path); one may be
  // called more than once (ir/linear_use.h).
  ValueId linear(ValueId x, std::string_view path, int64_t n_out,
                 const LinearOptions& options = {});
  // The weight alone, [n_out, n_in] or the other way round.
  ValueId linear_weight(std::string_view path, int64_t n_out, int64_t n_in,
                        const LinearOptions& options);
  // With what `merge` of a model with pictures makes of it (in_part()).
  ValueId token_embedding(std::string_view path);
  // Throws Error{invalid_argument} where a sequence is longer than the table.
  ValueId position_embedding(std::string_view path);
  // Rows of a table of `n`, one for each index of a declared input.
  ValueId embedding(std::string_view path, std::string_view input, int64_t n);
  // The same of any indices [N], of a table [n, width] whose first values have this deviation.
  struct TableOptions {
    int64_t n = 0, width = 0;
    double std = 0;  // 0: as embeddings have
  };
  ValueId embedding_of(std::string_view path, ValueId ids, const TableOptions& options);
  // Numbers of keys of an encoder, one for each of its n rows, from a number a row of the batch:
  // [B] -> [B * n].
  ValueId of_each_row(ValueId x, int64_t n);
  // A matrix [rows, hidden] of its own, without a ".weight" behind its name.
  ValueId table(std::string_view path, int64_t rows, const Shape& file_shape);
  // [n] zeros at first, added to each row of x.
  ValueId bias(ValueId x, std::string_view path);
  // The same, which is not trained, and [1, n] in files.
  ValueId fixed_bias(ValueId x, std::string_view path);
  // x times a number that is not trained.
  ValueId times_fixed(ValueId x, std::string_view path);
  // The final product with the embedding's weight (tied) or with a weight of its own.
  ValueId head(ValueId x, std::string_view embedding_name);
  // The product with the embedding's weight, whose name this is.
  ValueId tied_head(ValueId x, const std::string& embedding_name);
  ValueId capped(ValueId logits);  // by logit_softcap
  // Norms over all of a row, whatever its width.
  ValueId rms_norm(ValueId x, std::string_view path);
  ValueId rms_norm_without_weights(ValueId x, std::string_view path);
  ValueId layer_norm(ValueId x, std::string_view path);
  ValueId layer_norm_without_bias(ValueId x, std::string_view path);
  ValueId layer_norm_without_weights(ValueId x, std::string_view path);
  // The same with the factor 1 + weight, whose weight begins as 0.
  ValueId rms_norm_from_one(ValueId x, std::string_view path);
  ValueId layer_norm_from_one(ValueId x, std::string_view path);

  // Attention of all rows of an entry with all of it; q and k may have different numbers of them.
  // Where it is causal, with the layer's sliding window where the model has one, and isolated
  // documents unless key_begins say otherwise.
  ValueId attention(ValueId q, ValueId k, ValueId v, const AttentionOptions& options = {});
  // The rotation of `heads` heads, or of rope_share of each; x itself in a layer without positions.
  // Of neighbours the halves come out: queries and keys alike, which leaves their products.
  ValueId rope(ValueId x, int64_t heads, RotaryPairs pairs = RotaryPairs::halves);
  // q, k, v and output projections around rotary causal attention: "self_attn".
  ValueId rotary_attention(ValueId x, const RotaryDecoder& decoder);
  // down(act(gate(x)) * up(x)), or down(act(up(x))): "mlp".
  ValueId mlp(ValueId x, const RotaryDecoder& decoder);
  ValueId activation(ValueId x, std::string_view origin);  // the spec's mlp_act
  ValueId activation(ValueId x, std::string_view origin, MlpAct act);
  ValueId gelu(ValueId x, std::string_view origin);  // of the spec's kind
  ValueId gelu(ValueId x, std::string_view origin, GeluKind kind);
  ValueId tanh(ValueId x, std::string_view origin);
  ValueId relu(ValueId x, std::string_view origin);
  // Images [B, C, S, S] as their patches [B * (S/P)^2, C * P * P], row by row of patches.
  ValueId patches(ValueId images);
  // The rows of a, then those of b.
  ValueId stacked(ValueId a, ValueId b);
  // x [B * n, w] with the rows of `first` [k, w] before each n rows: [B * (k + n), w].
  ValueId with_first_rows(ValueId first, ValueId x);
  // x [B * n, w] + rows [n, w], the same for each of B.
  ValueId add_rows(ValueId x, ValueId rows);
  // Row i of each n rows of x, a row of the batch: [B, w].
  ValueId row_of_each(ValueId x, int64_t i);
  // The mean of the first rows of each n rows of x, as many as the first of their `ends` says, one
  // at least: [B, w]. ends: integers [B * n].
  ValueId mean_of_each(ValueId x, ValueId ends);
  ValueId add(ValueId a, ValueId b, std::string_view origin = "residual");
  ValueId mul(ValueId a, ValueId b, std::string_view origin);
  // Columns [first, first + n) of x.
  ValueId columns(ValueId x, int64_t first, int64_t n);
  // [rows, n * w] as [rows * n, w], and back.
  ValueId split_rows(ValueId x, int64_t n);
  ValueId join_rows(ValueId x, int64_t n);

  // For losses: primitives on what the model gives, and x as a number of the loss, in single
  // precision under every recipe (passes/precision/f32_values.h).
  Builder& builder() { return builder_; }
  ValueId in_f32(ValueId x) { return builder_.unary(OpCode::cast, x); }
  // loss = inv_n * sum of nll over the labels that count; the metric nll, nats.
  LossValues cross_entropy(ValueId logits, ValueId labels, ValueId inv_n, double smoothing = 0);

  // A parameter of this module's that begins as a constant; a state (InputKind::statistic) of it.
  ValueId vector(std::string_view path, int64_t n, Init init);  // without a leaf
  ValueId constant(std::string_view path, std::string_view leaf, int64_t n, Init init);
  ValueId statistic(std::string_view path, std::string_view leaf, int64_t n, Init init);
  void module(std::string_view path);  // what follows is of it

  void outputs(const Outputs& values);
  void losses(const Outputs& values);

 private:
  void batch_inputs();
  ValueId parameter(ParameterSpec spec);
  ValueId declare(const ParameterSpec& spec);
  ParameterSpec matrix_spec(std::string name, Shape shape, MatrixUse use) const;
  ValueId matrix(std::string name, Shape shape, MatrixUse use, const Shape& file_shape = {});
  ValueId norm_weight(std::string_view path, int64_t n, Init init);
  ValueId clipped(ValueId x);
  ValueId scaled_by_position(ValueId q);
  int64_t window() const;
  bool has_positions() const, has_own_angles() const;
  double rotary_factor() const;
  RopeAttrs rope_attrs(int64_t heads, int64_t width) const;
  std::string name(std::string_view path, std::string_view leaf) const;
  std::string part_name(const std::string& own) const;

  ModelSpec whole_, spec_;  // spec_: of the part that is built
  BatchSize batch_;
  Part part_;                         // without a stack: the whole model
  int64_t part_first_ = 0;            // layer
  std::vector<WeightedLoss> losses_;  // resolved
  bool collecting_ = true;
  std::vector<ParameterSpec> parameters_;
  std::unordered_map<std::string, ValueId> by_name_;
  std::map<std::string, ValueId, std::less<>> inputs_;  // of the batch, and step scalars
  Graph graph_;
  Builder builder_;
  std::string prefix_;
  int64_t in_stack_ = -1, n_layers_ = 0;  // of the layer in its stack, and its stack's
  // By layer and origin of a linear: its weight, and how often it was called.
  std::map<std::pair<int, std::string>, std::pair<std::string, int64_t>> linears_;
};

using NormBlock = ValueId (Blocks::*)(ValueId x, std::string_view path);

}  // namespace octet
