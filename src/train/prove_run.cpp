#include "train/prove_run.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/philox.h"
#include "compile/budget.h"
#include "formats/codec.h"
#include "infer/adapter_note.h"
#include "infer/batch_inputs.h"
#include "infer/inference.h"
#include "infer/model_spec.h"
#include "infer/stored_weights.h"
#include "nn/shape.h"
#include "passes/lora.h"
#include "train/engine.h"
#include "train/run_inputs.h"
#include "train/run_setup.h"
#include "train/weights.h"

namespace octet {
namespace {

constexpr int64_t kAlignment = 16;  // of widths, as kernels ask for it
constexpr int64_t kMaxWidth = 512;  // of all heads together: the reference takes its time

struct ProofSize {
  int64_t batch, seq;
  int64_t kv_heads;     // at most; and of heads for each as many as the model has, or fewer
  int64_t hidden;       // where it does not follow from the heads
  int64_t ffn, vocab;   // and what the model's own lack of alignment adds
  int64_t head_chunks;  // where the run computes its head in chunks
};
constexpr ProofSize kSizes[] = {
    {.batch = 2,
     .seq = 64,
     .kv_heads = 2,
     .hidden = 256,
     .ffn = 384,
     .vocab = 512,
     .head_chunks = 2},
    {.batch = 3,
     .seq = 37,
     .kv_heads = 3,
     .hidden = 208,
     .ffn = 336,
     .vocab = 400,
     .head_chunks = 3},
    {.batch = 2,
     .seq = 150,
     .kv_heads = 1,
     .hidden = 144,
     .ffn = 208,
     .vocab = 304,
     .head_chunks = 2},
};

int64_t like(int64_t small, int64_t own) {
  return small + own % kAlignment;
}

enum class Layers : uint8_t { few, all };

// A few layers, each sort in its turn, the last without a window, as some kinds ask for it. Where
// last layers read keys and values of earlier ones, one of each sort does.
void shorten(ModelSpec& small) {
  const bool shares = small.shared_kv_layers > 0;
  const int64_t few = std::max<int64_t>(shares ? 4 : 2, small.no_rope_every);
  if (few >= small.layers) return;
  small.layers = few;
  if (shares) small.shared_kv_layers = 2;
  for (std::vector<int64_t>* sorts : {&small.window_layers, &small.linear_layers}) {
    if (sorts->empty()) continue;
    const auto [least, most] = std::ranges::minmax(*sorts);
    sorts->assign(static_cast<size_t>(few), most);
    for (int64_t i = few - 1; i >= 0; i -= 2) (*sorts)[static_cast<size_t>(i)] = least;
  }
}

ModelSpec small_model(const ModelSpec& own, const ProofSize& size, Layers layers) {
  const ModelSpec full = resolved(own);
  ModelSpec small = full;
  int64_t group = small.heads / small.kv_heads;
  while (group > 1 && 2 * group * small.head_dim > kMaxWidth) group = (group + 1) / 2;
  const bool follows = small.hidden == small.heads * small.head_dim;
  if (layers == Layers::few) shorten(small);
  if (model_def(small.kind).is_recurrent) small.decoder_layers = small.layers;
  if (small.window_from > 0) small.window_from = small.window_from < own.layers ? 1 : small.layers;
  const int64_t fitting = std::max<int64_t>(1, kMaxWidth / (group * small.head_dim));
  small.kv_heads = std::min({small.kv_heads, size.kv_heads, fitting});
  small.heads = small.kv_heads * group;
  if (full.global_kv_heads > 0) {
    small.global_kv_heads = full.global_kv_heads == full.kv_heads
                                ? small.kv_heads
                                : std::gcd(full.global_kv_heads, small.heads);
  }
  small.hidden = follows ? small.heads * small.head_dim : like(size.hidden, small.hidden);
  if (full.embedding_size == full.hidden) small.embedding_size = small.hidden;
  small.ffn = like(size.ffn, small.ffn);
  small.vocab = like(size.vocab, small.vocab);
  small.sliding_window = std::min(small.sliding_window, size.seq / 2);
  small.max_positions = std::max(small.max_positions, size.seq + first_position(small));
  return resolved(small);
}

// A run is proved as one rank's.
RunConfig of_one_rank(RunConfig config) {
  config.parallel.ranks = 1;
  return config;
}

RunConfig small_config(const RunConfig& own, const ModelSpec& small, const ProofSize& size) {
  RunConfig config = of_one_rank(own);
  config.model.seq = size.seq;
  const int64_t n_rows = rows_per_sample(run_losses(own, small));
  config.train.batch = size.batch + size.batch % n_rows;
  config.train.accumulate = std::min<int64_t>(config.train.accumulate, 2);
  config.train.memory_budget = 0;
  return config;
}

// Options as the run settles them: what a budget chose.
ProgramOptions own_options(const RunConfig& config, const ModelSpec& spec,
                           const Catalogue& catalogue) {
  return fit_to_budget(program_options(of_one_rank(config), spec), catalogue)->options();
}

ProgramOptions small_options(const RunConfig& config, const ModelSpec& small, const ProofSize& size,
                             const ProgramOptions& own) {
  ProgramOptions options = program_options(small_config(config, small, size), small);
  options.recompute = own.recompute;
  if (own.recompute_layers >= 0) options.recompute_layers = 1;
  if (own.head_chunk_bytes > 0)
    options.head_chunk_bytes = size.batch * size.seq * small.vocab * 4 / size.head_chunks;
  return options;
}

// All where a pattern of the configuration names a layer that a few do not have.
Layers layers_of(const RunConfig& config, const ModelSpec& spec, const ProgramOptions& own,
                 const Catalogue& catalogue) {
  const ModelSpec small = small_model(spec, kSizes[0], Layers::few);
  try {
    const Program program(small_options(config, small, kSizes[0], own), catalogue);
    return Layers::few;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    return Layers::all;
  }
}

// Weights that differ everywhere, those of norms too, and biases that are not 0.
std::vector<float> first_values(const ParameterSpec& parameter) {
  constexpr uint32_t kSeed = 7;
  std::vector<float> values = initial_values(parameter, kSeed);
  if (parameter.init == Init::normal) return values;
  const RandomStream random{.name = name_hash(parameter.name), .seed = kSeed};
  for (size_t i = 0; i < values.size(); ++i) values[i] += 0.2f * random.uniform(i) - 0.1f;
  return values;
}

// A frozen weight's data and scales, whose product is as large as a weight.
void write_frozen(Arenas& arenas, const Layout& layout, const ParameterSpec& parameter) {
  const auto write = [&](const Layout::Slot& slot, const std::vector<std::byte>& bytes) {
    arenas.device().copy_in(arenas.arena(slot.arena) + slot.offset, bytes.data(),
                            std::ssize(bytes));
  };
  const Layout::Slot& data = layout.slots.at(parameter.name);
  const Layout::Slot& scale = layout.slots.at(frozen_scale_name(parameter.name));
  const std::vector<float> scales(static_cast<size_t>(scale.type.n_elems()), 0x1p-9f);
  std::vector<std::byte> codes;
  for (const float value : first_values(parameter))
    codes.push_back(static_cast<std::byte>(octet::encode(data.type.dtype, value * 0x1p9f)));
  write(data, codes);
  write(scale, encode_weights(scales, scale.type.dtype));
}

void write_first_weights(TrainEngine& engine, const ModelSpec& spec, const LoraOptions& lora) {
  Arenas& arenas = engine.arenas();
  const Layout& layout = engine.layout();
  write_weights(arenas, layout, {}, {});  // zeroes
  for (const ParameterSpec& parameter : model_parameters(spec)) {
    if (is_quantized(layout.slots.at(parameter.name).type.dtype)) {
      write_frozen(arenas, layout, parameter);
    } else {
      write_master(arenas, layout, parameter.name, first_values(parameter));
    }
  }
  if (lora.rank == 0) return;
  for (const LoraAdapter& adapter : adapters_of(spec, lora)) {
    for (const std::string& name : {adapter.a(), adapter.b()}) {
      const Shape shape = layout.slots.at(name).type.shape;
      const ParameterSpec like{.name = name, .shape = shape, .init = Init::normal, .std = 0.05};
      write_master(arenas, layout, name, first_values(like));
    }
    if (lora.kind != LoraKind::dora) continue;
    const std::vector<float> ones(static_cast<size_t>(adapter.n_out), 1.0f);
    write_master(arenas, layout, adapter.magnitude(), ones);
    write_master(arenas, layout, lora_norm_name(adapter.module), ones);
  }
}

// Random tokens, of documents of some tokens where rows are divided; every eighth label counts
// nowhere.
Batch random_batch(const BatchSize& size, int64_t vocab, uint32_t number) {
  const RandomStream random{.name = name_hash("proof"), .step = number};
  const bool is_divided = size.documents == RowDocuments::isolated;
  Batch batch = empty_batch(size.batch, size.seq, is_divided);
  const auto n = static_cast<uint64_t>(size.batch * size.seq);
  int32_t start = 0;
  for (uint64_t i = 0; i < n; ++i) {
    const auto token = [&](uint64_t word) {
      return static_cast<int32_t>(random.bits(word) % static_cast<uint64_t>(vocab));
    };
    batch.ints("tokens")[i] = token(2 * i);
    batch.ints("labels")[i] = i % 8 == 5 ? kIgnoredLabel : token(2 * i + 1);
    const auto column = static_cast<int32_t>(i % static_cast<uint64_t>(size.seq));
    if (column % 23 == 0) start = column;
    if (is_divided) batch.ints("doc_starts")[i] = start;
  }
  return batch;
}

// Random values of all that another model or loss reads; every eighth label of a token counts
// nowhere.
Batch random_arrays(const RunInputs& inputs, const BatchSize& size, uint32_t number) {
  Batch batch{.batch = size.batch, .seq = size.seq, .rows_per_sample = inputs.rows_per_sample};
  for (const InputSpec& input : inputs.brought()) {
    const RandomStream random{.name = name_hash(input.name), .step = number};
    HostTensor& tensor = batch.add(input);
    if (auto* reals = std::get_if<std::vector<float>>(&tensor.values)) {
      for (size_t i = 0; i < reals->size(); ++i) (*reals)[i] = 2 * random.uniform(i) - 1;
      continue;
    }
    auto& ints = std::get<std::vector<int32_t>>(tensor.values);
    const bool may_be_ignored = input.fill == Fill::ignored && input.per == Per::token;
    for (size_t i = 0; i < ints.size(); ++i) {
      const bool is_ignored = may_be_ignored && i % 8 == 5;
      const auto bound = static_cast<uint64_t>(std::max<int64_t>(input.bound, 1));
      ints[i] = is_ignored ? kIgnoredLabel : static_cast<int32_t>(random.bits(i) % bound);
    }
  }
  return batch;
}

class OneBatch : public EvalRows {
 public:
  explicit OneBatch(Batch batch) : batch_(std::move(batch)) {}
  int64_t n_rows() const override { return batch_.batch; }
  Batch at(int64_t, int64_t) const override { return batch_; }

