#include "nn/head_parameters.h"

#include <algorithm>

namespace octet {

std::vector<std::string> head_parameters(const ModelSpec& spec) {
  if (model_def(spec.kind).heads.empty()) return {};
  const ModelHead head = head_of(spec).head;
  if (!has_classes(head) && head != ModelHead::value && head != ModelHead::span) return {};
  ModelSpec bare = spec;
  bare.head = ModelHead::features;
  const std::vector<ParameterSpec> features = model_parameters(bare);
  std::vector<std::string> names;
  for (const ParameterSpec& one : model_parameters(spec)) {
    if (std::ranges::find(features, one.name, &ParameterSpec::name) == features.end())
      names.push_back(one.name);
  }
  return names;
}

}  // namespace octet
