// A stand-in for NCCL between emulated devices: the module that is emulated has its functions, so
// that OCTET_NCCL names the module itself. Ranks are processes, whose letters to each other lie in
// memory that they share. Streams run at once and graphs record, as the rest of the runtime does.
//
//   OCTET_EMULATED_NCCL_VERSION=22809   what it says of itself
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "backends/cuda/kernels/ranks/nccl_api.h"
#include "emulator.h"
#include "faults.h"
#include "processes.h"

#define STAND_IN extern "C" __attribute__((visibility("default"))) Result

using namespace octet::cuda::nccl;

namespace {

constexpr int kMaxRanks = 16;
constexpr size_t kLetterBytes = size_t{256} << 10;

// Letter of one rank to another: full until the other one has read it.
struct Letter {
  std::atomic<uint32_t> is_full;
  uint32_t bytes;
  std::byte text[kLetterBytes];
};
struct Shared {
  std::atomic<int> n_there;
  std::atomic<bool> is_aborted;
  Letter letters[kMaxRanks][kMaxRanks];  // from, to
};

struct Id {
  pid_t process;
  int file;
};

// A part of a group of calls.
struct Move {
  int rank = 0;
  const std::byte* give = nullptr;
  std::byte* take = nullptr;
  size_t bytes = 0, done = 0;
};

Result g_state = success;
int g_depth = 0;
std::vector<Move> g_group;

}  // namespace

struct octet::cuda::nccl::ncclComm {
  Shared* shared = nullptr;
  int rank = 0, n_ranks = 0;
};

