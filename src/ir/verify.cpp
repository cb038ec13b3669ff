#include "ir/verify.h"

#include <set>

#include "base/error.h"
#include "ir/op_def.h"
#include "ir/print.h"
#include "ir/sharding.h"

namespace octet {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph), defined_(graph.values.size(), false) {}

  void run() {
    std::set<std::string> names;
    ValueId last = kNoValue;
    for (const GraphInput& input : graph_.inputs) {
      if (input.value <= last) fail("input '{}' stands behind one of a later value", input.name);
      last = input.value;
      define(input.value, kNoNode, 0, input.name);
      if (!names.insert(input.name).second) fail("input '{}' is named twice", input.name);
      phase_rule(graph_.type(input.value), input.name);
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) node(static_cast<NodeId>(n));
    for (size_t v = 0; v < defined_.size(); ++v) {
      if (!defined_[v]) fail("value %{} has no producer", v);
    }
    names.clear();
    for (const GraphOutput& output : graph_.outputs) {
      if (!names.insert(output.name).second) fail("output '{}' is named twice", output.name);
      check_output(output);
    }
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorCode::internal, "[verify {}] {}", graph_.name,
                fmt::format(format, std::forward<Args>(args)...));
  }

  bool is_known(ValueId id) const {
    return id >= 0 && static_cast<size_t>(id) < graph_.values.size();
  }

  void define(ValueId id, NodeId producer, int index, const std::string& what) {
    if (!is_known(id)) fail("{} defines no value %{}", what, id);
    if (defined_[id]) fail("%{} is defined twice, again by {}", id, what);
    const Value& value = graph_.value(id);
    if (value.producer != producer || value.result_index != index)
      fail("%{} names another producer than {}", id, what);
    defined_[id] = true;
  }

  void phase_rule(const TensorType& type, const std::string& what) const {
    if (type.is_scaled() != needs_scale(type.dtype)) {
      fail("{} is {}, expected {}", what, to_string(type),
           type.is_scaled() ? "no scales" : "what shares a scale: e4m3:tensor for instance");
    }
    if (!is_float(type.dtype)) return;
    if (graph_.phase == Phase::logical && type.dtype != Dtype::real) {
      fail("{} has storage type {} in the logical phase", what, dtype_name(type.dtype));
    }
    if (graph_.phase != Phase::logical && type.dtype == Dtype::real) {
      fail("{} has no storage type in the {} phase", what, enum_name(graph_.phase));
    }
  }

  void node(NodeId id) {
    const Node& n = graph_.node(id);
    const OpDef& def = op_def(n.op);
    std::vector<TensorType> types;
    for (const ValueId operand : n.operands) {
      if (operand == kNoValue) {
        types.push_back(absent_type());
        continue;
      }
      if (!is_known(operand) || !defined_[operand]) {
        fail("{} (node {}) reads %{} before it is defined", def.name, id, operand);
      }
      types.push_back(graph_.type(operand));
    }
    ResultTypes said;
    for (const ValueId id : n.results)
      said.push_back(is_known(id) ? ResultType(graph_.type(id)) : ResultType(Dtype::f32));
    std::vector<TensorType> inferred;
    try {
      check_operands(def, n.attrs, n.operands);
      check_scales(def, types);
      inferred = def.infer(n.attrs, types, said);
    } catch (const std::bad_variant_access&) {
      fail("{} (node {}) has attributes of another op", def.name, id);
    } catch (const Error& error) {
      fail("node {}: {}", id, error.what());
    }
    while (!inferred.empty() && inferred.back() == absent_type()) inferred.pop_back();
    if (inferred.size() != n.results.size())
      fail("{} (node {}) has {} results, expected {}", def.name, id, n.results.size(),
           inferred.size());
    for (size_t i = 0; i < inferred.size(); ++i) result(id, i, inferred[i]);
  }

  void result(NodeId id, size_t i, const TensorType& inferred) {
    const Node& n = graph_.node(id);
    const std::string what = fmt::format("{} (node {})", op_def(n.op).name, id);
    const bool is_there = n.results[i] != kNoValue;
    if (is_there != (inferred != absent_type()))
      fail("{} {} {}, expected {}", what, is_there ? "gives" : "lacks",
           op_def(n.op).results[i].name, is_there ? "none" : to_string(inferred));
    if (!is_there) return;
    define(n.results[i], id, static_cast<int>(i), what);
    const TensorType& type = graph_.type(n.results[i]);
    const bool dtype_ok = inferred.dtype == Dtype::real
                              ? is_float(type.dtype) && !is_quantized(type.dtype)
                              : type.dtype == inferred.dtype;
    TensorType expected = inferred;
    expected.dtype = type.dtype;
    if (type != expected || !dtype_ok) {
      fail("{} gives {}, expected {}: {}", what, to_string(type), to_string(inferred),
           print(graph_, n));
    }
    phase_rule(type, what);
  }

  void check_output(const GraphOutput& output) const {
    if (!is_known(output.value)) fail("output '{}' names no value", output.name);
    if (output.updates == kNoValue) return;
    if (!is_known(output.updates)) fail("output '{}' updates no value", output.name);
    const GraphInput* input = graph_.input_of(output.updates);
    if (input == nullptr || !is_kept(input->kind) || input->kind == InputKind::constant) {
      fail("output '{}' updates what is no parameter or state", output.name);
    }
    const TensorType &next = graph_.type(output.value), &old = graph_.type(output.updates);
    if (next != old && !is_part(next, old)) {
      fail("output '{}' is {}, its input {}", output.name, to_string(next), to_string(old));
    }
  }
  // One of several shards of one length.
  static bool is_part(const TensorType& next, const TensorType& old) {
    const int64_t n = old.n_elems(), shard = next.n_elems();
    TensorType part = old;
    part.shape = {shard};
    return next == part && shard > 0 && shard < n && n % shard == 0 &&
           shard_elems(n, n / shard) == shard;
  }

  const Graph& graph_;
  ById<bool> defined_;
};

}  // namespace

void verify(const Graph& graph) {
  Verifier(graph).run();
}

}  // namespace octet
