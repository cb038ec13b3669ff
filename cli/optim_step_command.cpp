// Tensors of the file it writes, each [n]: weights (f32: the master, or the weight where there is
// none), m, v (f32, decoded); weight_hi (BF16) and weight_lo (I16) of the BF16 masters; m_codes,
// v_codes as they are stored where that is not f32, and m_meta, v_meta [groups] of 8-bit codes.
#include "cli/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/parse_text.h"
#include "cli/backend.h"
#include "compile/expand_updates.h"
#include "io/safetensors.h"
#include "math/adamw.h"
#include "math/moment.h"
#include "optim/beta_error.h"
#include "optim/optimizer.h"
#include "optim/standing_moment.h"
#include "optim/state_format.h"
#include "runtime/bound_graph.h"

namespace octet {
namespace {

constexpr const char* kTensor = "weights";

struct OptimStepFlags {
  std::string state_m = "e4m3+x", state_v = "e4m3+x", master = "bf16_remainder", math = "fast";
  std::string grads, weights, out;
  int64_t steps = 1, group = 128;
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, clip = 0;
};

OptimPolicy policy_of(const OptimStepFlags& flags, const GlobalOptions& options) {
  OptimPolicy policy;
  policy.beta1 = flags.beta1;
  policy.beta2 = flags.beta2;
  policy.eps = flags.eps;
  policy.weight_decay = flags.weight_decay;
  policy.master = master_from_name(flags.master);
  policy.state_m = state_format_from_name(flags.state_m);
  policy.state_v = state_format_from_name(flags.state_v);
  policy.group = flags.group;
  policy.math = flags.math == "exact" ? PowerMath::exact : PowerMath::fast;
  policy.seed = options.seed.value_or(0);
  return policy;
}

constexpr uint64_t kMaxStreamBytes = uint64_t{16} << 30;

// A file of f32 values that is read in pieces; a pipe is read to its end first.
class FloatFile {
 public:
  FloatFile(const Files& files, const std::string& path)
      : file_(files.open_stream(path, kMaxStreamBytes)) {
    if (file_->size() % sizeof(float) != 0) {
      throw Error(ErrorCode::bad_data, "[optim-step] {}: expected f32 values, got {} bytes", path,
                  file_->size());
    }
  }
  int64_t size() const { return static_cast<int64_t>(file_->size() / sizeof(float)); }
  std::vector<float> read(int64_t first, int64_t n) const {
    std::vector<float> values(static_cast<size_t>(n));
    if (n > 0) {
      file_->read_at(static_cast<uint64_t>(first) * sizeof(float),
                     std::as_writable_bytes(std::span(values)));
    }
    return values;
  }

 private:
  std::unique_ptr<FileReader> file_;
};

Graph update_graph(const OptimPolicy& policy, int64_t n) {
  Graph graph;
  graph.name = "optim-step";
  graph.phase = Phase::typed;
  Builder builder(graph);
  const Dtype weight = policy.master == Master::fp32 ? Dtype::f32 : Dtype::bf16;
  UpdateItem item;
  item.parameter = kTensor;
  item.weight = builder.input(InputKind::parameter, kTensor, {.dtype = weight, .shape = {n}});
  item.gradient = builder.input(InputKind::batch, "gradient", {.dtype = Dtype::f32, .shape = {n}});
  build_update(builder, {item}, policy);
  return expand_updates(graph, policy);
}

// The tensor and its states in memory, a step at a time.
class TensorUpdate {
 public:
  TensorUpdate(const OptimPolicy& policy, int64_t n, Backend& backend)
      : policy_(policy),
        n_(n),
        update_(update_graph(policy, n), *backend.device, *backend.catalogue) {
    for (const GraphInput& input : graph().inputs) {
      const int64_t bytes = graph().type(input.value).n_bytes();
      if (bytes > 0) backend.device->fill_zero(update_.bound.input(input.name), bytes);
    }
  }