namespace {

ncclComm* g_comm = nullptr;

void fail(const char* what) {
  std::fprintf(stderr, "emulated NCCL: device %d: %s\n", emulator::current_device(), what);
  g_state = remote_error;
}

// Moves what goes without waiting; true if anything did.
bool step(ncclComm& comm, Move& move) {
  const bool gives = move.give != nullptr;
  Letter& letter = gives ? comm.shared->letters[comm.rank][move.rank]
                         : comm.shared->letters[move.rank][comm.rank];
  if (move.done == move.bytes || (letter.is_full.load() != 0) == gives) return false;
  if (gives) {
    letter.bytes = static_cast<uint32_t>(std::min(kLetterBytes, move.bytes - move.done));
    std::memcpy(letter.text, move.give + move.done, letter.bytes);
  } else {
    if (letter.bytes > move.bytes - move.done) return fail("ranks disagree on a size"), false;
    std::memcpy(move.take + move.done, letter.text, letter.bytes);
  }
  move.done += letter.bytes;
  letter.is_full.store(gives ? 1 : 0);
  return true;
}

void run(ncclComm& comm, std::vector<Move> moves) {
  emulator::delay_for_jitter(emulator::current_device());
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto is_done = [](const Move& move) { return move.done == move.bytes; };
  while (g_state == success && !std::ranges::all_of(moves, is_done)) {
    bool moved = false;
    for (Move& move : moves) moved = step(comm, move) || moved;
    if (moved) continue;
    if (comm.shared->is_aborted) fail("a rank ended");
    if (std::chrono::steady_clock::now() > until) fail("a rank did not come");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

Result add(const Move& move) {
  g_group.push_back(move);
  return success;
}

template <typename T>
void reduce(std::byte* into, const std::byte* from, size_t n, Operation operation) {
  for (size_t i = 0; i < n; ++i) {
    T a, b;
    std::memcpy(&a, into + i * sizeof(T), sizeof(T));
    std::memcpy(&b, from + i * sizeof(T), sizeof(T));
    a = operation == sum ? static_cast<T>(a + b) : std::max(a, b);
    std::memcpy(into + i * sizeof(T), &a, sizeof(T));
  }
}

size_t width_of(DataType type) {
  return type == int64 ? 8 : type == uint32 ? 4 : 1;
}

// Each rank gives all others what it has.
std::vector<Move> moves_to_all(ncclComm& comm, const std::byte* own, std::byte* all, size_t bytes) {
  std::vector<Move> moves;
  for (int r = 0; r < comm.n_ranks; ++r) {
    if (r == comm.rank) continue;
    moves.push_back({.rank = r, .give = own, .bytes = bytes});
    moves.push_back({.rank = r, .take = all + static_cast<size_t>(r) * bytes, .bytes = bytes});
  }
  return moves;
}

}  // namespace

STAND_IN ncclGetVersion(int* version) {
  const char* named = std::getenv("OCTET_EMULATED_NCCL_VERSION");
  return *version = named == nullptr ? 22809 : std::atoi(named), success;
}

STAND_IN ncclGetUniqueId(UniqueId* id) {
  const int file = ::memfd_create("octet-emulated-nccl", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, sizeof(Shared)) != 0) return static_cast<Result>(2);
  const Id made{::getpid(), file};
  *id = {};
  std::memcpy(id->internal, &made, sizeof(made));
  return success;
}

STAND_IN ncclCommInitRankConfig(Communicator* comm, int n_ranks, UniqueId id, int rank,
                                Config* config) {
  // Without it NCCL would set up multicast over NVLink.
  const char* multicast = std::getenv("NCCL_NVLS_ENABLE");
  const bool has_multicast = multicast == nullptr || std::string_view(multicast) != "0";
  if (config->magic != 0xcafebeef || config->blocking != 0 || n_ranks > kMaxRanks || has_multicast)
    return static_cast<Result>(4);
  Id it{};
  std::memcpy(&it, id.internal, sizeof(it));
  const std::string path = "/proc/" + std::to_string(it.process) + "/fd/" + std::to_string(it.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return static_cast<Result>(2);
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) return static_cast<Result>(2);
  g_comm = *comm = new ncclComm{static_cast<Shared*>(memory), rank, n_ranks};
  ++g_comm->shared->n_there;
  return g_state = success, in_progress;
}

// A communicator is made when all have come.
STAND_IN ncclCommGetAsyncError(Communicator comm, Result* error) {
  const bool is_made = comm->shared->n_there.load() >= comm->n_ranks;
  *error = g_state != success ? g_state : is_made ? success : in_progress;
  return success;
}
STAND_IN ncclCommFinalize(Communicator) {
  return success;
}
STAND_IN ncclCommDestroy(Communicator comm) {
  return ::munmap(comm->shared, sizeof(Shared)), delete comm, success;
}
STAND_IN ncclCommAbort(Communicator comm) {
  comm->shared->is_aborted = true;
  return ncclCommDestroy(comm);
}
extern "C" __attribute__((visibility("default"))) const char* ncclGetErrorString(Result result) {
  return result == remote_error ? "remote process exited or there was a network error"
                                : "an emulated error";
}
extern "C" __attribute__((visibility("default"))) const char* ncclGetLastError(Communicator) {
  return "";
}

STAND_IN ncclGroupStart() {
  return ++g_depth, success;
}
STAND_IN ncclGroupEnd() {
  if (--g_depth > 0 || g_group.empty()) return success;
  emulator::enqueue([moves = std::exchange(g_group, {})] { run(*g_comm, moves); });
  return g_state;
}
STAND_IN ncclSend(const void* from, size_t n, DataType type, int peer, Communicator, cudaStream_t) {
  return add(
      {.rank = peer, .give = static_cast<const std::byte*>(from), .bytes = n * width_of(type)});
}
STAND_IN ncclRecv(void* to, size_t n, DataType type, int peer, Communicator, cudaStream_t) {
  return add({.rank = peer, .take = static_cast<std::byte*>(to), .bytes = n * width_of(type)});
}
STAND_IN ncclAllGather(const void* from, void* to, size_t n, DataType type, Communicator comm,
                       cudaStream_t) {
  const size_t bytes = n * width_of(type);
  emulator::enqueue([=] {
    auto* const all = static_cast<std::byte*>(to);
    const auto* const own = static_cast<const std::byte*>(from);
    std::memmove(all + static_cast<size_t>(comm->rank) * bytes, own, bytes);
    run(*comm, moves_to_all(*comm, own, all, bytes));
  });
  return g_state;
}
STAND_IN ncclAllReduce(const void* from, void* to, size_t n, DataType type, Operation operation,
                       Communicator comm, cudaStream_t) {
  emulator::enqueue([=] {
    const size_t bytes = n * width_of(type);
    const auto n_ranks = static_cast<size_t>(comm->n_ranks);
    std::vector<std::byte> all(bytes * n_ranks), result(bytes);
    std::memcpy(all.data() + static_cast<size_t>(comm->rank) * bytes, from, bytes);
    run(*comm, moves_to_all(*comm, static_cast<const std::byte*>(from), all.data(), bytes));
    std::memcpy(result.data(), all.data(), bytes);
    for (size_t r = 1; r < n_ranks; ++r) {
      const std::byte* other = all.data() + r * bytes;
      if (type == int64) reduce<int64_t>(result.data(), other, n, operation);
      if (type == uint32) reduce<uint32_t>(result.data(), other, n, operation);
      if (type == uint8) reduce<uint8_t>(result.data(), other, n, operation);
    }
    std::memcpy(to, result.data(), bytes);
  });
  return g_state;
}
