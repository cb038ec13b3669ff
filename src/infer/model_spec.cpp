#include "infer/model_spec.h"

#include "nn/hf_config.h"

namespace octet {

ModelSpec model_from_config(const Files& files, const RunConfig& config) {
  if (!config.model.path.empty()) {
    ModelSpec spec = read_hf_config(files, config.model.path);
    spec.rope_seq = config.model.seq;
    return spec;
  }
  ModelSpec spec = config.model;
  spec.rope_seq = config.model.seq;
  spec.max_positions = config.model.seq;
  return resolved(spec);
}

ForwardBuilder forward_builder(const ModelSpec& spec) {
  return [spec](const BatchSize& size, ForwardKind kind) {
    const ModelOutputs outputs =
        kind == ForwardKind::loss ? ModelOutputs::loss : ModelOutputs::logits;
    return build_model(spec, size, outputs).graph;
  };
}

}  // namespace octet