  void set_weights(std::span<const float> values) {
    if (policy_.master == Master::fp32) return write(kTensor, values);
    std::vector<uint16_t> hi;
    std::vector<int16_t> lo;
    for (const float value : values) {
      const MasterBits parts = split_master(value);
      const bool sole = policy_.master == Master::bf16_sr;
      hi.push_back(sole ? bf16_from_f32(value) : parts.hi);
      lo.push_back(parts.lo);
    }
    write(kTensor, std::span<const uint16_t>(hi));
    if (has(name(StateUse::master_remainder)))
      write(name(StateUse::master_remainder), std::span<const int16_t>(lo));
  }

  // Adam's t counts applied updates; `attempt` counts all. Returns whether the step was applied.
  bool step(std::span<const float> gradient, const OptimStepFlags& flags, uint32_t attempt) {
    const double t = ++applied_;
    write("gradient", gradient);
    write_scalar("lr", static_cast<float>(flags.lr));
    write_scalar("adam_c1", static_cast<float>(1 - std::pow(flags.beta1, t)));
    write_scalar("adam_c2", static_cast<float>(1 - std::pow(flags.beta2, t)));
    write_scalar("clip", static_cast<float>(flags.clip));
    if (update_.bound.has_input("attempt")) write_scalar("attempt", attempt);
    update_.bound.run();
    uint8_t found = 0;
    update_.bound.read_output("found_nonfinite", &found, sizeof(found));
    if (found != 0) --applied_;
    return found == 0;
  }

  // An input's bytes now.
  template <typename T>
  std::vector<T> words(const std::string& input) const {
    const int64_t n_bytes = type(input).n_bytes();
    std::vector<T> result(static_cast<size_t>(n_bytes) / sizeof(T));
    if (!result.empty())
      update_.arenas.device().copy_out(result.data(), update_.bound.input(input), n_bytes);
    return result;
  }
  bool has(const std::string& input) const { return update_.bound.has_input(input); }
  TensorType type(const std::string& input) const {
    return graph().type(graph().find_input(input)->value);
  }

  std::vector<float> weights() const {
    if (policy_.master == Master::fp32) return words<float>(kTensor);
    const auto hi = words<uint16_t>(kTensor);
    const std::string remainder = name(StateUse::master_remainder);
    const auto lo = has(remainder) ? words<int16_t>(remainder) : std::vector<int16_t>(hi.size());
    std::vector<float> masters;
    for (size_t i = 0; i < hi.size(); ++i) masters.push_back(join_master({hi[i], lo[i]}));
    return masters;
  }

  std::vector<float> moment(Moment which) const {
    const bool first = which == Moment::first;
    const StateFormat& format = first ? policy_.state_m : policy_.state_v;
    const std::string stored = name(first ? StateUse::moment1 : StateUse::moment2);
    const Dtype dtype = type(stored).dtype;
    if (dtype == Dtype::f32) return words<float>(stored);
    std::vector<float> x(static_cast<size_t>(n_));
    if (dtype == Dtype::bf16) {
      const auto codes = words<uint16_t>(stored);
      for (size_t i = 0; i < x.size(); ++i) x[i] = f32_from_bf16(codes[i]);
      return x;
    }
    const MomentCoding coding{
        .dtype = dtype,
        .moment = which,
        .expand = format.expand,
        .math = policy_.math == PowerMath::exact ? MathMode::exact : MathMode::fast};
    const auto codes = words<uint8_t>(stored);
    const auto meta =
        words<uint32_t>(name(first ? StateUse::moment1_meta : StateUse::moment2_meta));
    decode_groups(coding, policy_.group, meta, codes, x);
    return x;
  }

  static std::string name(StateUse use) { return state_name(use, kTensor); }

 private:
  const Graph& graph() const { return update_.plan.graph; }
  template <typename T>
  void write(const std::string& input, std::span<const T> values) {
    update_.bound.write_input(input, values.data(), static_cast<int64_t>(values.size_bytes()));
  }
  template <typename T>
  void write_scalar(const char* input, T value) {
    update_.bound.write_input(input, &value, sizeof(value));
  }

