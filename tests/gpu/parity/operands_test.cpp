// No kernel of the GPU ignores an operand: each operand of each op case is changed in a few
// elements, and the result changes where the CPU's does, and nowhere else.
#include <map>
#include <set>

#include "closeness.h"
#include "table.h"

namespace octet::fusion {
namespace {

using op_cases::OpCase;

// A graph that is planned once and run with several inputs.
class BoundGraph {
 public:
  BoundGraph(const Graph& graph, Backend& backend)
      : graph_(graph),
        plan_(planned(graph, backend)),
        arenas_(*backend.device, plan_.arena_bytes),
        bound_(plan_, *backend.catalogue, arenas_) {}

  Tensors run(const Tensors& inputs) {
    poison(arenas_);
    for (const GraphInput& input : graph_.inputs) {
      const TensorType& type = graph_.type(input.value);
      std::vector<std::byte> bytes(static_cast<size_t>(type.n_bytes()));
      reference::store(type.dtype, inputs.at(input.name), bytes.data());
      bound_.write_input(input.name, bytes.data(), type.n_bytes());
    }
    bound_.run(StepObserver{});
    Tensors outputs;
    for (const GraphOutput& output : graph_.outputs) {
      const TensorType& type = graph_.type(output.value);
      std::vector<std::byte> bytes(static_cast<size_t>(type.n_bytes()));
      bound_.read_output(output.name, bytes.data(), type.n_bytes());
      std::vector<double>& values = outputs[output.name];
      values.resize(static_cast<size_t>(type.n_stored()));
      reference::load(type.dtype, bytes.data(), values);
    }
    return outputs;
  }

 private:
  static Plan planned(const Graph& graph, Backend& backend) {
    Layout layout;
    layout.add_inputs(graph);
    return make_plan(graph, layout, *backend.catalogue);
  }

