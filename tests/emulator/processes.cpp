#include "processes.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "backends/cuda/launch/ranks.h"
#include "emulator.h"
#include "faults.h"

namespace emulator {
namespace {

using octet::cuda::RankBoard;

struct Allocation {
  size_t bytes = 0;
  int file = -1;          // where other processes can reach it
  bool is_peers = false;  // another process made it
};

// By their first address.
class Allocations {
 public:
  void add(void* address, const Allocation& one) {
    const std::lock_guard lock(mutex_);
    all_[static_cast<std::byte*>(address)] = one;
  }
  // nullptr: none begins there.
  Allocation* at(void* address) {
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(static_cast<std::byte*>(address));
    return found == all_.end() ? nullptr : &found->second;
  }
  // That which holds the address; its first one is nullptr where none does.
  std::pair<const std::byte*, Allocation> around(const void* inside) {
    const std::lock_guard lock(mutex_);
    auto after = all_.upper_bound(static_cast<std::byte*>(const_cast<void*>(inside)));
    if (after == all_.begin()) return {};
    --after;
    const bool is_in = static_cast<const std::byte*>(inside) < after->first + after->second.bytes;
    return is_in ? std::pair<const std::byte*, Allocation>(*after)
                 : std::pair<const std::byte*, Allocation>();
  }
  void remove(void* address) {
    const std::lock_guard lock(mutex_);
    all_.erase(static_cast<std::byte*>(address));
  }
  // Contents of these allocations of at most so many bytes.
  std::map<std::byte*, std::vector<std::byte>> contents(size_t most) {
    const std::lock_guard lock(mutex_);
    std::map<std::byte*, std::vector<std::byte>> found;
    for (const auto& [at, one] : all_) {
      if (one.bytes <= most && !one.is_peers) found[at].assign(at, at + one.bytes);
    }
    return found;
  }

 private:
  std::mutex mutex_;
  std::map<std::byte*, Allocation> all_;
};

Allocations& allocations() {
  static Allocations the_allocations;
  return the_allocations;
}

int g_device = 0;               // of the process, whose streams are there
thread_local int t_device = 0;  // each thread's current one, as CUDA has it
bool g_has_failed = false;
int64_t g_barriers = 0;  // that this process has passed

// Content of a handle.
struct Handle {
  pid_t process;
  int file;
  size_t bytes;
};
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t));

size_t whole_pages(size_t bytes) {
  return (bytes + 4095) / 4096 * 4096;
}

bool is_peers(const void* at) {
  return allocations().around(at).second.is_peers;
}

// "rank 1 before a run of collectives", of a flag of RankBoard.
std::string flag_text(const uint32_t* flag) {
  static constexpr const char* kWhere[] = {"before", "inside", "inside", "behind"};
  const auto [base, allocation] = allocations().around(flag);
  const auto* board = reinterpret_cast<const RankBoard*>(base);
  for (int barrier = 0; base != nullptr && barrier < octet::cuda::kRankBarriers; ++barrier) {
    for (int rank = 0; rank < octet::cuda::kMaxRanks; ++rank) {
      if (flag == &board->arrived[barrier][rank])
        return "rank " + std::to_string(rank) + " " + kWhere[barrier] + " a run of collectives";
    }
  }
  return "a flag that is no barrier's";
}

std::chrono::milliseconds wait_limit() {
  const char* named = std::getenv("OCTET_EMULATED_WAIT_SECONDS");
  const double seconds = named == nullptr ? 60 : std::atof(named);
  return std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds));
}

