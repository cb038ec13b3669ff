// Short hands for the launch functions of bindings.
#pragma once

#include "backends/cpu/bind/binding.h"
#include "backends/cpu/common/operand.h"
#include "backends/cpu/elementwise/amax_sink.h"
#include "formats/table.h"
#include "ir/op_def.h"

namespace octet::cpu {

// Types of a node's operands and own results by slot; absent ones are f32.
struct NodeTypes {
  explicit NodeTypes(const NodeView& view) {
    for (size_t i = 0; i < view.node.operands.size(); ++i) {
      in.push_back(view.has(i) ? view.in(i).dtype : Dtype::f32);
    }
    for (size_t i = 0; i < own_results(view); ++i)
      out.push_back(view.gives(i) ? view.out(i).dtype : Dtype::f32);
  }
  std::vector<Dtype> in, out;
};

// Arguments of a launch function. Slots that are absent give an absent In or Out, or nullptr.
struct Call {
  const LaunchArgs& args;
  const NodeTypes& types;
  const Attrs& node_attrs;
  ThreadPool& pool;
  AmaxSink* amax = nullptr;  // of a node that has the attribute `amax`

  template <typename A>
  const A& attrs() const {
    return std::get<A>(node_attrs);
  }
  In in(size_t i) const { return i < types.in.size() ? In{args.operands[i], types.in[i]} : In{}; }
  Out out(size_t i) const {
    return i < types.out.size() ? Out{args.results[i], types.out[i]} : Out{};
  }
  template <typename T>
  const T* data(size_t i) const {
    return i < args.operands.size() ? reinterpret_cast<const T*>(args.operands[i]) : nullptr;
  }
  template <typename T>
  T* result(size_t i) const {
    return i < args.results.size() ? reinterpret_cast<T*>(args.results[i]) : nullptr;
  }
  template <typename T>
  T* scratch() const {
    return reinterpret_cast<T*>(args.scratch);
  }
};

// Calls launch(call); the maximum that it gives to the sink, where there is one, is stored.
template <typename Launch>
LaunchFn launcher(const NodeView& view, Context& context, Launch launch) {
  return [launch, types = NodeTypes(view), attrs = view.node.attrs,
          &pool = context.pool](const LaunchArgs& args) {
    if (!emits_amax(attrs)) return launch(Call{args, types, attrs, pool});
    AmaxSink sink;
    const Call call{args, types, attrs, pool, &sink};
    launch(call);
    *call.result<float>(types.out.size()) = sink.value();
    *call.result<uint8_t>(types.out.size() + 1) = sink.nonfinite() ? 1 : 0;
  };
}

// Scratch of reductions (reduce.h) of each operand, one after another.
int64_t reduce_bytes(const NodeView& view);

// The results of global_norm and sharded_norm.
void write_norm(const Call& call, double norm, bool is_finite);

// Every operand and own result is f32 or bf16.
bool all_f32_or_bf16(const NodeView& view);

}  // namespace octet::cpu
