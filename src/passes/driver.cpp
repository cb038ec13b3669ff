#include "passes/driver.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "ir/verify.h"
#include "passes/autodiff.h"
#include "passes/simplify.h"

namespace octet {
namespace {

constexpr std::array kPasses = {
    Pass{"autodiff", [](const Graph& g) { return autodiff(g); },
         "append the gradients of output \"loss\""},
    Pass{"simplify", simplify, "identities, common nodes and dead nodes, until nothing changes"},
    Pass{"remove_identities", remove_identities, "drop what does nothing"},
    Pass{"merge_common", merge_common, "merge nodes that compute the same thing"},
    Pass{"remove_dead", remove_dead, "drop nodes that no output depends on"},
    Pass{"decompose", decompose_all, "replace every op by its decomposition, down to primitives"},
};

}  // namespace

std::span<const Pass> all_passes() {
  return kPasses;
}

Graph run_passes(const Graph& graph, const std::vector<std::string>& names) {
  verify(graph);
  Graph current = graph;
  for (const std::string& name : names) {
    const auto it = std::find_if(kPasses.begin(), kPasses.end(),
                                 [&](const Pass& pass) { return pass.name == name; });
    if (it == kPasses.end()) {
      std::string known;
      for (const Pass& pass : kPasses)
        known += fmt::format("{}{}", known.empty() ? "" : ", ", pass.name);
      throw Error(ErrorCode::invalid_argument, "[passes] expected one of {}, got '{}'", known,
                  name);
    }
    current = it->run(current);
    verify(current);
  }
  return current;
}

}  // namespace octet
