#include "cli/backend.h"

#include <algorithm>
#include <cstdlib>

#include "base/cores.h"
#include "base/error.h"
#include "base/named_enum.h"
#include "cli/enum_option.h"
#include "cli/launched_ranks.h"
#include "config/load.h"
#include "library/open_backend.h"
#include "runtime/executor.h"

namespace octet {
namespace {

bool shares_gpu() {
  const char* const said = ::getenv("OCTET_SHARE_GPU");
  const std::string value = said == nullptr ? "" : said;
  if (value == "1") return true;
  if (value.empty() || value == "0") return false;
  throw Error(ErrorCode::invalid_argument, "OCTET_SHARE_GPU: expected 1 or 0, got '{}'", value);
}

BackendRequest request_of(const GlobalOptions& options, const KernelNeeds& needs, Group* group) {
  const int of_rank = group == nullptr ? 0 : group->rank();
  return {.device = options.device,
          .isa = options.isa,
          .threads = options.threads,
          .nccl = nccl_file(),
          .device_index = shares_gpu() ? 0 : needs.device_index.value_or(of_rank),
          .deterministic = needs.deterministic,
          .rows = needs.same_rows ? cpu::RowSums::same : cpu::RowSums::library,
          .arithmetic = needs.arithmetic == Arithmetic::own ? options.arithmetic : needs.arithmetic,
          .group = group,
          .ranks = group == nullptr ? needs.ranks : group->size()};
}

// For commands that read no configuration.
ParallelConfig set_parallel(const GlobalOptions& options) {
  return parse_config("recipe: bf16\n", "--set", options.sets).config.parallel;
}

}  // namespace

std::string isa_of(const GlobalOptions& options) {
  return isa_of(BackendRequest{.device = options.device, .isa = options.isa});
}

std::string kernels_name(const GlobalOptions& options) {
  return options.device == "cuda" ? options.device : isa_of(options);
}

std::string nccl_file() {
  const char* const file = ::getenv("OCTET_NCCL");
  return file == nullptr ? "" : file;
}

Backend open_backend(const GlobalOptions& options, const KernelNeeds& needs, Group* group) {
  return open_backend(request_of(options, needs, group), make_log(options));
}

void join_devices(Backend& backend, Group& group, const GlobalOptions& options,
                  const std::optional<ParallelConfig>& parallel) {
  if (options.device == "cpu") return;
  const ParallelConfig wanted = parallel ? *parallel : set_parallel(options);
  const RankHosts hosts = find_hosts(group);
  // NCCL sets up multicast over NVLink with a communicator, if this does not say otherwise.
  ::setenv("NCCL_NVLS_ENABLE", "0", 1);
  RankExchange ranks = exchange_of(group);
  ranks.n_hosts = hosts.n_hosts;
  ranks.ranks_a_host = hosts.ranks_a_host;
  ranks.is_flat = wanted.strict;
  ranks.transport = wanted.transport;
  backend.device->join(ranks);
}

void add_arithmetic_option(CLI::App& command, GlobalOptions& options) {
  add_enum_option(
      command, "--arithmetic", options.arithmetic,
      "on a CPU, sums of the products of 8-bit and 16-bit factors: own, in f32; hopper, "
      "with the bits of Hopper's tensor cores, slower. On a GPU hopper asks for such a "
      "card");
}

TextMachine text_machine(const Backend& backend, const Log& log) {
  return {posix_files(), *backend.device, *backend.catalogue, log};
}

GlobalOptions options_of_rank(const GlobalOptions& options, int64_t n_ranks) {
  GlobalOptions result = options;
  const int n_threads = options.threads > 0 ? options.threads : usable_cores();
  result.threads = std::max(1, n_threads / static_cast<int>(n_ranks));
  return result;
}

Backend open_plan_backend(const GlobalOptions& options, const KernelNeeds& needs) {
  return open_plan_backend(request_of(options, needs, nullptr), make_log(options));
}

}  // namespace octet
