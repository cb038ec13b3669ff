#include "nn/model.h"

#include <algorithm>

#include "base/error.h"
#include "nn/blocks.h"
#include "nn/list.h"
#include "nn/shape.h"

namespace octet {
namespace {

// In ModelKind's order.
constexpr const ModelDef* kModels[] = {
    &kLlama, &kOlmo, &kGpt2, &kMistral, &kQwen2, &kQwen3, &kOlmo2, &kSmolLm3, &kGptNeox,
};

}  // namespace

std::span<const ModelDef* const> models() {
  return kModels;
}

const ModelDef& model_def(ModelKind kind) {
  const ModelDef& def = *kModels[static_cast<size_t>(kind)];
  CHECK(def.kind == kind);
  return def;
}

const ModelDef* find_model(std::string_view name) {
  for (const ModelDef* def : kModels) {
    if (def->name == name) return def;
  }
  return nullptr;
}

const HfKey* find_hf_key(const ModelDef& def, std::string_view field) {
  for (const auto keys : {def.own_hf_keys, def.hf_keys}) {
    const auto at = std::ranges::find(keys, field, &HfKey::field);
    if (at != keys.end()) return &*at;
  }
  return nullptr;
}

std::vector<HfKey> hf_keys_of(const ModelDef& def) {
  std::vector<HfKey> keys;
  for (const HfKey& key : def.hf_keys) {
    if (find_hf_key(def, key.field) == &key) keys.push_back(key);
  }
  keys.insert(keys.end(), def.own_hf_keys.begin(), def.own_hf_keys.end());
  return keys;
}

ModelSpec resolved(const ModelSpec& spec) {
  if (const auto fault = fault_of(spec)) {
    throw Error(ErrorCode::invalid_argument, "[model] {}: expected {}, got {}", fault->field,
                fault->expected_of(fault->other), fault->got);
  }
  return filled(spec);
}

std::vector<ParameterSpec> model_parameters(const ModelSpec& spec) {
  Blocks blocks(resolved(spec));
  model_def(spec.kind).logits(blocks);
  return blocks.parameters();
}

ModelGraph build_model(const ModelSpec& spec, const BatchSize& batch, ModelOutputs outputs) {
  if (batch.batch < 1 || batch.seq < 1) {
    throw Error(ErrorCode::invalid_argument,
                "[model] expected a batch of at least 1 sequence of 1 token, got {} of {}",
                batch.batch, batch.seq);
  }
  ModelGraph model{.graph = {}, .parameters = model_parameters(spec)};
  Blocks blocks(resolved(spec), batch, outputs, model.parameters);
  blocks.outputs(model_def(spec.kind).logits(blocks));
  model.graph = blocks.take_graph();
  return model;
}

int64_t parameter_count(const ModelSpec& spec) {
  int64_t count = 0;
  for (const ParameterSpec& p : model_parameters(spec)) count += n_elems(p.shape);
  return count;
}

}  // namespace octet
