// Training a model of a few thousand parameters, for tests of recipes.
#pragma once

#include <cmath>
#include <vector>

#include "backends/cpu/backend.h"
#include "base/error.h"
#include "base/named_enum.h"
#include "base/philox.h"
#include "infer/model_spec.h"
#include "train/engine.h"
#include "train/weights.h"

namespace octet::tiny {

inline cpu::Backend& backend() {
  static cpu::Backend fast = cpu::make_backend(2, cpu::detect_isa());
  return fast;
}

inline ModelSpec spec(ModelKind kind = ModelKind::llama) {
  return resolved({.kind = kind,
                   .hidden = 32,
                   .layers = 2,
                   .heads = 2,
                   .ffn = 64,
                   .vocab = 48,
                   .max_positions = 32});
}

inline ProgramOptions options(std::string_view recipe, const ModelSpec& model = spec()) {
  ProgramOptions result;
  result.forward = forward_builder(model);
  result.recipe = recipe;
  result.train = {.batch = 4, .seq = 16};
  result.optim.master = *enum_from_name<Master>(default_master(find_recipe(recipe)));
  return result;
}

// Rows that count upwards from a random token: a rule that is soon learnt.
inline Batch batch(const BatchSize& size, uint64_t step, int64_t vocab = 48) {
  std::vector<int32_t> tokens, labels;
  const RandomStream random{.name = name_hash("tiny batch")};
  for (int64_t b = 0; b < size.batch; ++b) {
    const auto first = random.bits(step * 64 + static_cast<uint64_t>(b));
    for (int64_t t = 0; t < size.seq; ++t) {
      const auto token = static_cast<int64_t>(first % 997) + t;
      tokens.push_back(static_cast<int32_t>(token % vocab));
      labels.push_back(static_cast<int32_t>((token + 1) % vocab));
    }
  }
  return text_batch(size.batch, size.seq, std::move(tokens), std::move(labels));
}

inline StepScalars scalars(uint32_t step, float lr = 5e-3f) {
  return {.lr = lr, .applied = step + 1, .clip = 1, .attempt = step + 1};
}

inline void start(TrainEngine& engine, const ModelSpec& model = spec()) {
  write_weights(engine.arenas(), engine.layout(), model_parameters(model),
                [](const ParameterSpec& p) { return initial_values(p, 1); });
}

// The losses of the steps; the micro-batches of a step are the rows of one batch, in order.
struct Machine {
  Device& device;
  Catalogue& catalogue;
};
inline std::vector<float> losses_on(const Machine& machine, const ProgramOptions& program,
                                    int n_steps, const ModelSpec& model) {
  TrainEngine engine(program, machine.device, machine.catalogue);
  start(engine, model);
  std::vector<float> result;
  const BatchSize whole{program.train.batch * program.accumulate, program.train.seq};
  for (int step = 0; step < n_steps; ++step) {
    const Batch all = batch(whole, static_cast<uint64_t>(step), model.vocab);
    std::vector<Batch> parts;
    const auto n = all.ints("tokens").size() / static_cast<size_t>(program.accumulate);
    for (size_t i = 0; i < static_cast<size_t>(program.accumulate); ++i) {
      const auto from = static_cast<std::ptrdiff_t>(i * n),
                 to = from + static_cast<std::ptrdiff_t>(n);
      const auto part = [&](std::string_view name) {
        const std::vector<int32_t>& values = all.ints(name);
        return std::vector<int32_t>(values.begin() + from, values.begin() + to);
      };
      parts.push_back(
          text_batch(program.train.batch, program.train.seq, part("tokens"), part("labels")));
    }
    result.push_back(engine.step(parts, scalars(static_cast<uint32_t>(step))).loss);
  }
  return result;
}

inline std::vector<float> losses(const ProgramOptions& program, int n_steps,
                                 const ModelSpec& model = spec(),
                                 Catalogue& catalogue = *backend().catalogue) {
  return losses_on({*backend().device, catalogue}, program, n_steps, model);
}

}  // namespace octet::tiny
