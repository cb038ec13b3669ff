#include "nn/head_parameters.h"

#include <utility>

namespace octet {

std::set<std::string> feature_parameters(const ModelSpec& spec) {
  ModelSpec bare = spec;
  bare.head = ModelHead::features;
  std::set<std::string> names;
  for (ParameterSpec& one : model_parameters(bare)) names.insert(std::move(one.name));
  return names;
}

std::vector<std::string> head_parameters(const ModelSpec& spec) {
  if (model_def(spec.kind).heads.empty()) return {};
  const ModelHead head = head_of(spec).head;
  if (!has_classes(head) && head != ModelHead::value && head != ModelHead::span) return {};
  const std::set<std::string> features = feature_parameters(spec);
  std::vector<std::string> names;
  for (const ParameterSpec& one : model_parameters(spec)) {
    if (!features.contains(one.name)) names.push_back(one.name);
  }
  return names;
}

}  // namespace octet