void wait_for(const uint32_t* flag, uint32_t value) {
  constexpr int kEagerLooks = 200;
  const auto until = std::chrono::steady_clock::now() + wait_limit();
  for (int looked = 0; __atomic_load_n(flag, __ATOMIC_ACQUIRE) != value; ++looked) {
    if (looked < kEagerLooks) {
      sched_yield();
      continue;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    if (std::chrono::steady_clock::now() < until) continue;
    std::fprintf(stderr, "emulator: device %d waited in vain at its barrier %lld for %s\n",
                 g_device, static_cast<long long>(g_barriers), flag_text(flag).c_str());
    g_has_failed = true;
    return;
  }
}

bool is_wait(const CUstreamBatchMemOpParams& op) {
  return op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32;
}

void run_op(const CUstreamBatchMemOpParams& op, bool skips_waits) {
  if (is_wait(op)) {
    if (!skips_waits)
      wait_for(reinterpret_cast<const uint32_t*>(op.waitValue.address), op.waitValue.value);
  } else if (op.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32) {
    __atomic_store_n(reinterpret_cast<uint32_t*>(op.writeValue.address), op.writeValue.value,
                     __ATOMIC_RELEASE);
  }
}

// Whoever skips the next wait first tells this device that it has come there: the board of `flag`
// then says so, whose other flags were reset. Then it is given the time to go on. Who does not wait
// for it, as one of another host of `n_local` devices, only gives it that time.
void let_pass(int skipping, const uint32_t* flag, int n_local) {
  const auto* board = reinterpret_cast<const RankBoard*>(allocations().around(flag).first);
  const auto has_come = [&] {
    for (const auto& arrived : board->arrived) {
      if (__atomic_load_n(&arrived[skipping % n_local], __ATOMIC_ACQUIRE) != 0) return true;
    }
    return false;
  };
  const auto until = std::chrono::steady_clock::now() + wait_limit();
  const bool is_peer = skipping / n_local == g_device / n_local;
  while (is_peer && !has_come() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  delay_for_fault();
}

// The operations of a barrier: this device has told the others that it is there.
void pass_barrier(const std::vector<CUstreamBatchMemOpParams>& ops) {
  const auto wait = std::ranges::find_if(ops, is_wait);
  if (wait == ops.end()) {
    for (const CUstreamBatchMemOpParams& op : ops) run_op(op, false);
    return;
  }
  const bool skips = skips_wait(g_device, g_barriers);
  for (const CUstreamBatchMemOpParams& op : ops) {
    if (!g_has_failed) run_op(op, skips);
  }
  ++g_barriers;
  delay_for_jitter(g_device);
  const int skipping = device_that_skips(g_device, g_barriers);
  const auto n_local = static_cast<int>(std::ranges::count_if(ops, is_wait)) + 1;
  if (skipping >= 0)
    let_pass(skipping, reinterpret_cast<const uint32_t*>(wait->waitValue.address), n_local);
}

}  // namespace

int current_device() {
  return g_device;
}
int device_of_thread() {
  return t_device;
}
cudaError_t set_device(int device) {
  g_device = t_device = device;
  return cudaSuccess;
}
cudaError_t failure() {
  return g_has_failed ? cudaErrorLaunchTimeout : cudaSuccess;
}

cudaError_t allocate(void** address, size_t bytes) {
  bytes = whole_pages(bytes);
  *address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*address == MAP_FAILED) return cudaErrorMemoryAllocation;
  allocations().add(*address, {.bytes = bytes});
  return cudaSuccess;
}
cudaError_t release(void* address) {
  if (address == nullptr) return cudaSuccess;
  const Allocation* const found = allocations().at(address);
  if (found == nullptr || found->is_peers) return cudaErrorInvalidValue;
  ::munmap(address, found->bytes);
  if (found->file >= 0) ::close(found->file);
  allocations().remove(address);
  return cudaSuccess;
}

// The content goes into a file, which takes the memory's place.
cudaError_t share(cudaIpcMemHandle_t* handle, void* address) {
  Allocation* const found = allocations().at(address);
  if (found == nullptr || found->is_peers) return cudaErrorInvalidValue;
  if (found->file < 0) {
    const int file = ::memfd_create("octet-emulated", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(found->bytes)) != 0)
      return cudaErrorMemoryAllocation;
    for (size_t at = 0; at < found->bytes;) {
      const ssize_t n = ::pwrite(file, static_cast<const std::byte*>(address) + at,
                                 found->bytes - at, static_cast<off_t>(at));
      if (n <= 0) return cudaErrorMemoryAllocation;
      at += static_cast<size_t>(n);
    }
    if (::mmap(address, found->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) !=
        address)
      return cudaErrorMemoryAllocation;
    found->file = file;
  }
  const Handle it{::getpid(), found->file, found->bytes};
  *handle = {};
  std::memcpy(handle, &it, sizeof(it));
  return cudaSuccess;
}

// No process opens a handle of its own, as in CUDA.
cudaError_t open_shared(void** address, const cudaIpcMemHandle_t& handle) {
  Handle it{};
  std::memcpy(&it, &handle, sizeof(it));
  if (it.process == ::getpid()) return cudaErrorDeviceUninitialized;
  if (std::getenv("OCTET_EMULATED_NO_PEERS") != nullptr) return cudaErrorPeerAccessUnsupported;
  const std::string path = "/proc/" + std::to_string(it.process) + "/fd/" + std::to_string(it.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return cudaErrorInvalidResourceHandle;
  *address = ::mmap(nullptr, it.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (*address == MAP_FAILED) return cudaErrorMapBufferObjectFailed;
  allocations().add(*address, {.bytes = it.bytes, .is_peers = true});
  return cudaSuccess;
}

// Only flags are written into the memory of others.
void copy(void* to, const void* from, size_t bytes) {
  if (g_has_failed) return;
  if (bytes == sizeof(uint32_t) && is_peers(to)) {
    delay_for_jitter(g_device);
    uint32_t value = 0;
    std::memcpy(&value, from, sizeof(value));
    __atomic_store_n(static_cast<uint32_t*>(to), value, __ATOMIC_RELEASE);
    return;
  }
  std::memmove(to, from, bytes);
  if (is_peers(from)) damage_result("copies", to, bytes);
}

CUresult batch_mem_op(CUstream, unsigned n, CUstreamBatchMemOpParams* ops, unsigned) {
  enqueue([all = std::vector(ops, ops + n)] { pass_barrier(all); });
  return g_has_failed ? CUDA_ERROR_LAUNCH_TIMEOUT : CUDA_SUCCESS;
}

}  // namespace emulator

// The blocks of a launch count themselves in memory that the last one clears: what lay there is put
// back once all blocks run again.
extern "C" __attribute__((visibility("default"))) int64_t octet_emulated_omit(int what) {
  static std::map<std::byte*, std::vector<std::byte>> kept;
  constexpr size_t kMaxCounterBytes = size_t{64} << 10;
  const auto omitted = static_cast<emulator::Omitted>(what);
  if (omitted == emulator::Omitted::none) {
    for (const auto& [at, bytes] : kept) std::memcpy(at, bytes.data(), bytes.size());
  } else {
    kept = emulator::allocations().contents(kMaxCounterBytes);
  }
  return emulator::omit(omitted);
}
