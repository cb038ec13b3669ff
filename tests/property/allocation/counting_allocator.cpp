#include "property/allocation/counting_allocator.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>

// glibc's own entry points, under the names that the wrappers below take.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t n, std::size_t bytes);
void* __libc_realloc(void* at, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
}

namespace octet::counting {
namespace {

std::atomic<bool> on{false};
std::atomic<int64_t> n_large{0};

void count(std::size_t bytes) {
  if (on.load(std::memory_order_relaxed) && bytes > kLarge) ++n_large;
}

}  // namespace

void begin() {
  n_large = 0;
  on = true;
}

int64_t end() {
  on = false;
  return n_large;
}

}  // namespace octet::counting

extern "C" {

void* malloc(std::size_t bytes) {
  octet::counting::count(bytes);
  return __libc_malloc(bytes);
}

void* calloc(std::size_t n, std::size_t bytes) {
  octet::counting::count(n * bytes);
  return __libc_calloc(n, bytes);
}

void* realloc(void* at, std::size_t bytes) {
  octet::counting::count(bytes);
  return __libc_realloc(at, bytes);
}

void* memalign(std::size_t alignment, std::size_t bytes) {
  octet::counting::count(bytes);
  return __libc_memalign(alignment, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  octet::counting::count(bytes);
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void** at, std::size_t alignment, std::size_t bytes) {
  octet::counting::count(bytes);
  *at = __libc_memalign(alignment, bytes);
  return *at == nullptr ? ENOMEM : 0;
}

void* mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  using Map = void* (*)(void*, std::size_t, int, int, int, off_t);
  static const auto next = reinterpret_cast<Map>(dlsym(RTLD_NEXT, "mmap"));
  octet::counting::count(bytes);
  return next(at, bytes, protection, flags, file, offset);
}

}  // extern "C"
