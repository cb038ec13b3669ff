#include "backends/cpu/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/host_memory.h"

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

}  // namespace

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

}  // namespace octet::cpu
