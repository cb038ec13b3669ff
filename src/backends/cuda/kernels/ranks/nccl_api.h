// NCCL's library, opened at run time: what of its C interface is called, as facts of its ABI since
// 2.19, so that neither its headers nor the library are needed to build. tests/emulator compares
// them with nccl.h where that is found.
#pragma once

#include <cuda_runtime.h>

#include <climits>
#include <string>

namespace octet::cuda::nccl {

enum Result : int { success = 0, remote_error = 6, in_progress = 7 };
enum DataType : int { int8 = 0, uint8 = 1, uint32 = 3, int64 = 4 };
enum Operation : int { sum = 0, max = 2 };

struct UniqueId {
  char internal[128];
};
using Communicator = struct ncclComm*;

// The fields of 2.18; the library takes its defaults for those behind `size`.
struct Config {
  static constexpr int kDefault = INT_MIN;
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef, version = 21900;
  int blocking = kDefault, cga_cluster_size = kDefault, min_ctas = kDefault, max_ctas = kDefault;
  const char* net_name = nullptr;
  int split_share = kDefault;
};

inline constexpr int kMinVersion = 21900;

struct Api {
  std::string file;
  int version = 0;  // 22809 for 2.28.9

  Result (*get_version)(int* version);
  Result (*get_unique_id)(UniqueId* id);
  Result (*init_rank)(Communicator* comm, int n_ranks, UniqueId id, int rank, Config* config);
  Result (*get_async_error)(Communicator comm, Result* error);
  Result (*finalize)(Communicator comm);
  Result (*destroy)(Communicator comm);
  Result (*end_now)(Communicator comm);
  const char* (*error_string)(Result result);
  const char* (*last_error)(Communicator comm);
  Result (*group_start)();
  Result (*group_end)();
  Result (*send)(const void* from, size_t n, DataType, int peer, Communicator, cudaStream_t);
  Result (*recv)(void* to, size_t n, DataType, int peer, Communicator, cudaStream_t);
  Result (*all_gather)(const void* from, void* to, size_t n, DataType, Communicator, cudaStream_t);
  Result (*all_reduce)(const void* from, void* to, size_t n, DataType, Operation, Communicator,
                       cudaStream_t);
};

// Opens the file, or libnccl.so.2 where it is empty, once in a process. Throws ModuleError: not
// found, or older than 2.19.
const Api& open(const std::string& file);
std::string version_text(int version);  // "2.28.9"

}  // namespace octet::cuda::nccl
