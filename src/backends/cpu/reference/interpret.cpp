#include "backends/cpu/reference/prepared_op.h"
#include "base/error.h"

namespace octet::reference {
namespace {

class Interpreter {
 public:
  explicit Interpreter(const Graph& graph) : graph_(graph), values_(graph.values.size()) {}

  Tensors run(const Tensors& inputs) {
    for (const GraphInput& input : graph_.inputs) set_input(input, inputs);
    for (const Node& node : graph_.nodes) execute(node);
    Tensors outputs;
    for (const GraphOutput& output : graph_.outputs) outputs[output.name] = value(output.value);
    return outputs;
  }

 private:
  std::vector<double>& value(ValueId id) { return values_[static_cast<size_t>(id)]; }

  void set_input(const GraphInput& input, const Tensors& inputs) {
    const auto it = inputs.find(input.name);
    if (it == inputs.end()) {
      throw Error(ErrorCode::invalid_argument, "[interpret {}] input '{}' is missing", graph_.name,
                  input.name);
    }
    const TensorType& type = graph_.type(input.value);
    if (it->second.size() != static_cast<size_t>(type.n_stored())) {
      throw Error(ErrorCode::invalid_argument,
                  "[interpret {}] expected {} elements of input '{}', got {}", graph_.name,
                  type.n_stored(), input.name, it->second.size());
    }
    value(input.value) = it->second;
    round(input.value);
  }

  RefTensor tensor(ValueId id) {
    if (id == kNoValue) return {};
    return {.type = graph_.type(id), .data = value(id)};
  }

  void round(ValueId id) {
    const Dtype dtype = graph_.type(id).dtype;
    for (double& x : value(id)) x = round_to(dtype, x);
  }

  void execute(const Node& node) {
    std::vector<RefTensor> in, out;
    for (const ValueId id : node.operands) in.push_back(tensor(id));
    for (const ValueId id : node.results) {
      if (id != kNoValue) value(id).resize(static_cast<size_t>(graph_.type(id).n_stored()));
      out.push_back(tensor(id));
    }
    const PreparedOp op(graph_, node);
    std::vector<double> scratch(static_cast<size_t>(op.n_scratch()));
    op(in, out, scratch.data());
    for (const ValueId id : node.results) {
      if (id != kNoValue) round(id);
    }
  }

  const Graph& graph_;
  std::vector<std::vector<double>> values_;
};

}  // namespace

Tensors interpret(const Graph& graph, const Tensors& inputs) {
  return Interpreter(graph).run(inputs);
}

}  // namespace octet::reference
