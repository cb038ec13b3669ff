// Short hands for the launch functions of bindings.
#pragma once

#include "backends/cpu/bind/binding.h"
#include "backends/cpu/common/operand.h"
#include "backends/cpu/elementwise/amax_sink.h"
#include "formats/table.h"
#include "ir/op_def.h"

namespace octet::cpu {

// Types of a node's operands and own results by slot, kept by a launch function; absent ones give
// an absent In or Out.
struct NodeTypes {
  explicit NodeTypes(const NodeView& view) {
    for (size_t i = 0; i < view.node.operands.size(); ++i) {
      in.push_back(view.has(i) ? view.in(i).dtype : Dtype::f32);
    }
    for (size_t i = 0; i < own_results(view); ++i)
      out.push_back(view.gives(i) ? view.out(i).dtype : Dtype::f32);
  }
  In operand(const LaunchArgs& args, size_t i) const {
    return i < in.size() ? In{args.operands[i], in[i]} : In{};
  }
  Out result(const LaunchArgs& args, size_t i) const {
    return i < out.size() ? Out{args.results[i], out[i]} : Out{};
  }
  std::vector<Dtype> in, out;
};

template <typename T>
const T* data(const LaunchArgs& args, size_t i) {
  return i < args.operands.size() ? reinterpret_cast<const T*>(args.operands[i]) : nullptr;
}
template <typename T>
T* data_out(const LaunchArgs& args, size_t i) {
  return i < args.results.size() ? reinterpret_cast<T*>(args.results[i]) : nullptr;
}

// What a launch function of a node that may have the attribute `amax` gives its kernel:
// launch(args, sink), a sink or nullptr.
template <typename Launch>
LaunchFn with_amax_sink(const NodeView& view, Launch launch) {
  if (!emits_amax(view.node.attrs))
    return [launch](const LaunchArgs& args) { launch(args, static_cast<AmaxSink*>(nullptr)); };
  return [launch, at = op_def(view.node.op).own_results()](const LaunchArgs& args) {
    AmaxSink sink;
    launch(args, &sink);
    *data_out<float>(args, at) = sink.value();
    *data_out<uint8_t>(args, at + 1) = sink.nonfinite() ? 1 : 0;
  };
}

// Every operand and own result is f32 or bf16.
bool all_f32_or_bf16(const NodeView& view);

}  // namespace octet::cpu