  Graph graph_;
  Plan plan_;
  Arenas arenas_;
  BoundPlan bound_;
};

enum class Extent : uint8_t { few, all };

double another_value(const OperandCase& o, const std::vector<double>& values, size_t i) {
  const double value = values[i];
  switch (o.fill) {
    case Fill::boolean:
      return 1 - value;
    case Fill::doc_starts:
      return 0;  // one document
    case Fill::doc_ends:
    case Fill::key_ends:
      return static_cast<double>(o.bound);
    case Fill::ids:
    case Fill::labels:
    case Fill::any_ids:
      return value == 0 ? 1 : 0;
    case Fill::positions:
      return value + 1;
    case Fill::remainder:
      return value < 0 ? value + 1000 : value - 1000;
    case Fill::normal:
    case Fill::wide:
    case Fill::distinct:
      return value == 0 ? 1 : -2 * value;
    default:  // scales and statistics stay what they are
      return value == 0 ? 1 : 2 * value;
  }
}

std::vector<double> changed(const OperandCase& o, const std::vector<double>& values,
                            Extent extent) {
  std::vector<double> result = values;
  const size_t n = values.size();
  for (size_t i = 0; i < n; ++i) {
    const bool is_one = i == n / 7 || i == n / 2 || i + 1 == n;
    // Neither end of ranges of keys falls: all of them change, or none.
    const bool is_changed = extent == Extent::all || is_one || op_cases::is_key_range(o.fill);
    if (is_changed) result[i] = another_value(o, values, i);
  }
  return result;
}

// Results of the CPU or the GPU before an operand was changed, and behind.
struct Change {
  const Tensors &before, &behind;
  bool is_at(const std::string& output, size_t i, double least) const {
    const double a = before.at(output)[i], b = behind.at(output)[i];
    return !same_value(a, b) && !(std::abs(a - b) <= least);
  }
};

// True if the CPU's result changes; faults of the GPU's to `wrong`. A change by more than roundings
// is one of the GPU's same element, a smaller one (of random bits, say) one of any element.
bool compare(const Graph& graph, OpCode op, const Change& cpu, const Change& gpu,
             std::string& wrong) {
  bool cpu_changes = false, gpu_changes = false;
  for (const GraphOutput& output : graph.outputs) {
    const Dtype dtype = graph.type(output.value).dtype;
    const auto& values = cpu.before.at(output.name);
    double largest = 0;
    for (const Tensors* one : {&cpu.before, &cpu.behind}) {
      for (const double v : one->at(output.name))
        largest = std::max(largest, std::isfinite(v) ? std::abs(v) : 0);
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const double magnitude =
          std::max(std::abs(values[i]), std::abs(cpu.behind.at(output.name)[i]));
      const double bound = op_def(op).closeness == Closeness::same
                               ? 0
                               : 2 * bound_of(op_def(op).closeness, dtype, magnitude,
                                              floor_of(graph) * (0.1 + largest));
      const bool must = cpu.is_at(output.name, i, bound);
      const bool may = cpu.is_at(output.name, i, 0);
      const bool does = gpu.is_at(output.name, i, must ? 0 : bound);
      cpu_changes = cpu_changes || may;
      gpu_changes = gpu_changes || gpu.is_at(output.name, i, 0);
      const bool is_right = must ? does : may || !does;
      if (is_right || !wrong.empty()) continue;
      wrong = fmt::format("{}[{}] {} from {} to {}, on the CPU from {} to {}", output.name, i,
                          must ? "stays" : "goes", gpu.before.at(output.name)[i],
                          gpu.behind.at(output.name)[i], values[i], cpu.behind.at(output.name)[i]);
    }
  }
  if (cpu_changes && !gpu_changes && wrong.empty()) wrong = "nothing changes";
  return cpu_changes;
}

struct Sums {
  int n_operands = 0;
  std::map<std::string, std::set<std::string>> without_effect;  // by operand, of cases
  std::set<std::string> with_effect;
};

void change_operands(const OpCase& c, Dtype dtype, Backend& gpu, Sums& sums) {
  const Graph graph = case_graph(c, dtype);
  if (!gpu.catalogue->choose(graph, graph.nodes[0])) return;
  Graph lowered = graph;
  lowered.phase = Phase::lowered;
  BoundGraph fast(lowered, gpu);
  BoundGraph slow(lower(lowered, *scalar_backend().catalogue), scalar_backend());
  const Tensors inputs = case_inputs(c, 11);
  const Tensors fast_before = fast.run(inputs), slow_before = slow.run(inputs);
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const OperandCase& o = c.operands[i];
    if (o.absent || o.type.n_elems() == 0) continue;
    bool has_effect = false;
    std::string wrong;
    for (const Extent extent : {Extent::few, Extent::all}) {
      if (has_effect || !wrong.empty()) continue;
      Tensors other = inputs;
      other[input_name(i)] = changed(o, inputs.at(input_name(i)), extent);
      const Tensors fast_behind = fast.run(other), slow_behind = slow.run(other);
      has_effect =
          compare(graph, c.op, {slow_before, slow_behind}, {fast_before, fast_behind}, wrong);
    }
    const std::string operand =
        fmt::format("{} {}", op_def(c.op).name, op_def(c.op).operands[i].name);
    ++sums.n_operands;
    if (has_effect) {
      sums.with_effect.insert(operand);
    } else {
      sums.without_effect[operand].insert(c.name);
    }
    EXPECT_EQ(wrong, "") << c.name << " " << dtype_name(dtype) << ", operand "
                         << op_def(c.op).operands[i].name << " changed";
  }
}

// Each case in one type, in turn; `all` in all of them.
void change_all(const std::vector<Dtype>& dtypes, bool in_turn) {
  OCTET_GPU_OR_SKIP(gpu);
  Sums sums;
  size_t turn = 0;
  for (const OpCase& c : op_cases::op_cases()) {
    if (in_turn) {
      change_operands(c, dtypes[turn++ % dtypes.size()], *gpu, sums);
    } else {
      for (const Dtype dtype : dtypes) change_operands(c, dtype, *gpu, sums);
    }
  }
  for (const auto& [operand, cases] : sums.without_effect) {
    EXPECT_TRUE(sums.with_effect.contains(operand))
        << operand << ": changes the result of no case, not of " << *cases.begin();
  }
  std::cout << sums.n_operands << " operands changed\n";
  EXPECT_GT(sums.n_operands, 100);
}

TEST(operands, change_the_gpus_result_where_they_change_the_cpus) {
  change_all({Dtype::f32, Dtype::bf16, Dtype::fp16}, true);
}

TEST(operands, of_every_type_change_the_gpus_result_where_they_change_the_cpus) {
  change_all({Dtype::f32, Dtype::bf16, Dtype::fp16}, false);
}

}  // namespace
}  // namespace octet::fusion