  OptimPolicy policy_;
  int64_t n_;
  double applied_ = 0;
  mutable BoundGraph update_;
};

// Tensors and the bytes that they are written from.
class ResultFile {
 public:
  template <typename T>
  void add(const std::string& name, Dtype dtype, const std::vector<T>& words) {
    const auto bytes = std::as_bytes(std::span(words));
    data_.push_back(std::make_unique<std::vector<std::byte>>(bytes.begin(), bytes.end()));
    const int64_t n = static_cast<int64_t>(words.size() * sizeof(T)) / dtype_bytes(dtype);
    sources_.push_back(span_source(tensor_decl(name, dtype, {n}), *data_.back()));
  }
  void write(const std::string& path, std::map<std::string, std::string> metadata) const {
    write_output(posix_files(), path,
                 [&](FileWriter& out) { write_safetensors(out, sources_, std::move(metadata)); });
  }

 private:
  std::vector<std::unique_ptr<std::vector<std::byte>>> data_;
  std::vector<TensorSource> sources_;
};

void write_result(const OptimStepFlags& flags, const TensorUpdate& update, int64_t skipped) {
  ResultFile file;
  file.add("weights", Dtype::f32, update.weights());
  if (update.type(kTensor).dtype == Dtype::bf16) {
    file.add("weight_hi", Dtype::bf16, update.words<std::byte>(kTensor));
  }
  const std::string remainder = TensorUpdate::name(StateUse::master_remainder);
  if (update.has(remainder)) file.add("weight_lo", Dtype::i16, update.words<std::byte>(remainder));
  for (const Moment moment : {Moment::first, Moment::second}) {
    const std::string short_name = moment == Moment::first ? "m" : "v";
    const bool first = moment == Moment::first;
    const std::string stored = TensorUpdate::name(first ? StateUse::moment1 : StateUse::moment2);
    const std::string meta =
        TensorUpdate::name(first ? StateUse::moment1_meta : StateUse::moment2_meta);
    file.add(short_name, Dtype::f32, update.moment(moment));
    const Dtype dtype = update.type(stored).dtype;
    if (dtype != Dtype::f32)
      file.add(short_name + "_codes", dtype, update.words<std::byte>(stored));
    if (update.has(meta)) file.add(short_name + "_meta", Dtype::u32, update.words<std::byte>(meta));
  }
  file.write(flags.out, {{"state_m", flags.state_m},
                         {"state_v", flags.state_v},
                         {"master", flags.master},
                         {"math", flags.math},
                         {"group", fmt::to_string(flags.group)},
                         {"steps", fmt::to_string(flags.steps)},
                         {"skipped", fmt::to_string(skipped)}});
}

void check_flags(const OptimStepFlags& flags, int64_t n_weights, int64_t n_gradients) {
  if (n_weights == 0) {
    throw Error(ErrorCode::bad_data, "[optim-step] {}: expected at least one f32 value, got none",
                flags.weights);
  }
  if (n_gradients % n_weights != 0 || n_gradients / n_weights != flags.steps) {
    throw Error(ErrorCode::bad_data,
                "[optim-step] {}: expected {} x {} values (--steps times the weights), got {}",
                flags.grads, flags.steps, n_weights, n_gradients);
  }
}

// Gradients whose squares the second moment does not hold.
int64_t count_overflows(std::span<const float> gradient, const OptimStepFlags& flags) {
  const float share = 1.0f - static_cast<float>(flags.beta2);
  return std::ranges::count_if(gradient, [&](float g) { return std::isinf(share * g * g); });
}

void check_betas(const OptimStepFlags& flags, const Log& log) {
  for (const auto& [name, beta] : {std::pair("--beta1", flags.beta1), {"--beta2", flags.beta2}}) {
    if (beta >= kBetaLimit) {
      throw Error(ErrorCode::invalid_argument, "{}: expected a number below 1 in f32, got {}", name,
                  beta);
    }
    if (beta_error(beta) > kMaxBetaError) log.warning("[{}] {}", name, beta_warning(beta));
  }
  if (const std::string standing = standing_warning(flags.state_v, flags.beta2); !standing.empty())
    log.warning("[--state-v] {}", standing);
}

void run_optim_step(const OptimStepFlags& flags, const GlobalOptions& options) {
  const Log log = make_log(options);
  check_betas(flags, log);
  for (const auto& [flag, state] :
       {std::pair("--state-m", flags.state_m), {"--state-v", flags.state_v}}) {
    if (!expands_as_named(state))
      log.warning("{} {}: +x has no effect without a format in eight bits", flag, state);
  }
  const OptimPolicy policy = policy_of(flags, options);
  const FloatFile weights(posix_files(), flags.weights);
  const FloatFile gradients(posix_files(), flags.grads);
  const int64_t n = weights.size();
  check_flags(flags, n, gradients.size());
  Backend backend = open_backend(options);
  TensorUpdate update(policy, n, backend);
  update.set_weights(weights.read(0, n));
  int64_t skipped = 0, n_overflowed = 0;
  for (int64_t step = 0; step < flags.steps; ++step) {
    const auto attempt = static_cast<uint32_t>(step + 1);
    const std::vector<float> gradient = gradients.read(step * n, n);
    const bool is_applied = update.step(gradient, flags, attempt);
    if (!is_applied) ++skipped;
    if (is_applied && flags.clip == 0) n_overflowed += count_overflows(gradient, flags);
  }
  if (skipped > 0) {
    make_log(options).warning("{} of {} steps were skipped: a gradient held NaN or Inf", skipped,
                              flags.steps);
  }
  if (n_overflowed > 0) {
    make_log(options).warning(
        "{} element(s) of v overflowed: stored as the largest finite number until they decay",
        n_overflowed);
  }
  write_result(flags, update, skipped);
}

}  // namespace

void add_optim_step_command(CLI::App& app, GlobalOptions& options) {
  auto* command =
      app.add_subcommand("optim-step", "AdamW updates of one tensor from raw f32 files");
  auto flags = std::make_shared<OptimStepFlags>();
  const auto option = [&](const char* name, auto& target, const char* help) {
    return command->add_option(name, target, help)->capture_default_str();
  };
  option("--state-m", flags->state_m, "format of the first moment");
  option("--state-v", flags->state_v, "format of the second moment");
  option("--master", flags->master, "fp32, bf16_remainder or bf16_sr");
  constexpr auto kMax = std::numeric_limits<int32_t>::max();
  option("--steps", flags->steps, "updates N")->check(CLI::Range(int64_t{1}, int64_t{kMax}));
  option("--grads", flags->grads, "raw f32 gradients, N x n")->required();
  option("--weights", flags->weights, "raw f32 weights, n")->required();
  option("--out", flags->out, "safetensors file to write")->required();
  option("--lr", flags->lr, "learning rate")->check(as_key("optim.lr", Zero::is_allowed));
  const auto is_decay = [](const std::string& text) -> std::string {
    const auto value = parse_number<double>(text);
    if (value && *value >= 0 && *value < 1) return "";
    return fmt::format("expected a number from 0 to below 1, got {}", text);
  };
  option("--beta1", flags->beta1, "decay of the first moment")->check(is_decay);
  option("--beta2", flags->beta2, "decay of the second moment")->check(is_decay);
  option("--eps", flags->eps, "epsilon")->check(as_key("optim.eps"));
  option("--weight-decay", flags->weight_decay, "decoupled weight decay")
      ->check(as_key("optim.weight_decay"));
  option("--group", flags->group, "elements of a group of 8-bit codes")
      ->check(CLI::Range(int64_t{1}, int64_t{kMax}));
  option("--math", flags->math, "powers of the range expansion")->check(one_of({"fast", "exact"}));
  option("--clip", flags->clip, "largest norm of a gradient; 0: none")->check(as_key("optim.clip"));
  command->callback([flags, &options] { run_optim_step(*flags, options); });
}

}  // namespace octet
