// Calls of CUDA's runtime that the module makes: memory of the host, streams that run at once,
// graphs that repeat their launches. State that processes share: processes.h.
#include "emulator.h"
#include "faults.h"
#include "processes.h"

#include <cublasLt.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#define EMULATED(name, ...) cudaError_t CUDARTAPI name(__VA_ARGS__)

namespace {

constexpr size_t kMemoryBytes = size_t{8} << 30;
constexpr int kDevices = 16;

cudaError_t give(void** address, size_t bytes) {
  *address = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *address == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

// Launches and copies that wait to be replayed.
using Recording = std::vector<std::function<void()>>;
// Set in the thread that records, as CUDA has it: what another one enqueues meanwhile runs at once.
thread_local Recording* g_recording = nullptr;
// This thread has queued something, and its device is not that of the streams.
thread_local bool t_is_misplaced = false;

}  // namespace

int emulator::capability() {
  const char* named = std::getenv("OCTET_EMULATED_CAPABILITY");
  return named == nullptr ? 90 : std::atoi(named);
}

void emulator::enqueue(std::function<void()> work) {
  t_is_misplaced = device_of_thread() != current_device();
  if (t_is_misplaced) return;
  if (g_recording == nullptr) return work();
  g_recording->push_back(std::move(work));
}

extern "C" {

EMULATED(cudaMalloc, void** address, size_t bytes) {
  return emulator::allocate(address, bytes);
}
EMULATED(cudaHostAlloc, void** address, size_t bytes, unsigned) {
  return give(address, bytes);
}
EMULATED(cudaFree, void* address) {
  return emulator::release(address);
}
EMULATED(cudaFreeHost, void* address) {
  return std::free(address), cudaSuccess;
}
EMULATED(cudaMemGetInfo, size_t* available, size_t* all) {
  *available = *all = kMemoryBytes;
  return cudaSuccess;
}
EMULATED(cudaMemcpy, void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return std::memmove(to, from, bytes), cudaSuccess;
}
EMULATED(cudaMemcpyAsync, void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  emulator::enqueue([=] { emulator::copy(to, from, bytes); });
  return emulator::failure();
}
EMULATED(cudaMemcpy2DAsync, void* to, size_t to_pitch, const void* from, size_t from_pitch,
         size_t width, size_t height, cudaMemcpyKind, cudaStream_t) {
  emulator::enqueue([=] {
    for (size_t row = 0; row < height; ++row)
      emulator::copy(static_cast<std::byte*>(to) + row * to_pitch,
                     static_cast<const std::byte*>(from) + row * from_pitch, width);
  });
  return emulator::failure();
}
EMULATED(cudaMemset, void* to, int value, size_t bytes) {
  return std::memset(to, value, bytes), cudaSuccess;
}
EMULATED(cudaMemsetAsync, void* to, int value, size_t bytes, cudaStream_t) {
  emulator::enqueue([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

EMULATED(cudaGetDeviceCount, int* n) {
  return *n = kDevices, cudaSuccess;
}
EMULATED(cudaGetDevice, int* device) {
  return *device = emulator::device_of_thread(), cudaSuccess;
}
EMULATED(cudaSetDevice, int device) {
  return emulator::set_device(device);
}
EMULATED(cudaGetDeviceProperties, cudaDeviceProp* to, int) {
  *to = {};
  std::strcpy(to->name, "emulated on the CPU");
  to->totalGlobalMem = kMemoryBytes;
  to->major = emulator::capability() / 10;
  to->minor = emulator::capability() % 10;
  to->multiProcessorCount = 3;
  to->l2CacheSize = 1 << 20;
  return cudaSuccess;
}
EMULATED(cudaDeviceGetAttribute, int* value, cudaDeviceAttr what, int) {
  const bool has_little = emulator::capability() == 89 || emulator::capability() >= 120;
  *value = what == cudaDevAttrComputeCapabilityMajor         ? emulator::capability() / 10
           : what == cudaDevAttrMultiProcessorCount          ? 3
           : what == cudaDevAttrMaxSharedMemoryPerBlockOptin ? (has_little ? 99 : 163) << 10
                                                             : 0;
  return cudaSuccess;
}
EMULATED(cudaDeviceGetStreamPriorityRange, int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
EMULATED(cudaDriverGetVersion, int* version) {
  return *version = CUDART_VERSION, cudaSuccess;
}
EMULATED(cudaRuntimeGetVersion, int* version) {
  return *version = CUDART_VERSION, cudaSuccess;
}
EMULATED(cudaGetDriverEntryPointByVersion, const char* name, void** function, unsigned,
         unsigned long long, cudaDriverEntryPointQueryResult* result) {
  if (std::strcmp(name, "cuStreamBatchMemOp") != 0) return cudaErrorNotSupported;
  *function = reinterpret_cast<void*>(emulator::batch_mem_op);
  return *result = cudaDriverEntryPointSuccess, cudaSuccess;
}
const char* CUDARTAPI cudaGetErrorString(cudaError_t status) {
  return status == cudaErrorMemoryAllocation        ? "out of memory"
         : status == cudaErrorLaunchTimeout         ? "a wait for another rank took too long"
         : status == cudaErrorInvalidValue          ? "invalid argument"
         : status == cudaErrorInvalidDevice         ? "a stream of another device than the thread's"
         : status == cudaErrorPeerAccessUnsupported ? "peer access is not supported"
         : status == cudaErrorInvalidResourceHandle ? "the process of a memory handle has ended"
                                                    : "not emulated";
}
EMULATED(cudaGetLastError) {
  return std::exchange(t_is_misplaced, false) ? cudaErrorInvalidDevice : emulator::failure();
}

EMULATED(cudaStreamCreateWithPriority, cudaStream_t* stream, unsigned, int) {
  return *stream = reinterpret_cast<cudaStream_t>(std::malloc(1)), cudaSuccess;
}
EMULATED(cudaStreamSynchronize, cudaStream_t) {
  return emulator::failure();
}
EMULATED(cudaStreamQuery, cudaStream_t) {
  if (emulator::stream_hangs(emulator::current_device())) return cudaErrorNotReady;
  return emulator::failure();
}
EMULATED(cudaStreamWaitEvent, cudaStream_t, cudaEvent_t, unsigned) {
  return cudaSuccess;
}
// Time of the host's clock, in the event's place.
EMULATED(cudaEventCreate, cudaEvent_t* event) {
  return *event = reinterpret_cast<cudaEvent_t>(new double{0}), cudaSuccess;
}
EMULATED(cudaEventRecord, cudaEvent_t event, cudaStream_t) {
  using std::chrono::duration;
  *reinterpret_cast<double*>(event) =
      duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
  return cudaSuccess;
}
EMULATED(cudaEventSynchronize, cudaEvent_t) {
  return cudaSuccess;
}
EMULATED(cudaEventElapsedTime, float* ms, cudaEvent_t from, cudaEvent_t to) {
  *ms = static_cast<float>(*reinterpret_cast<double*>(to) - *reinterpret_cast<double*>(from));
  return cudaSuccess;
}
EMULATED(cudaEventDestroy, cudaEvent_t event) {
  return delete reinterpret_cast<double*>(event), cudaSuccess;
}

EMULATED(cudaStreamBeginCapture, cudaStream_t, cudaStreamCaptureMode) {
  return g_recording = new Recording, cudaSuccess;
}
EMULATED(cudaStreamEndCapture, cudaStream_t, cudaGraph_t* graph) {
  *graph = reinterpret_cast<cudaGraph_t>(g_recording);
  return g_recording = nullptr, cudaSuccess;
}
EMULATED(cudaGraphInstantiate, cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return *executable = reinterpret_cast<cudaGraphExec_t>(graph), cudaSuccess;
}
EMULATED(cudaGraphLaunch, cudaGraphExec_t executable, cudaStream_t) {
  for (const auto& work : *reinterpret_cast<Recording*>(executable)) work();
  return emulator::failure();
}
EMULATED(cudaGraphDestroy, cudaGraph_t) {  // the executable is the graph itself
  return cudaSuccess;
}
EMULATED(cudaGraphExecDestroy, cudaGraphExec_t executable) {
  return delete reinterpret_cast<Recording*>(executable), cudaSuccess;
}
EMULATED(cudaIpcGetMemHandle, cudaIpcMemHandle_t* handle, void* address) {
  return emulator::share(handle, address);
}
EMULATED(cudaIpcOpenMemHandle, void** address, cudaIpcMemHandle_t handle, unsigned) {
  return emulator::open_shared(address, handle);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return *handle = reinterpret_cast<cublasLtHandle_t>(std::malloc(1)), CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() {
  return 0;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t*,
                                                    cublasLtMatmulAlgoConfigAttributes_t, void*,
                                                    size_t, size_t*) {
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
}
