#include "plan/kernel_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/op_def.h"

namespace octet {

namespace {

// Without its shape and layout.
std::string name_of(const TensorType& type) {
  const std::string text = to_string(type);
  return text.substr(0, text.find_first_of("[^"));
}

}  // namespace

std::string kernel_name(const NodeView& view, const KernelRow& row) {
  std::vector<std::string> from, to;
  for (size_t i = 0; i < view.node.operands.size() && i < 4; ++i) {
    if (view.has(i)) from.push_back(name_of(view.in(i)));
  }
  for (size_t i = 0; i < view.node.results.size(); ++i) {
    if (view.gives(i)) to.push_back(name_of(view.out(i)));
  }
  return fmt::format("{} {} -> {}: {}", op_def(view.node.op).name, fmt::join(from, " x "),
                     fmt::join(to, ", "), row.name);
}

}  // namespace octet
