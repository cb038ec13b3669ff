#include "backends/cuda/target/catalogue.h"

#include <fmt/ranges.h>

#include "backends/cuda/params/init.h"
#include "backends/cuda/target/bind/binding.h"
#include "base/error.h"
#include "ir/op_def.h"
#include "ir/ops/weight_codes.h"
#include "plan/joined_launches.h"
#include "plan/kernel_name.h"
#include "plan/row_unavailable.h"

namespace octet::cuda {
namespace {

static_assert(kMaxJoined == OCTET_CUDA_MAX_JOINED && kMaxChained == OCTET_CUDA_MAX_CHAINED);

// A kernel of the module, given back with the last copy of the launch function.
class Handle {
 public:
  // row: nullptr where there is no other to take.
  Handle(std::shared_ptr<Module> module, const OctetCudaKernel& kernel, const KernelRow* row)
      : module_(std::move(module)) {
    const int status = module_->api().prepare(&kernel, &handle_);
    if (status == OCTET_CUDA_UNAVAILABLE && row != nullptr)
      throw RowUnavailable(row_key(*row), module_->api().last_error());
    module_->check(status);
  }
  ~Handle() { module_->api().forget(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  void launch(const LaunchArgs& args) const {
    const OctetCudaLaunch call{.operands = reinterpret_cast<void* const*>(args.operands.data()),
                               .results = reinterpret_cast<void* const*>(args.results.data()),
                               .scratch = args.scratch,
                               .stream = static_cast<int32_t>(args.stream),
                               .begins_run = args.begins_collective_group,
                               .ends_run = args.ends_collective_group,
                               .is_finish = args.is_second_phase,
                               .joins_next = args.joins_next};
    module_->check(module_->api().launch(handle_, &call));
  }

 private:
  std::shared_ptr<Module> module_;
  void* handle_ = nullptr;
};

// The library's 64 bytes as hexadecimal digits, 16 a word.
std::string text_of(const uint64_t (&code)[8]) {
  std::string text;
  for (const uint64_t word : code) text += fmt::format("{:016x}", word);
  return text;
}
void read_code(const std::string& text, uint64_t (&code)[8]) {
  const bool is_code =
      text.size() == 128 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!is_code)
    throw Error(ErrorCode::bad_data,
                "[cuda] expected an algorithm of 128 hexadecimal digits, got '{}'", text);
  for (size_t i = 0; i < 8; ++i) code[i] = std::stoull(text.substr(16 * i, 16), nullptr, 16);
}

std::string_view architecture_name(int capability) {
  const Architecture* device = find_architecture(capability);
  CHECK(device != nullptr);
  return device->name;
}

}  // namespace

CudaCatalogue::CudaCatalogue(CatalogueOptions options, std::shared_ptr<Module> module)
    : Catalogue({.backend = "cuda",
                 .architecture = architecture_name(options.capability),
                 .capability = options.capability,
                 .blas = std::move(options.blas),
                 .dnn = std::move(options.dnn),
                 .assumed = module == nullptr,
                 .deterministic = options.deterministic,
                 .rows_to_fill = 8192,
                 .rows = all_rows()}),
      machine_(std::move(options.machine)),
      module_(std::move(module)) {}

std::optional<KernelChoice> CudaCatalogue::choose(const Graph& graph, const Node& node) const {
  const NodeView view{graph, node, target_};
  const auto choice = choose_row(view);
  if (!choice) return std::nullopt;
  const KernelRow& row = *choice->row;
  return KernelChoice{.name = kernel_name(view, row),
                      .scratch_bytes = choice->scratch_bytes,
                      .reference = false,
                      .has_two_phases = row.facts.has_two_phases,
                      .may_join = row.may_join != nullptr && row.may_join(view),
                      .row = &row,
                      .runs_on = nullptr,
                      .launches = binding_of(row).spec(view).launches};
}

LaunchFn CudaCatalogue::prepare(const Graph& graph, const Node& node, const KernelChoice& choice) {
  CHECK(choice.row != nullptr);
  if (module_ == nullptr)
    throw Error(ErrorCode::device, "[cuda] expected the CUDA module, got a plan without device");
  const KernelSpec spec = binding_of(*choice.row).spec({graph, node, target_});
  const OctetCudaKernel kernel{.kernel = static_cast<int32_t>(spec.kernel),
                               .reserved = 0,
                               .params = spec.params.data(),
                               .params_bytes = static_cast<int64_t>(spec.params.size()),
                               .scratch_bytes = choice.scratch_bytes};
  const auto handle = std::make_shared<Handle>(module_, kernel, choice.row);
  return [handle](const LaunchArgs& args) { handle->launch(args); };
}

bool CudaCatalogue::init_weight(const WeightInit& what) {
  if (module_ == nullptr) return false;
  const InitParams params{.weight_first = what.weight_run.first,
                          .weight_count = what.weight_run.count,
                          .master_first = what.master_run.first,
                          .master_count = what.master_run.count,
                          .random = what.random,
                          .std = what.std,
                          .constant = what.constant,
                          .weight = what.weight,
                          .master = what.master,
                          .has_master = what.master_at != nullptr};
  const OctetCudaKernel kernel{.kernel = static_cast<int32_t>(KernelId::init_weights),
                               .reserved = 0,
                               .params = &params,
                               .params_bytes = sizeof(params),
                               .scratch_bytes = 0};
  std::byte* const results[] = {what.weight_at, what.master_at};
  Handle(module_, kernel, nullptr).launch({.operands = {}, .results = results, .scratch = nullptr});
  return true;
}

bool CudaCatalogue::takes_form(const Graph& graph, const Node& form) const {
  // Residual sums of more rows stay apart, but where nothing of them is quantized: they are
  // quantized from f32.
  const ValueId c = form.in(op_def(form.op).addend);
  const bool is_apart = c != kNoValue && !is_bias_row(graph.type(c)) &&
                        graph.type(form.out(0)).shape[0] > kFewRows &&
                        !reads_weight_codes(graph, form);
  return !is_apart && choose_row({graph, form, target_}).has_value();
}

AutotuneCache CudaCatalogue::autotune_cache() const {
  AutotuneCache result{.machine = machine_};
  if (module_ == nullptr) return result;
  int32_t n = 0;
  module_->check(module_->api().algorithm_count(&n));
  for (int32_t i = 0; i < n; ++i) {
    OctetCudaAlgorithm algorithm{};
    module_->check(module_->api().algorithm_get(i, &algorithm));
    result.choices.push_back({.problem = algorithm.problem,
                              .choice = algorithm.choice,
                              .code = text_of(algorithm.code),
                              .workspace_bytes = algorithm.workspace_bytes,
                              .ms = algorithm.ms});
  }
  return result;
}

void CudaCatalogue::use_autotune_cache(std::span<const AutotunedChoice> choices) {
  for (const AutotunedChoice& choice : choices) {
    OctetCudaAlgorithm algorithm{};
    read_code(choice.code, algorithm.code);
    if (module_ == nullptr || choice.problem.size() >= sizeof(algorithm.problem)) continue;
    choice.problem.copy(algorithm.problem, choice.problem.size());
    algorithm.ms = choice.ms;
    module_->check(module_->api().algorithm_recall(&algorithm));
  }
}

}  // namespace octet::cuda
