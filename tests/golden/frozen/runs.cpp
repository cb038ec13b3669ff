#include "golden/frozen/runs.h"

#include <fmt/format.h>

#include "config/load.h"
#include "infer/model_spec.h"
#include "train/run_setup.h"

namespace octet::frozen {
namespace {

std::string model_yaml(Size size) {
  return size == Size::tiny
             ? "model: {hidden: 32, layers: 2, heads: 2, ffn: 64, vocab: 256, seq: 8}\n"
               "train: {batch: 2}\n"
             : "model: {hidden: 256, layers: 2, heads: 4, ffn: 704, vocab: 256, seq: 256}\n"
               "train: {batch: 2}\n";
}

Run run(Size size, const std::string& name, const std::vector<std::string>& sets) {
  const RunConfig config = parse_config(model_yaml(size), name, sets).config;
  ModelSpec spec = model_from_config(posix_files(), config);
  if (size == Size::tiny) spec.vocab = 48;  // fewer than the configuration's tokenizer has
  return {name, spec, program_options(config, spec)};
}

// Each line: what it is called, and the settings.
struct Variant {
  std::string name;
  std::vector<std::string> sets;
};

// Setting that runs had before the key was there.
constexpr const char* kStored = "recipe.forward_reads=stored";

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all = {
      {"grouped queries, tied, delayed",
       {"model.heads=4", "model.kv_heads=2", "model.tied=true", "recipe.base=fp8_linear",
        "recipe.scaling=delayed"}},
      {"stochastic states and masters",
       {"recipe.base=coat-fast", kStored, "optim.state_m=e4m3_sr+x", "optim.state_v=hif8_sr+x",
        "optim.master=bf16_sr", "optim.math=exact", "train.accumulate=3"}},
      {"recomputed, unclipped",
       {"recipe.base=coat", kStored, "train.recompute=full", "optim.clip=0",
        "recipe.weight_copy=w_only"}},
      {"head in chunks, f32 gradients",
       {"recipe.base=coat", kStored, "train.head_chunk=1024", "train.accumulate=5"}},
      {"wide states, f32 masters, rope scaled",
       {"recipe.base=hif8", "optim.master=fp32", "optim.state_v=bf16",
        "model.rope_scaling.type=llama3", "model.rope_scaling.factor=8",
        "model.rope_scaling.original_max_position=16"}},
  };
  return all;
}

}  // namespace

std::vector<Run> runs(Size size) {
  std::vector<Run> result;
  // One of each kind of norm, position and MLP: the others are built from the same blocks.
  for (const char* model : {"llama", "olmo", "gpt2"}) {
    for (const char* recipe : {"fp32", "bf16", "fp16", "fp8_linear", "coat", "coat-fast", "hif8"}) {
      for (const char* accumulate : {"1", "3"}) {
        result.push_back(
            run(size, fmt::format("{} {} x{}", model, recipe, accumulate),
                {fmt::format("model.kind={}", model), fmt::format("recipe.base={}", recipe),
                 fmt::format("train.accumulate={}", accumulate), kStored}));
      }
    }
  }
  for (const Variant& variant : variants()) result.push_back(run(size, variant.name, variant.sets));
  return result;
}

std::vector<Run> runs_of_unquantized_reads(Size size) {
  return {run(size, "llama coat x1", {"recipe.base=coat"}),
          run(size, "gpt2 coat-fast x3",
              {"model.kind=gpt2", "recipe.base=coat-fast", "train.accumulate=3"}),
          run(size, "olmo coat-static x1", {"model.kind=olmo", "recipe.base=coat-static"})};
}

}  // namespace octet::frozen
