#include "bench/decode_bench.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/named_enum.h"
#include "base/philox.h"
#include "bench/recipe_rounds.h"
#include "compile/program.h"
#include "formats/bf16.h"
#include "infer/model_spec.h"
#include "plan/row_unavailable.h"

namespace octet {
namespace {

constexpr int kWarmUp = 3;

// Finite values of a type, of both signs and about 2^-6 in magnitude.
std::vector<std::byte> random_block(Dtype dtype) {
  constexpr size_t kElems = size_t{1} << 22;
  const RandomStream random{.name = name_hash("bench decode")};
  const auto width = static_cast<size_t>(dtype_bytes(dtype));
  std::vector<std::byte> bytes(kElems * width);
  for (size_t i = 0; i < kElems; ++i) {
    const float value = (random.uniform(i) - 0.5f) / 32;
    const auto half =
        static_cast<uint16_t>(dtype == Dtype::fp16 ? 0x2000 + i % 512 : bf16_from_f32(value));
    const auto code = static_cast<uint8_t>(random.bits(i) & 0xbf);  // below half of the largest
    const void* from = width == 4   ? static_cast<const void*>(&value)
                       : width == 2 ? static_cast<const void*>(&half)
                                    : static_cast<const void*>(&code);
    std::memcpy(bytes.data() + i * width, from, width);
  }
  return bytes;
}

// One function of a model with random weights, its last rows the last of the texts.
class FunctionRunner {
 public:
  FunctionRunner(const BenchMachine& machine, const DecodeCase& what, const FunctionKey& key)
      : device_(*machine.backend.device),
        spec_(resolved(what.spec)),
        key_(key),
        program_(options(what), *machine.backend.catalogue, {key_}) {
    bind_available_rows(*machine.backend.catalogue, [&] {
      const Plan& plan = program_.plan(key_.name, key_.size);
      int64_t bytes[kArenaCount];
      program_.arena_bytes(bytes);
      arenas_ = std::make_unique<Arenas>(*machine.backend.device, bytes);
      bound_ = std::make_unique<BoundPlan>(plan, *machine.backend.catalogue, *arenas_);
    });
    fill_slots();
    for (int64_t row = 0; row < key.size.batch * key.size.seq; ++row) {
      const int64_t t = row % key.size.seq;
      positions_.push_back(static_cast<int32_t>(what.context - key.size.seq + t));
      tokens_.push_back(static_cast<int32_t>(row * 7919 % spec_.vocab));
    }
    if (output() != nullptr) read_.resize(static_cast<size_t>(output_type().n_bytes()));
  }

  double step_ms(Profile* profile = nullptr) {
    if (profile != nullptr) profile->begin_step(1);
    const auto start = std::chrono::steady_clock::now();
    const auto n_bytes = static_cast<int64_t>(tokens_.size() * sizeof(int32_t));
    std::vector<BoundPlan::HostInput> inputs = {{"positions", positions_.data(), n_bytes}};
    for (const char* name : {"tokens", "labels"}) {
      if (bound_->has_input(name)) inputs.push_back({name, tokens_.data(), n_bytes});
    }
    bound_->write_inputs(inputs);
    profile != nullptr ? bound_->run(profile->observer()) : bound_->run();
    if (output() != nullptr) {
      bound_->read_output(output(), read_.data(), std::ssize(read_));
    } else {
      device_.synchronize();
    }
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
  }

  // Bytes of weights that a step reads whole, and of the cache's rows.
  int64_t bytes_read() const {
    int64_t bytes = 0;
    for (const auto& [name, slot] : program_.layout().slots) {
      if (slot.key.use == StateUse::kv_cache || is_weight(slot)) bytes += slot.type.n_bytes();
    }
    const TensorType& table = program_.layout().slots.at(embedding()).type;
    return spec_.tied ? bytes : bytes - table.n_bytes();  // of which it reads a row a text
  }

  const ModelSpec& spec() const { return spec_; }

 private:
  static ProgramOptions options(const DecodeCase& what) {
    ProgramOptions result;
    result.forward = forward_builder(resolved(what.spec));
    result.recipe = what.recipe;
    result.recipe_options.frozen = what.weights;
    result.freezes_parameters = what.weights != FrozenFormat::as_computed;
    result.train = {.batch = what.texts, .seq = what.context};
    result.inference_only = true;
    return result;
  }

