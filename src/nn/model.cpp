#include "nn/model.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "nn/blocks.h"
#include "nn/list.h"

namespace octet {
namespace {

// In ModelKind's order.
constexpr const ModelDef* kModels[] = {
    &kLlama,
    &kOlmo,
    &kGpt2,
};

void check_common(const ModelSpec& spec) {
  const std::pair<std::string_view, int64_t> sizes[] = {
      {"hidden", spec.hidden},     {"layers", spec.layers},     {"heads", spec.heads},
      {"kv_heads", spec.kv_heads}, {"head_dim", spec.head_dim}, {"ffn", spec.ffn},
      {"vocab", spec.vocab},
  };
  for (const auto& [name, size] : sizes) {
    if (size < 1) {
      throw Error(ErrorCode::invalid_argument, "[model] expected {} of at least 1, got {}", name,
                  size);
    }
  }
  if (spec.heads % spec.kv_heads != 0) {
    throw Error(ErrorCode::invalid_argument,
                "[model] expected heads to be a multiple of kv_heads {}, got {}", spec.kv_heads,
                spec.heads);
  }
  if (!(spec.norm_eps > 0) || !std::isfinite(spec.norm_eps)) {
    throw Error(ErrorCode::invalid_argument, "[model] expected norm_eps above 0, got {}",
                spec.norm_eps);
  }
}

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

ModelSpec resolved(const ModelSpec& spec) {
  ModelSpec full = spec;
  if (full.kv_heads == 0) full.kv_heads = full.heads;
  if (full.head_dim == 0 && full.heads > 0) {
    if (full.hidden % full.heads != 0) {
      throw Error(ErrorCode::invalid_argument,
                  "[model] expected hidden to be a multiple of heads {}, got {}", full.heads,
                  full.hidden);
    }
    full.head_dim = full.hidden / full.heads;
  }
  check_common(full);
  model_def(full.kind).check(full);
  return full;
}

std::vector<ParameterSpec> model_parameters(const ModelSpec& spec) {
  Blocks blocks(resolved(spec));
  model_def(spec.kind).logits(blocks);
  return blocks.parameters();
}

ModelGraph build_model(const ModelSpec& spec, const BatchShape& batch, ModelOutputs outputs) {
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