 private:
  Batch batch_;
};

void prove_small(const ProgramOptions& options, const ModelSpec& spec, const RunInputs& inputs,
                 const Prover& prover) {
  const bool is_text = model_def(spec.kind).writes_text && inputs.names().size() == 2;
  const auto batch_of = [&](uint32_t number) {
    return is_text ? random_batch(options.train, spec.vocab, number)
                   : random_arrays(inputs, options.train, number);
  };
  ProvingCatalogue proving(prover);
  TrainEngine engine(options, *prover.reference.device, proving);
  write_first_weights(engine, spec, options.lora);
  for (uint32_t step = 1; step <= 2; ++step) {
    std::vector<Batch> batches;
    batches.reserve(static_cast<size_t>(options.accumulate));
    for (int i = 0; i < options.accumulate; ++i)
      batches.push_back(batch_of(2 * step + static_cast<uint32_t>(i)));
    // A step of each kind: the second one measures periodic scales.
    const auto attempt = static_cast<uint32_t>(step * kRescalePeriod / 2);
    engine.step(batches, {.lr = 1e-3f, .applied = step, .clip = 1, .attempt = attempt});
  }
  engine.evaluate(OneBatch(batch_of(0)));
}

// Two texts: 16 tokens at once into a cache, then one more each.
void prove_generation(const ProgramOptions& options, const ModelSpec& spec, const Prover& prover) {
  constexpr int64_t kTexts = 2, kCache = 64;
  const BatchSize prompt{.batch = kTexts, .seq = 16, .cache = kCache},
      token{.batch = kTexts, .seq = 1, .cache = kCache};
  const FunctionKey functions[] = {{function::prefill, prompt}, {function::decode, token}};
  Precision precision(options.recipe);
  precision.recipe_options = options.recipe_options;
  ProvingCatalogue proving(prover);
  Inference inference(spec, precision, functions, *prover.reference.device, proving);
  Arenas& arenas = inference.arenas();
  for (const Arena arena : {Arena::persistent, Arena::step, Arena::transient})
    arenas.device().fill_zero(arenas.arena(arena), arenas.bytes(arena));
  for (const FunctionKey& key : functions) {
    BoundPlan& function = inference.function(key.name, key.size);
    const Graph& graph = function.plan().graph;
    for (const ParameterSpec& parameter : model_parameters(spec)) {
      const GraphInput* input = graph.find_input(parameter.name);
      if (input == nullptr) continue;
      const auto bytes = encode_weights(first_values(parameter), graph.type(input->value).dtype);
      function.write_input(parameter.name, bytes.data(), std::ssize(bytes));
    }
    Batch batch = random_batch(key.size, spec.vocab, 9);
    const int64_t first = key.size.seq == 1 ? prompt.seq : 0;
    const std::vector<int64_t> firsts(static_cast<size_t>(kTexts), first);
    batch.set(positions_input(), positions_of(kTexts, key.size.seq, {.first = firsts}));
    upload(function, batch);
    function.run();
  }
}

}  // namespace

void for_planned_functions(const RunConfig& config, const ModelSpec& spec,
                           const Catalogue& catalogue,
                           const std::function<void(const Plan&)>& visit) {
  const ProgramOptions options = own_options(config, spec, catalogue);
  Program program(options, catalogue);
  std::vector<FunctionKey> keys = program.train_keys();
  for (const FunctionKey& key : program.evaluate_keys()) keys.push_back(key);
  if (program.has_derived()) keys.push_back({function::prepare_state, options.train});
  for (const FunctionKey& key : keys) visit(program.plan(key));
}

std::vector<std::string> planned_kernels(const RunConfig& config, const ModelSpec& spec,
                                         const Catalogue& catalogue) {
  std::vector<std::string> kernels;
  std::set<std::string> known;
  for_planned_functions(config, spec, catalogue, [&](const Plan& plan) {
    for (const PlanStep& step : plan.steps) {
      if (known.insert(step.kernel.name).second) kernels.push_back(step.kernel.name);
    }
  });
  return kernels;
}

void prove_run(const RunConfig& config, const ModelSpec& spec, const Prover& prover) {
  const ProgramOptions own = own_options(config, spec, *prover.device.catalogue);
  const Layers layers = layers_of(config, spec, own, *prover.device.catalogue);
  for (const ProofSize& size : kSizes) {
    if (model_def(spec.kind).is_recurrent && size.seq > kMaxUnrolledSteps) continue;
    const ModelSpec small = small_model(spec, size, layers);
    const ProgramOptions options = small_options(config, small, size, own);
    prove_small(options, small, RunInputs(small_config(config, small, size), small), prover);
    if (model_def(small.kind).writes_text) prove_generation(options, small, prover);
  }
}

}  // namespace octet