  static bool is_weight(const Layout::Slot& slot) {
    return slot.kind == InputKind::parameter || slot.kind == InputKind::constant;
  }
  std::string embedding() const {
    for (const ParameterSpec& one : model_parameters(spec_)) {
      if (one.shape.size() == 2 && one.shape[0] == spec_.vocab) return one.name;
    }
    CHECK(false);
  }
  // Output that the host reads; nullptr: none.
  const char* output() const {
    for (const char* name : {"token", "logits", "loss"}) {
      if (bound_->has_output(name)) return name;
    }
    return nullptr;
  }
  const TensorType& output_type() const {
    const Graph& graph = bound_->plan().graph;
    return graph.type(graph.find_output(output())->value);
  }

  void fill_slots() {
    std::map<Dtype, std::vector<std::byte>> blocks;
    for (const auto& [name, slot] : program_.layout().slots) {
      auto& block = blocks[slot.type.dtype];
      if (block.empty()) block = random_block(slot.type.dtype);
      std::byte* const to = arenas_->arena(slot.arena) + slot.offset;
      const int64_t n = slot.type.n_bytes();
      for (int64_t at = 0; at < n; at += std::ssize(block))
        arenas_->device().copy_in(to + at, block.data(), std::min(n - at, std::ssize(block)));
    }
  }

  Device& device_;
  ModelSpec spec_;
  FunctionKey key_;
  Program program_;
  std::unique_ptr<Arenas> arenas_;
  std::unique_ptr<BoundPlan> bound_;
  std::vector<int32_t> tokens_, positions_;
  std::vector<std::byte> read_;
};

// Median milliseconds.
double time_of(FunctionRunner& runner, int rounds) {
  for (int i = 0; i < kWarmUp; ++i) runner.step_ms();
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) times.push_back(runner.step_ms());
  return median(times);
}

std::string name_of(const char* what, const DecodeCase& of) {
  const std::string name = fmt::format("{} {}", what, of.recipe);
  return of.weights == FrozenFormat::as_computed
             ? name
             : fmt::format("{}, weights {}", name, enum_name(of.weights));
}
std::string shape_of(const ModelSpec& spec, const DecodeCase& what) {
  return fmt::format("{} {:.2f} M, {} x {} tokens", model_def(spec.kind).name,
                     static_cast<double>(parameter_count(spec)) / 1e6, what.texts, what.context);
}

}  // namespace

BenchRow bench_prefill(const BenchMachine& machine, const DecodeCase& what) {
  const std::string name = name_of("prefill", what);
  machine.log.info("bench: {}", name);
  const auto ms_of = [&](const FunctionKey& key) {
    FunctionRunner runner(machine, what, key);
    return time_of(runner, what.rounds);
  };
  const BatchSize size{.batch = what.texts, .seq = what.context};
  BatchSize cached = size;
  cached.cache = what.context;
  const double forward_ms = ms_of({function::evaluate, size});
  const double ms = ms_of({function::fill, cached});
  BenchRow row = machine.row(name, shape_of(resolved(what.spec), what));
  row.value = static_cast<double>(what.texts * what.context) / (ms / 1000);
  row.unit = "tokens/s";
  row.baseline = "forward and loss";
  row.ratio = forward_ms / ms;
  return row;
}

BenchRows bench_decode(const BenchMachine& machine, const DecodeCase& what,
                       const Ceilings& ceilings, KernelRows kernel_rows) {
  const std::string name = name_of("decode", what);
  machine.log.info("bench: {}", name);
  FunctionRunner runner(machine, what,
                        {machine.is_gpu() ? function::pick : function::decode,
                         {.batch = what.texts, .seq = 1, .cache = what.context}});
  const double ms = time_of(runner, what.rounds);
  const std::string shape = shape_of(runner.spec(), what);
  BenchRow speed = machine.row(name, shape);
  speed.value = static_cast<double>(what.texts) / (ms / 1000);
  speed.unit = "tokens/s";
  BenchRow time = machine.row(name + " time", shape);
  set_time(time, ms, static_cast<double>(runner.bytes_read()) / ceilings.bytes_per_s * 1000);
  BenchRows rows = {speed, time};
  if (kernel_rows == KernelRows::no) return rows;
  Profile profile(machine.backend.device.get());
  runner.step_ms(&profile);
  for (const ProfileRow& kernel : rows_by_kernel(profile, ceilings)) {
    rows.push_back(machine.row(fmt::format("{}: {}", name, kernel.kernel),
                               fmt::format("{} launches", kernel.count)));
    set_time(rows.back(), kernel.ms, kernel.floor_ms);
  }
  return rows;
}

}  // namespace octet
