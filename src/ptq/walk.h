// Runs a model once from beginning to end, stopping wherever it is asked to: between two stops a
// piece of its graph runs as a plan of its own, on all rows of the calibration text, and what is
// needed later waits on the host. So the linear that comes next sees the activations of a model
// that is quantized up to there.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "data/rows.h"
#include "infer/fake_quantize_inputs.h"
#include "ir/graph.h"
#include "nn/spec.h"
#include "plan/backend.h"
#include "runtime/bound_graph.h"

namespace octet {

// A model's forward in f32, typed, of batches of this size.
Graph typed_forward(const ModelSpec& spec, const Batch& rows);

class ModelWalk {
 public:
  // Parameters as f32, by name, as the model has them by now.
  using ReadParameter = std::function<std::vector<float>(const std::string& name)>;

  // `graph`: typed, all in f32, of batches of the size of the first. `rows`: several batches, each
  // of this size or smaller.
  ModelWalk(const Graph& graph, std::vector<Batch> rows, Backend& backend, ReadParameter read);

  // Runs on to before `node`, the nodes on the way with their inputs quantized as `inputs` says of
  // them, or said of them before: linears that read one value may stand far apart (a block beside
  // attention). Keeps `wanted` and what any node from there on reads. Where a wanted value has a
  // row a token, those of padding repeat the others of their batch, so that nothing is measured of
  // them.
  void run_to(NodeId node, std::span<const ValueId> wanted, const FakeQuantizeInputs& inputs);

  // A value that was wanted, of the rows of one batch; to be changed, too.
  std::span<float> value(ValueId id, size_t batch);
  size_t n_batches() const { return rows_.size(); }

 private:
  void feed_inputs();
  // Decisions on linears of this piece; the rest waits.
  FakeQuantizeInputs take_of(const Graph& piece, const FakeQuantizeInputs& inputs);
  void repeat_over_padding(ValueId id, const Batch& batch, std::span<std::byte> bytes) const;

  const Graph& graph_;
  std::vector<Batch> rows_;
  Backend& backend_;
  ReadParameter read_;
  NodeId next_ = 0;
  std::map<std::string, ActivationQuantizer> later_;               // by the name of the weight
  std::vector<NodeId> last_use_;                                   // of each value
  std::vector<bool> is_of_pictures_;                               // which have no row a token
  std::map<ValueId, std::vector<std::vector<std::byte>>> values_;  // by batch
};

// A small graph as a plan with memory of its own: for products that are no part of the model.
class SmallPlan {
 public:
  // `typed`: its inputs of kind parameter keep what is written into them.
  SmallPlan(const Graph& typed, Backend& backend);

  void write(std::string_view name, std::span<const std::byte> bytes) {
    if (!bound_->bound.has_input(name)) return;  // nothing reads it
    bound_->bound.write_input(name, bytes.data(), std::ssize(bytes));
  }
  void run() { bound_->bound.run(); }
  void read(std::string_view name, std::span<std::byte> bytes) const {
    bound_->bound.read_output(name, bytes.data(), std::ssize(bytes));
  }

 private:
  std::unique_ptr<BoundGraph> bound_;
};

}  // namespace octet
