// A model's folder of a few thousand parameters, byte tokens, and conversations to tune it on.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "backends/cpu/backend.h"
#include "cli/train/tiny_run.h"
#include "io/safetensors.h"
#include "nn/hf_config.h"
#include "nn/model.h"
#include "train/finetune.h"
#include "train/row_data.h"
#include "train/run_setup.h"
#include "train/trainer.h"
#include "train/weights.h"

namespace octet::test {

inline ModelSpec small_spec(ModelKind kind = ModelKind::llama) {
  ModelSpec spec;
  spec.kind = kind;
  spec.hidden = 32;
  spec.layers = 2;
  spec.heads = 4;
  spec.ffn = 40;
  spec.vocab = 256;
  spec.max_positions = 96;
  return resolved(spec);
}

// Settings of a short run with adapters; these come last.
inline std::vector<std::string> sets_with(std::vector<std::string> sets) {
  sets.insert(sets.begin(), {"lora.rank=4", "lora.alpha=8", "optim.lr=0.01", "train.steps=6",
                             "train.export=none", "optim.warmup_share=0"});
  return sets;
}

// Random weights, F32, as `edit` leaves them.
using EditWeights = std::function<void(const std::string& parameter, std::vector<float>& values)>;
inline std::string put_model(const ScratchFolder& folder, const ModelSpec& spec,
                             const std::string& name = "model", const EditWeights& edit = {}) {
  folder.put(name + "/config.json", hf_config_text(spec));
  std::vector<std::vector<float>> values;
  std::vector<TensorSource> tensors;
  for (const ParameterSpec& p : model_parameters(spec)) values.push_back(initial_values(p, 7));
  size_t i = 0;
  for (const ParameterSpec& p : model_parameters(spec)) {
    for (float& value : values[i]) value *= p.init == Init::normal ? 8.0f : 1.0f;
    if (edit) edit(p.name, values[i]);
    tensors.push_back(span_source(tensor_decl(p.name, Dtype::f32, p.shape),
                                  std::as_bytes(std::span(values[i++]))));
  }
  write_atomically(posix_files(), folder / (name + "/model.safetensors"),
                   [&](FileWriter& out) { write_safetensors(out, tensors); });
  return folder / name;
}

// An edit: what norms give is 2^14 times what they are initialized to give, and read by matrices
// that are as many times smaller: predictions go by RMS of matrices alone.
inline void shift(const std::string& name, std::vector<float>& values) {
  const bool is_norm = name.find("post_attention_layernorm") != name.npos;
  const bool reads_it = name.find("gate_proj") != name.npos || name.find("up_proj") != name.npos;
  for (float& value : values) value *= is_norm ? 16384.0f : reads_it ? 1.0f / 16384 : 1.0f;
}

// Questions and answers of uneven lengths; the answer repeats the question.
inline std::string put_talks(const ScratchFolder& folder, int n,
                             const std::string& name = "talks.jsonl") {
  std::string lines;
  for (int i = 0; i < n; ++i) {
    const std::string word(static_cast<size_t>(1 + i * 7 % 11), static_cast<char>('a' + i % 5));
    lines += "{\"prompt\": \"" + word + "\", \"completion\": \"" + word + "\"}\n";
  }
  return folder.put(name, lines);
}

// A model's folder, conversations, and the options of a run that tunes it on them.
struct Fixture {
  explicit Fixture(ModelKind kind = ModelKind::llama)
      : options{.model = put_model(folder, small_spec(kind)),
                .data = {put_talks(folder, 60)},
                .out = folder / "run"} {}
  ScratchFolder folder;
  FinetuneOptions options;
};

// Configuration and data that `octet train --model ... --data ...` settles on.
struct Tuning {
  Tuning(const FinetuneOptions& options, const std::vector<std::string>& sets, const Log& log = {})
      : loaded(finetune_config(posix_files(), options, sets)),
        data(open_run_data(posix_files(), loaded.config,
                           read_hf_config(posix_files(), options.model), {.log = log})) {
    fit_to_data(loaded, data);
  }
  const RunConfig& config() const { return loaded.config; }
  LoadedConfig loaded;
  Dataset data;
};

struct Tuner : Tuning {
  Tuner(const FinetuneOptions& options, const std::vector<std::string>& sets, const Log& log = {})
      : Tuning(options, sets, log),
        backend(cpu::make_backend(2, cpu::detect_isa())),
        trainer(config(), data, {posix_files(), *backend.device, *backend.catalogue}) {}
  cpu::Backend backend;
  Trainer trainer;
};

// Stops a run after `step`, as a signal would.
struct StopAfter {
  explicit StopAfter(int64_t step) {
    hooks.stop = &flag;
    hooks.on_step = [this, step](const StepReport& report) {
      if (report.step == step) flag = 15;
    };
  }
  std::atomic<int> flag = 0;
  TrainHooks hooks;
};

// A run of six steps that is stopped behind the third and goes on, in f.folder / "parts", has the
// bits of one that is not, in f.folder / "whole".
inline void expect_parts_are_the_whole(Fixture& f, const std::vector<std::string>& sets) {
  f.options.out = f.folder / "whole";
  Tuner whole(f.options, sets);
  whole.trainer.run({StartMode::fresh, whole.loaded.source}, {});
  f.options.out = f.folder / "parts";
  StopAfter stop(3);
  {
    Tuner first(f.options, sets);
    EXPECT_EQ(first.trainer.run({StartMode::fresh, first.loaded.source}, stop.hooks).step, 3);
  }
  Tuner second(f.options, sets);
  second.trainer.run({StartMode::resume, second.loaded.source}, {});
  EXPECT_EQ(metrics(f.folder / "parts"), metrics(f.folder / "whole"));
  for (const char* name : {"model.safetensors", "optim.safetensors", "manifest.json"}) {
    const std::string end = std::string("/ckpt/step-000006/") + name;
    EXPECT_TRUE(posix_files().read_bytes((f.folder / "parts") + end) ==
                posix_files().read_bytes((f.folder / "whole") + end))
        << name;
  }
}

}  // namespace octet::test
