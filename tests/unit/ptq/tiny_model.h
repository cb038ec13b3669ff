// A model folder with random weights, and what runs it.
#pragma once

#include <cmath>

#include "backends/cpu/backend.h"
#include "base/philox.h"
#include "infer/batch_inputs.h"
#include "infer/evaluate.h"
#include "infer/inference.h"
#include "infer/stored_weights.h"
#include "nn/hf_config.h"
#include "ptq/ptq.h"
#include "unit/base/scratch_folder.h"

namespace octet::test {

inline ModelSpec tiny_spec(ModelKind kind) {
  ModelSpec spec{.kind = kind,
                 .hidden = 32,
                 .layers = 2,
                 .heads = 4,
                 .ffn = 64,
                 .vocab = 61,
                 .max_positions = 64};
  if (model_def(kind).grouped_heads) spec.kv_heads = 2;
  return resolved(spec);
}

// outlier: channel 3 of each norm is so much larger, and the weights that read it smaller.
inline void put_tiny_model(const ScratchFolder& folder, const ModelSpec& spec, float outlier = 1) {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<TensorSource> sources;
  uint32_t seed = 0;
  for (const ParameterSpec& p : model_parameters(spec)) {
    const RandomStream random{.name = name_hash("tiny"), .seed = ++seed};
    std::vector<float> values(static_cast<size_t>(n_elems(p.shape)));
    const bool is_matrix = p.shape.size() == 2;
    const float sigma = is_matrix ? 1 / std::sqrt(static_cast<float>(spec.hidden)) : 0.1f;
    for (size_t i = 0; i < values.size(); ++i) values[i] = sigma * random.normal(i);
    if (!is_matrix && !p.name.ends_with("bias")) {
      for (float& x : values) x += 1;
    }
    const bool is_norm = p.name.ends_with("input_layernorm.weight") ||
                         p.name.ends_with("post_attention_layernorm.weight");
    const auto reads_norm = [&](std::string_view part) {
      return p.name.find(part) != std::string::npos && p.name.ends_with("weight");
    };
    if (is_norm) values[3] *= outlier;
    if (reads_norm("q_proj") || reads_norm("k_proj") || reads_norm("v_proj") ||
        reads_norm("gate_proj") || reads_norm("up_proj")) {
      for (size_t i = 3; i < values.size(); i += static_cast<size_t>(spec.hidden)) {
        values[i] /= outlier;
      }
    }
    bytes.push_back(encode_weights(values, Dtype::f32));
    sources.push_back({tensor_decl(p.name, Dtype::f32, p.shape), {}});
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    sources[i].emit = [&bytes, i](const ByteSink& sink) { sink(bytes[i]); };
  }
  write_atomically(posix_files(), folder / "model.safetensors",
                   [&](FileWriter& out) { write_safetensors(out, sources); });
  folder.put("config.json", hf_config_text(spec));
}

inline std::vector<Batch> tiny_rows(const ModelSpec& spec, int64_t rows, int64_t seq,
                                    uint32_t seed = 5) {
  const RandomStream random{.name = name_hash("rows"), .seed = seed};
  Batch batch = empty_batch(rows, seq);
  std::vector<int32_t>&tokens = batch.ints("tokens"), &labels = batch.ints("labels");
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(random.bits(i) % static_cast<uint32_t>(spec.vocab));
    if (i > 0) labels[i - 1] = tokens[i];
  }
  complete(batch);
  return {batch};
}

inline std::vector<float> logits_of(const std::string& folder, const Batch& batch,
                                    Backend& backend) {
  const ModelSource source = find_model_source(posix_files(), folder);
  const WeightReader weights(posix_files(), source.weights, source.spec);
  const FunctionKey key{function::logits, {.batch = batch.batch, .seq = batch.seq}};
  Inference model(source.spec, {"fp32", weights.inputs()}, std::span(&key, 1), *backend.device,
                  *backend.catalogue);
  model.load(weights);
  BoundPlan& run = model.function(key.name, key.size);
  upload(run, batch);
  run.run();
  std::vector<float> all;
  for (int64_t row = 0; row < std::ssize(batch.ints("tokens")); ++row) {
    const std::vector<float> logits = model.read_logits(run, row);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

// Signal to noise of logits.
inline double snr_db(const std::vector<float>& exact, const std::vector<float>& got) {
  return octet::error_of(exact, got).snr_db();
}

}  // namespace octet::test
