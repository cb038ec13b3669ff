#include "ir/print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <type_traits>

#include "ir/op_def.h"

namespace octet {
namespace {

template <typename T>
std::string attr_text(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, Shape>) {
    return to_string(value);
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    return fmt::format("[{}]", fmt::join(value, ", "));
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(enum_name(value));
  } else {
    return fmt::format("{}", value);  // shortest text that reads back to the same number
  }
}

std::string attrs_text(const Attrs& attrs) {
  std::vector<std::string> parts;
  std::visit(
      [&](const auto& a) {
        std::decay_t<decltype(a)>::fields(a, [&](const char* name, const auto& value) {
          parts.push_back(fmt::format("{} = {}", name, attr_text(value)));
        });
      },
      attrs);
  return parts.empty() ? "" : fmt::format(" {{{}}}", fmt::join(parts, ", "));
}

// Slots that are there; `named`: a slot that could be absent, with its name.
template <typename Named>
std::string slot_list(const ValueIds& ids, const SlotList& slots, const Named& named) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == kNoValue) continue;
    const Slot slot = slots[i];
    parts.push_back(slot.optional ? named(slot.name, ids[i]) : fmt::format("%{}", ids[i]));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char ch : text) {
    if (ch == '"' || ch == '\\') out += '\\';
    out += ch;
  }
  return out + "\"";
}

}  // namespace

std::string print(const Graph& graph, const Node& node) {
  std::vector<std::string> types;
  for (const ValueId id : node.results) {
    if (id != kNoValue) types.push_back(to_string(graph.type(id)));
  }
  std::string tag(enum_name(node.tag.role));
  if (node.tag.layer >= 0) {
    const std::string name = node.tag.layer_name.empty() ? "" : " " + quoted(node.tag.layer_name);
    tag = fmt::format("layer {}{}, {}", node.tag.layer, name, tag);
  }
  if (!node.tag.origin.empty()) tag += ", " + quoted(node.tag.origin);
  const OpDef& def = op_def(node.op);
  const auto results = slot_list(node.results, def.results, [](std::string_view name, ValueId id) {
    return fmt::format("%{}:{}", id, name);
  });
  const auto operands = slot_list(
      node.operands, def.operands,
      [](std::string_view name, ValueId id) { return fmt::format("{} = %{}", name, id); });
  return fmt::format("{} = {}({}){} : {} @ {}", results, def.name, operands, attrs_text(node.attrs),
                     fmt::join(types, ", "), tag);
}

std::string print(const Graph& graph) {
  std::string text = fmt::format("graph {} phase {}\n", quoted(graph.name), enum_name(graph.phase));
  size_t next_input = 0;
  const auto inputs_below = [&](ValueId limit) {
    for (; next_input < graph.inputs.size() && graph.inputs[next_input].value < limit;
         ++next_input) {
      const GraphInput& input = graph.inputs[next_input];
      text += fmt::format("%{} = input {} {} : {}{}\n", input.value, enum_name(input.kind),
                          quoted(input.name), to_string(graph.type(input.value)),
                          input.whole ? " shard of " + to_string(*input.whole) : "");
    }
  };
  for (const Node& node : graph.nodes) {
    inputs_below(node.results.empty() ? 0 : node.out(0));
    text += print(graph, node) + "\n";
  }
  inputs_below(static_cast<ValueId>(graph.values.size()));
  for (const GraphOutput& output : graph.outputs) {
    text += fmt::format("output {} %{}", quoted(output.name), output.value);
    if (output.updates != kNoValue) text += fmt::format(" updates %{}", output.updates);
    text += "\n";
  }
  return text;
}

}  // namespace octet
