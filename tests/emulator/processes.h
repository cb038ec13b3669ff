// State that emulated devices of several processes share: memory by IPC handles, and stream memory
// operations that wait for flags in it.
//
// A device is a process that chose a number with cudaSetDevice. Memory becomes a file of no name
// (memfd) once a handle of it is asked for, so that nothing is left behind however a process ends.
// The environment says what is unusual:
//
//   OCTET_EMULATED_WAIT_SECONDS=60      a wait that lasts longer fails, naming whom it waits for
//   OCTET_EMULATED_JITTER=SEED:MICROS   random delays of up to MICROS before each flag is sent and
//                                       behind each wait; another sequence for each device
//   OCTET_EMULATED_NO_PEERS=1           devices do not reach each other's memory (nccl.cpp)
//   OCTET_EMULATED_FAULT=WHAT:OF[:device=D][:first=N][:count=N][:ms=N]
//
// A fault is what tests of guards have to find. WHAT, and OF what:
//   zero, flip : the name of a kernel of collectives (sum_of_ranks, max_of_floats, max_of_flags):
//                its result becomes zeros, or one bit of its first word another
//   zero, flip : copies (what is brought from another device's memory), in the same way
//   hang       : streams, from that time on that the device is asked whether one has ended
//   skip       : waits. One returns at once, and the other devices do nothing between the barrier
//                before it and `ms` (1,000) after this one has come, so that what the wait is for
//                has not happened. count is 1. Ranks must have the devices of their numbers
// device: where (all). first, count: of those that this process runs, from 0 on (all).
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <string_view>

namespace emulator {

int current_device();    // of the process
int device_of_thread();  // that it has chosen; 0: none
cudaError_t set_device(int device);

cudaError_t allocate(void** address, size_t bytes);
cudaError_t release(void* address);
cudaError_t share(cudaIpcMemHandle_t* handle, void* address);
cudaError_t open_shared(void** address, const cudaIpcMemHandle_t& handle);

// A copy as a stream makes it, of flags too.
void copy(void* to, const void* from, size_t bytes);
CUresult batch_mem_op(CUstream stream, unsigned n, CUstreamBatchMemOpParams* ops, unsigned flags);
// cudaSuccess, or what a wait has failed by: it stays, and all later work fails.
cudaError_t failure();

// Behind the run of a kernel with the result of `bytes` at `result`.
bool has_fault_of(std::string_view kernel);
void damage_result(std::string_view kernel, void* result, size_t bytes);

}  // namespace emulator
