#include "plan/kernel_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/op_def.h"

namespace octet {

std::string kernel_name(const NodeView& view, std::string_view variant) {
  std::vector<std::string_view> from, to;
  for (size_t i = 0; i < view.node.operands.size() && i < 4; ++i) {
    if (view.has(i)) from.push_back(dtype_name(view.in(i).dtype));
  }
  for (size_t i = 0; i < view.node.results.size(); ++i) {
    if (view.gives(i)) to.push_back(dtype_name(view.out(i).dtype));
  }
  return fmt::format("{}{}{} {} -> {}", op_def(view.node.op).name, variant.empty() ? "" : " ",
                     variant, fmt::join(from, " x "), fmt::join(to, ", "));
}

}  // namespace octet
