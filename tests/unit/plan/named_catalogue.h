// A catalogue without kernels: names and scratch sizes, for tests that plan and do not run.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "ir/op_def.h"
#include "plan/catalogue.h"

namespace octet::test {

class NamedCatalogue : public Catalogue {
 public:
  std::map<OpCode, int64_t> scratch;
  std::optional<OpCode> missing;
  std::set<OpCode> with_two_phases;

  std::optional<KernelChoice> choose(const Graph&, const Node& node) const override {
    if (missing == node.op) return std::nullopt;
    const auto bytes = scratch.find(node.op);
    return KernelChoice{.name = std::string(op_def(node.op).name),
                        .scratch_bytes = bytes == scratch.end() ? 0 : bytes->second,
                        .has_two_phases = with_two_phases.contains(node.op)};
  }
  LaunchFn prepare(const Graph&, const Node&, const KernelChoice&) override {
    return [](const LaunchArgs&) {};
  }
};

}  // namespace octet::test
