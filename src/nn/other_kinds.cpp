#include "nn/other_kinds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>
#include <variant>

#include "nn/model.h"

namespace octet {
namespace {

constexpr std::string_view kOfAllKinds[] = {"kind", "hidden", "layers",     "heads", "kv_heads",
                                            "ffn",  "vocab",  "rope_theta", "tied"};

bool has_with_some_scaling(const ModelField& field, ModelSpec spec) {
  for (size_t i = 0; i < enum_names<RopeScaling>().size(); ++i) {
    spec.rope_scaling = static_cast<RopeScaling>(i);
    if (field.is_of(spec)) return true;
  }
  return false;
}

// The spec with the field's value in ModelSpec{}.
ModelSpec without(const ModelField& field, ModelSpec spec) {
  const ModelSpec defaults;
  if (const auto* choice = std::get_if<const ModelEnum*>(&field.member)) {
    (*choice)->set(spec, (*choice)->get(defaults));
    return spec;
  }
  std::visit(
      [&](auto member) {
        if constexpr (std::is_member_object_pointer_v<decltype(member)>)
          spec.*member = defaults.*member;
      },
      field.member);
  return spec;
}

}  // namespace

bool kind_has(const ModelField& field, const ModelSpec& spec) {
  ModelSpec one = spec;
  one.head = ModelHead::text;
  if (has_with_some_scaling(field, one)) return true;
  return std::ranges::any_of(model_def(spec.kind).heads, [&](const HeadDef& head) {
    one.head = head.head;
    return has_with_some_scaling(field, one);
  });
}

std::vector<std::string_view> kinds_with(const ModelField& field) {
  std::vector<std::string_view> names;
  for (const ModelDef* def : models()) {
    if (kind_has(field, {.kind = def->kind})) names.push_back(def->name);
  }
  return names;
}

bool is_default(const ModelField& field, const ModelSpec& spec) {
  const ModelSpec other = without(field, spec);
  const std::string text = field_text(field, spec);
  return text == field_text(field, other) || text == field_text(field, filled(other));
}

std::optional<ModelFault> fault_of_other_kinds(const ModelSpec& spec) {
  for (const ModelField& field : model_fields()) {
    const bool may_be = field.origin == FieldOrigin::run || field.is_of(spec) ||
                        std::ranges::find(kOfAllKinds, field.name()) != std::end(kOfAllKinds);
    if (may_be || is_default(field, spec) || kind_has(field, spec)) continue;
    return fault_against(
        field.name(), "kind",
        fmt::format("{} with {{}} (it is a field of {})", field_text(field, without(field, spec)),
                    fmt::join(kinds_with(field), ", ")),
        spec);
  }
  return std::nullopt;
}

}  // namespace octet
