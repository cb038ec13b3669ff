// The C interface between the program and the CUDA module, a library loaded at run time. Plain data
// only, so that both sides may be built by different compilers; no CUDA type, so that the program
// needs no CUDA header.
//
// Every function returns 0, or another number and last_error() says what happened, in one line. All
// work of one process runs on one device and two streams: 0 computes, 1 moves data between ranks.
// Calls come from one thread at a time, which has called open or enter; but for copy_in, copy_out
// and copy_out_beside, which any threads may call.
#pragma once

#include <stdint.h>

#define OCTET_CUDA_API_VERSION 25
#define OCTET_CUDA_API_SYMBOL "octet_cuda_api"
#define OCTET_CUDA_HANDLE_BYTES 64
#define OCTET_CUDA_NCCL_ID_BYTES 128
#define OCTET_CUDA_MAX_JOINED 4   // launches beside each other that are made as one
#define OCTET_CUDA_MAX_CHAINED 5  // and one behind the other
#define OCTET_CUDA_MAX_RANGES 32
#define OCTET_CUDA_UNAVAILABLE 2

extern "C" {

struct OctetCudaInfo {
  char name[128];
  int64_t memory_bytes, free_bytes, l2_bytes;
  int32_t sm_major, sm_minor, n_sm;
  int32_t has_code;         // 1: the module was built for this GPU
  int32_t driver, runtime;  // 13000 for 13.0
  int32_t reserved;
  char blas[32];  // version of cuBLASLt, "13.1.0"
};

// Memory of the device.
struct OctetCudaRange {
  void* address;
  int64_t bytes;
};

// A library that the module can do without.
struct OctetCudaLibrary {
  char version[32];   // empty: it is not used
  char file[256];     // empty: the system's own
  char problem[192];  // why it is not used; empty: it is
  int32_t number;     // of the version, to compare
};

struct OctetCudaOptions {
  int32_t device;         // index among the visible ones
  int32_t deterministic;  // 1: only kernels whose results do not change between runs
  const char* nccl;       // file of NCCL's library; "": libnccl.so.2
};

// A kernel to prepare: an enumerator of cuda::KernelId and its parameters (params/*.h).
struct OctetCudaKernel {
  int32_t kernel;
  int32_t reserved;
  const void* params;
  int64_t params_bytes;
  int64_t scratch_bytes;  // what the plan reserved; preparing fails where a library wants more
};

// The algorithm that a product runs with. Chosen by timing when a kernel was prepared, it may be
// another in the next process, and then sums differ in their last bits; so a run records them.
struct OctetCudaAlgorithm {
  char problem[160];  // sizes, types and layout: what the algorithm was chosen for
  char choice[160];   // in words: number, tile, stages, split of k
  uint64_t code[8];   // the library's own, for the same version of it
  int64_t workspace_bytes;
  double ms;  // measured; 0: it was not
};

// Memory that ranks share, a process and a GPU each. Every rank has as many regions.
struct OctetCudaRanks {
  int32_t n_regions, reserved;
  void* const* own;      // regions of this rank, as they were shared
  const int64_t* bytes;  // of each
  // Handles of the host's ranks: [n_local][n_regions][OCTET_CUDA_HANDLE_BYTES]; null: n_local is 1
  const uint8_t* handles;
};

struct OctetCudaJoin {
  int32_t rank, n_ranks;
  // Neighbours, as many on each host, that reach each other's memory; 1: NCCL moves everything.
  int32_t n_local, reserved;
  struct OctetCudaRanks board;  // one region of 4,096 bytes, zeros
  // The first one's of the ranks that have this one's number on their hosts; null: there is one
  // host, or nothing is moved between them yet.
  const uint8_t* nccl_id;
  // Called now and then, by any thread, while it waits for other ranks: how far this one is. False:
  // one of them has failed, and the call that waits ends with an error.
  bool (*look)(void* looker, int64_t progress);
  void* looker;
};

// Bytes of the host on their way to the device.
struct OctetCudaPart {
  void* to;
  const void* from;
  int64_t bytes;
};

struct OctetCudaLaunch {
  void* const* operands;  // device addresses, null for an absent operand
  void* const* results;
  void* scratch;
  int32_t stream;
  uint32_t begins_run;  // between ranks: the number of the run in its plan, from 1 on
  uint8_t ends_run;     // the last of a run
  uint8_t is_finish;    // the second launch of one that brings data and computes with it
  // The next launch may be made with this one: of the same kind of kernel, and neither touches what
  // the other writes; or all up to the last are a chain (plan/joined_launches.h). This one's
  // addresses stay where they are until then.
  uint8_t joins_next;
};

struct OctetCudaApi {
  int32_t version;
  int32_t n_kernels;  // both sides must know the same list
  const char* (*last_error)(void);
  int (*open)(const struct OctetCudaOptions* options, struct OctetCudaInfo* info);
  int (*enter)(void);  // CUDA has a current device for each thread
  int (*allocate)(int64_t bytes, void** address);
  int (*release)(void* address);
  int (*host_allocate)(int64_t bytes, void** address);  // pinned: the device copies it by itself
  int (*host_release)(void* address);
  int (*copy_in)(void* to_device, const void* from_host, int64_t bytes);
  // A few parts of few bytes travel as parameters of one launch, queued as any other: the host's
  // memory has been read when it returns, and nothing is waited for. Others go by copy_in.
  int (*copy_parts_in)(const struct OctetCudaPart* parts, int32_t n);
  int (*copy_out)(void* to_host, const void* from_device, int64_t bytes);
  // On a stream of its own: waits for nothing that is queued, and returns when it has come.
  int (*copy_out_beside)(void* to_host, const void* from_device, int64_t bytes);
  int (*copy_within)(void* to, const void* from, int64_t bytes);  // queued
  int (*zero)(void* address, int64_t bytes);
  // Sets the 16-bit words of at most OCTET_CUDA_MAX_RANGES ranges to 0x7FC0, NaN in bf16, fp16 and
  // f32, where the byte at `flag` is not 0. Addresses and bytes are even. One launch.
  int (*fill_nan_where)(const void* flag, const struct OctetCudaRange* ranges, int32_t n);
  // Stream 0 is this one of the caller's (a cudaStream_t; null: CUDA's default stream) until it is
  // returned: all that goes there is queued behind the caller's own work.
  int (*borrow_stream)(void* stream);
  int (*return_stream)(void);
  int (*synchronize)(void);
  int (*used_bytes)(int64_t* bytes);
  // Memory that preparing kernels may overwrite, for operands that they are timed on; until it is
  // lent anew or taken back (null, 0).
  int (*lend)(void* address, int64_t bytes);
  // OCTET_CUDA_UNAVAILABLE: the kernel does not take this after all, another may.
  int (*prepare)(const struct OctetCudaKernel* kernel, void** handle);
  int (*launch)(void* handle, const struct OctetCudaLaunch* launch);
  int (*forget)(void* handle);
  // Launches between begin and end are recorded and not run.
  int (*record_begin)(void);
  int (*record_end)(void** recording);
  int (*record_replay)(void* recording);
  int (*record_forget)(void* recording);
  // Times on the device, and order between its streams: marks are events on a stream; what is
  // queued on a stream behind mark_wait begins when the mark has been passed.
  int (*mark_new)(void** mark);
  int (*mark_set)(void* mark, int32_t stream);
  int (*mark_wait)(void* mark, int32_t stream);
  int (*mark_elapsed)(void* from, void* to, float* milliseconds);
  int (*mark_forget)(void* mark);
  // cuDNN, opened where that has not happened yet.
  int (*attention_library)(struct OctetCudaLibrary* library);
  // The algorithms of all products prepared so far, and one of a former process to take where the
  // same product is prepared and the library still offers it.
  int (*algorithm_count)(int32_t* n);
  int (*algorithm_get)(int32_t index, struct OctetCudaAlgorithm* algorithm);
  int (*algorithm_recall)(const struct OctetCudaAlgorithm* algorithm);
  // A handle by which other processes reach an allocation of this device.
  int (*share)(void* address, uint8_t* handle);
  int (*nccl_library)(struct OctetCudaLibrary* library);
  int (*nccl_id)(uint8_t* id);
  // All ranks together, once before connect. With NCCL it returns when they have exchanged
  // something.
  int (*join)(const struct OctetCudaJoin* join);
  // Opens the others' regions; kernels between ranks may be prepared from then on.
  int (*connect)(const struct OctetCudaRanks* ranks);
  int (*leave)(void);  // behind the last work between ranks
  // Like synchronize, for so many milliseconds. Then it ends the waiting for other ranks itself,
  // and fails naming those that did not come.
  int (*await_ranks)(int32_t milliseconds);
};

const struct OctetCudaApi* octet_cuda_api(void);
}
