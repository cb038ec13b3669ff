// A field's value of a spec, as text and as a number.
#include <fmt/ranges.h>

#include <algorithm>

#include "nn/fields.h"

namespace octet {
namespace {

struct FieldText {
  const ModelSpec& spec;
  template <typename T>
  std::string operator()(T ModelSpec::*member) const {
    return fmt::format("{}", spec.*member);
  }
  std::string operator()(ModelList member) const {
    return fmt::format("[{}]", fmt::join(spec.*member, ", "));
  }
  std::string operator()(const ModelEnum* member) const {
    return member->names()[static_cast<size_t>(member->get(spec))];
  }
};

struct NumberOf {
  const ModelSpec& spec;
  std::optional<double> operator()(int64_t ModelSpec::*member) const {
    return static_cast<double>(spec.*member);
  }
  std::optional<double> operator()(double ModelSpec::*member) const { return spec.*member; }
  std::optional<double> operator()(bool ModelSpec::*) const { return std::nullopt; }
  // The one that is farthest out.
  std::optional<double> operator()(ModelList member) const {
    const std::vector<int64_t>& list = spec.*member;
    if (list.empty()) return std::nullopt;
    const auto least = static_cast<double>(std::ranges::min(list));
    return least < 1 ? least : static_cast<double>(std::ranges::max(list));
  }
  std::optional<double> operator()(const ModelEnum*) const { return std::nullopt; }
};

}  // namespace

std::string field_text(const ModelField& field, const ModelSpec& spec) {
  return std::visit(FieldText{spec}, field.member);
}

std::optional<double> number_of(const ModelField& field, const ModelSpec& spec) {
  return std::visit(NumberOf{spec}, field.member);
}

std::string number_text(const ModelField& field) {
  const bool is_integer = std::holds_alternative<int64_t ModelSpec::*>(field.member);
  const bool is_list = std::holds_alternative<ModelList>(field.member);
  return (is_list      ? "a list of integers"
          : is_integer ? "an integer"
                       : "a number") +
         bounds_text(field.bounds);
}

}  // namespace octet
