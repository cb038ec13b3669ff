#include "backends/cpu/backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <string>

#include "backends/cpu/bind/binding.h"
#include "base/error.h"
#include "base/host_memory.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "ir/op_def.h"
#include "ir/print.h"
#include "plan/catalogue.h"
#include "plan/kernel_name.h"

namespace octet::cpu {
namespace {

// Left to the process beside its plans: code, libraries, threads' stacks, a batch on the host.
constexpr int64_t kProcessBytes = 64 << 20;

// Pages that nobody has touched take no memory; they read as zeros.
class MappedMemory : public DeviceMemory {
 public:
  explicit MappedMemory(int64_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* at = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
      throw Error(ErrorCode::device, "[cpu] cannot map {} bytes: {}", bytes, std::strerror(errno));
    }
    data_ = static_cast<std::byte*>(at);
    madvise(data_, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  }
  ~MappedMemory() override {
    if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
  }
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  std::byte* data() override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_;
};

// The CPU as a device: memory is mapped, copies are memcpy, nothing is asynchronous.
class CpuDevice : public Device {
 public:
  CpuDevice(Isa isa, int n_threads) : isa_(isa), n_threads_(n_threads) {}
  DeviceInfo info() const override;
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override;
  void copy_in(std::byte* to_device, const void* from_host, int64_t bytes) override;
  void copy_out(void* to_host, const std::byte* from_device, int64_t bytes) override;
  void copy_within(std::byte* to, const std::byte* from, int64_t bytes) override;
  void fill_zero(std::byte* on_device, int64_t bytes) override;
  void fill_nan_where(const std::byte* flag, std::span<const DeviceRange> ranges) override;
  void synchronize() override {}
  void record_timing_event(int index, Stream) override { timing_events_.set(index); }
  double ms_between(int from, int to) override { return timing_events_.ms_between(from, to); }

 private:
  Isa isa_;
  int n_threads_;
  HostTimingEvents timing_events_;
};

DeviceInfo CpuDevice::info() const {
  const int64_t available = read_host_memory().available_bytes;
  return {.name = fmt::format("cpu ({})", isa_name(isa_)),
          .memory_bytes = std::max<int64_t>(available - kProcessBytes, 0),
          .n_threads = n_threads_};
}

std::unique_ptr<DeviceMemory> CpuDevice::allocate(int64_t bytes) {
  if (bytes > info().memory_bytes) {
    throw Error(ErrorCode::device, "[cpu] expected at most {} bytes (available), got {}",
                info().memory_bytes, bytes);
  }
  return std::make_unique<MappedMemory>(bytes);
}

void CpuDevice::copy_in(std::byte* to_device, const void* from_host, int64_t bytes) {
  if (bytes > 0) std::memcpy(to_device, from_host, static_cast<size_t>(bytes));
}

void CpuDevice::copy_out(void* to_host, const std::byte* from_device, int64_t bytes) {
  if (bytes > 0) std::memcpy(to_host, from_device, static_cast<size_t>(bytes));
}

void CpuDevice::copy_within(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0) std::memmove(to, from, static_cast<size_t>(bytes));
}
void CpuDevice::fill_zero(std::byte* on_device, int64_t bytes) {
  if (bytes > 0) std::memset(on_device, 0, static_cast<size_t>(bytes));
}
void CpuDevice::fill_nan_where(const std::byte* flag, std::span<const DeviceRange> ranges) {
  if (*flag == std::byte{0}) return;
  constexpr uint16_t kNan = 0x7FC0;  // of bf16 and fp16, and two of them of f32
  for (const DeviceRange& range : ranges) {
    for (int64_t i = 0; i < range.bytes; i += 2) std::memcpy(range.data + i, &kNan, sizeof(kNan));
  }
}

// Equal for two nodes exactly when they want the same kernel.
std::string choice_key(const NodeView& view) {
  Graph types;
  Node node = view.node;
  node.tag = {};
  for (auto* ids : {&node.operands, &node.results}) {
    for (ValueId& id : *ids) {
      if (id == kNoValue) continue;
      types.values.push_back({.type = view.graph.type(id)});
      id = static_cast<ValueId>(types.values.size()) - 1;
    }
  }
  std::string key = print(types, node);
  for (const Value& value : types.values) key += to_string(value.type);
  return key;
}

// The kernels of the CPU, by its rows (bind/binding.h).
class CpuCatalogue : public Catalogue {
 public:
  CpuCatalogue(Isa isa, RowSums rows, ThreadPool& pool, Group* group = nullptr);
  std::optional<KernelChoice> choose(const Graph& graph, const Node& node) const override;
  LaunchFn prepare(const Graph& graph, const Node& node, const KernelChoice& choice) override;
  bool takes_form(const Graph& graph, const Node& form) const override;
  void strike(std::string row) override;
  void set_arithmetic(Arithmetic arithmetic) override {
    target_.arithmetic = arithmetic;
    choices_.clear();
  }

 private:
  RowSums rows_;
  Context context_;
  // Choices by the text of op, attributes and types: layers repeat themselves, and asking a library
  // for its scratch is slow.
  mutable std::map<std::string, KernelChoice> choices_;
};

CpuCatalogue::CpuCatalogue(Isa isa, RowSums rows, ThreadPool& pool, Group* group)
    : Catalogue({.backend = "cpu",
                 .architecture = isa_name(isa),
                 .k_major = false,  // a product packs both factors anyway
                 .n_threads = pool.n_threads(),
                 .rows = kernel_rows(isa)}),
      rows_(rows),
      context_{.pool = pool, .group = group} {}

std::optional<KernelChoice> CpuCatalogue::choose(const Graph& graph, const Node& node) const {
  const NodeView view{graph, node, target_};
  const RowSumsScope scope(rows_);
  auto key = choice_key(view);
  if (const auto known = choices_.find(key); known != choices_.end()) return known->second;
  const auto choice = choose_row(view);
  if (!choice) return std::nullopt;
  KernelChoice kernel{.name = kernel_name(view, *choice->row),
                      .scratch_bytes = choice->scratch_bytes,
                      .reference = choice->row->facts.reference,
                      .row = choice->row,
                      .runs_on = choice->runs_on};
  return choices_.emplace(std::move(key), std::move(kernel)).first->second;
}

LaunchFn CpuCatalogue::prepare(const Graph& graph, const Node& node, const KernelChoice& choice) {
  const RowSumsScope scope(rows_);
  CHECK(choice.row != nullptr);
  const NodeView view{graph, node, target_};
  if (choice.runs_on != nullptr) return prepare_widened(view, *choice.runs_on, context_);
  return binding_of(*choice.row).prepare(view, context_);
}

// Products of windows: a card's sums have their own, and the reference has the decomposition.
bool CpuCatalogue::takes_form(const Graph& graph, const Node& form) const {
  if (form.op != OpCode::convolution || target_.arithmetic != Arithmetic::own) return false;
  const RowSumsScope scope(rows_);
  const auto choice = choose_row({graph, form, target_});
  return choice && !choice->row->facts.reference;
}

void CpuCatalogue::strike(std::string row) {
  Catalogue::strike(std::move(row));
  choices_.clear();
}

}  // namespace

Backend make_backend(int n_threads, Isa isa, RowSums rows, Group* group) {
  if (isa != Isa::scalar) limit_isa(isa);
  Backend backend;
  backend.pool = std::make_unique<ThreadPool>(n_threads);
  backend.device = std::make_unique<CpuDevice>(isa, backend.pool->n_threads());
  backend.catalogue = std::make_unique<CpuCatalogue>(isa, rows, *backend.pool, group);
  return backend;
}

}  // namespace octet::cpu
