// The module's C interface: turns exceptions into codes, and keeps the one context of the process.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include "backends/cuda/kernels/attention/attention.h"
#include "backends/cuda/kernels/gemm/gemm_algorithms.h"
#include "backends/cuda/kernels/move/fill_nan.h"
#include "backends/cuda/kernels/move/write_parts.h"
#include "backends/cuda/module/context.h"
#include "backends/cuda/module/ranks.h"
#include "backends/cuda/module/table.h"
#include "backends/cuda/module_api.h"

namespace octet::cuda {

Context& context() {
  static Context the_context;
  return the_context;
}

namespace {

cudaStream_t stream_of(int32_t index) {
  return index == 0 ? context().stream : context().transfers;
}

void copy_text(char* to, size_t size, const std::string& text) {
  std::snprintf(to, size, "%s", text.c_str());
}

void describe(OctetCudaInfo& info) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, context().device), "device properties");
  size_t free_bytes = 0, all_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &all_bytes), "memory information");
  copy_text(info.name, sizeof(info.name), properties.name);
  info.memory_bytes = static_cast<int64_t>(all_bytes);
  info.free_bytes = static_cast<int64_t>(free_bytes);
  info.l2_bytes = properties.l2CacheSize;
  info.sm_major = properties.major;
  info.sm_minor = properties.minor;
  info.n_sm = properties.multiProcessorCount;
  info.has_code = has_code_for_device() ? 1 : 0;
  check(cudaDriverGetVersion(&info.driver), "driver version");
  check(cudaRuntimeGetVersion(&info.runtime), "runtime version");
  const size_t blas = cublasLtGetVersion();
  copy_text(info.blas, sizeof(info.blas),
            std::to_string(blas / 10000) + "." + std::to_string(blas / 100 % 100) + "." +
                std::to_string(blas % 100));
}

int open(const OctetCudaOptions* options, OctetCudaInfo* info) {
  return guarded([&] {
    Context& c = context();
    int n_devices = 0;
    const cudaError_t counted = cudaGetDeviceCount(&n_devices);
    if (counted != cudaSuccess)
      throw ModuleError("[cuda] expected a GPU and its driver, got neither that CUDA can use: " +
                        std::string(cudaGetErrorString(counted)));
    if (options->device < 0 || options->device >= n_devices)
      throw ModuleError("[cuda] expected a device below " + std::to_string(n_devices) + ", got " +
                        std::to_string(options->device));
    if (c.own_stream != nullptr && c.device != options->device)
      throw ModuleError("[cuda] expected device " + std::to_string(c.device) +
                        ", which this process works on already, got " +
                        std::to_string(options->device));
    c.device = options->device;
    c.deterministic = options->deterministic != 0;
    c.nccl = options->nccl;
    check(cudaSetDevice(c.device), "choosing the device");
    if (c.own_stream == nullptr) {
      // Others wait for what little of a transfer needs multiprocessors.
      int lowest = 0, highest = 0;
      check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "priorities of streams");
      check(cudaStreamCreateWithPriority(&c.own_stream, cudaStreamNonBlocking, lowest),
            "making a stream");
      c.stream = c.own_stream;
      check(cudaStreamCreateWithPriority(&c.transfers, cudaStreamNonBlocking, highest),
            "making a stream");
      check(cudaStreamCreateWithPriority(&c.saves, cudaStreamNonBlocking, lowest),
            "making a stream");
      if (cublasLtCreate(&c.blas) != CUBLAS_STATUS_SUCCESS)
        throw ModuleError("[cuda] cuBLASLt did not start");
    }
    describe(*info);
    c.n_sm = info->n_sm;
    c.capability = 10 * info->sm_major + info->sm_minor;
  });
}

int enter() {
  return guarded([] { check(cudaSetDevice(context().device), "choosing the device"); });
}

// Allocations have pages of their own, so that one can be shared without its neighbours.
size_t whole_pages(int64_t bytes) {
  constexpr int64_t kPage = int64_t{2} << 20;
  return static_cast<size_t>(bytes > 0 ? (bytes + kPage - 1) / kPage * kPage : kPage);
}

int allocate(int64_t bytes, void** address) {
  return guarded([&] {
    const cudaError_t status = cudaMalloc(address, whole_pages(bytes));
    if (status == cudaErrorMemoryAllocation) cudaGetLastError();  // not sticky: it is reported here
    check(status, "allocating memory");
  });
}
int release(void* address) {
  return guarded([&] { check(cudaFree(address), "releasing memory"); });
}

int host_allocate(int64_t bytes, void** address) {
  return guarded([&] {
    const auto n = static_cast<size_t>(bytes > 0 ? bytes : 256);
    check(cudaHostAlloc(address, n, cudaHostAllocDefault), "allocating memory of the host");
  });
}
int host_release(void* address) {
  return guarded([&] { check(cudaFreeHost(address), "releasing memory of the host"); });
}

int synchronize() {
  return guarded([] { await(Streams::compute); });
}

int copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
  return guarded([&] {
    cudaStream_t stream = context().stream;
    check(cudaSetDevice(context().device), "choosing the device");  // each thread has its own
    // The driver waits for what is queued where it cannot look at the other ranks meanwhile.
    await(Streams::both);
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream), "copying");
    await(Streams::compute);
  });
}
int copy_in(void* to, const void* from, int64_t bytes) {
  return copy(to, from, bytes, cudaMemcpyHostToDevice);
}
int copy_parts_in(const OctetCudaPart* parts, int32_t n) {
  std::span left(parts, static_cast<size_t>(n));
  while (!left.empty()) {
    const size_t n_now = parts_of_one_write(left);
    const OctetCudaPart& first = left.front();
    const int failed =
        n_now == 0 ? copy_in(first.to, first.from, first.bytes)
                   : guarded([&] { launch_write_parts(left.first(n_now), context().stream); });
    if (failed != 0) return failed;
    left = left.subspan(std::max<size_t>(n_now, 1));
  }
  return 0;
}
int copy_out(void* to, const void* from, int64_t bytes) {
  return copy(to, from, bytes, cudaMemcpyDeviceToHost);
}
int copy_out_beside(void* to, const void* from, int64_t bytes) {
  return guarded([&] {
    cudaStream_t stream = context().saves;
    check(cudaSetDevice(context().device), "choosing the device");  // each thread has its own
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream),
          "copying the state");
    check(cudaStreamSynchronize(stream), "copying the state");
  });
}
int copy_within(void* to, const void* from, int64_t bytes) {
  return guarded([&] {
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                          context().stream),
          "copying");
  });
}
int zero(void* address, int64_t bytes) {
  return guarded([&] {
    check(cudaMemsetAsync(address, 0, static_cast<size_t>(bytes), context().stream), "filling");
  });
}
int fill_nan_where(const void* flag, const OctetCudaRange* ranges, int32_t n) {
  return guarded([&] {
    launch_fill_nan_where(static_cast<const uint8_t*>(flag),
                          std::span(ranges, static_cast<size_t>(n)), context().stream);
  });
}

int borrow_stream(void* stream) {
  return guarded([&] { context().stream = static_cast<cudaStream_t>(stream); });
}
int return_stream() {
  return guarded([] { context().stream = context().own_stream; });
}

int used_bytes(int64_t* bytes) {
  return guarded([&] {
    size_t free_bytes = 0, all_bytes = 0;
    check(cudaMemGetInfo(&free_bytes, &all_bytes), "memory information");
    *bytes = static_cast<int64_t>(all_bytes - free_bytes);
  });
}

int lend(void* address, int64_t bytes) {
  return guarded([&] {
    context().lent = {static_cast<std::byte*>(address), static_cast<size_t>(bytes)};
  });
}

// Objects that handles stand for.
struct OwnKernel {
  std::unique_ptr<Prepared> kernel;
  unsigned int* counters;
};

int prepare(const OctetCudaKernel* kernel, void** handle) {
  bool is_unavailable = false;
  const int status = guarded([&] {
    const std::span<const std::byte> params(static_cast<const std::byte*>(kernel->params),
                                            static_cast<size_t>(kernel->params_bytes));
    const Request request{.context = context(),
                          .n_sm = context().n_sm,
                          .params = params,
                          .scratch_bytes = kernel->scratch_bytes};
    try {
      auto prepared = find_kernel(kernel->kernel)(request);
      *handle = new OwnKernel{std::move(prepared), context().counters.take()};
    } catch (const KernelUnavailable&) {
      is_unavailable = true;
      throw;
    }
  });
  return is_unavailable ? OCTET_CUDA_UNAVAILABLE : status;
}
// As one where they are kernels of one kind; a chain that no kernel makes is launched one by one.
void launch_joined(std::span<const Joined> all) {
  if (all.size() > kMaxParts) {
    for (const Joined& one : all) one.kernel->launch(one.args);
  } else {
    all[0].kernel->launch_joined(all);
  }
}
int launch(void* handle, const OctetCudaLaunch* args) {
  return guarded([&] {
    const auto& own = *static_cast<const OwnKernel*>(handle);
    if (args->begins_run == 1 && !context().is_capturing) context().links.progress.begin_plan();
    const Joined now{own.kernel.get(),
                     {.operands = args->operands,
                      .results = args->results,
                      .scratch = args->scratch,
                      .stream = stream_of(args->stream),
                      .n_sm = context().n_sm,
                      .counters = own.counters,
                      .begins_collective_group = args->begins_run,
                      .ends_collective_group = args->ends_run != 0,
                      .is_second_phase = args->is_finish != 0}};
    std::vector<Joined>& waiting = context().waiting;
    if (!args->joins_next && waiting.empty()) return now.kernel->launch(now.args);
    waiting.push_back(now);
    if (args->joins_next && waiting.size() < OCTET_CUDA_MAX_CHAINED) return;
    const std::vector<Joined> all = std::exchange(waiting, {});
    if (!all.back().kernel->launch_chain(all)) launch_joined(all);
  });
}
int forget(void* handle) {
  const std::unique_ptr<OwnKernel> own(static_cast<OwnKernel*>(handle));
  context().counters.give_back(own->counters);
  return 0;
}

int record_begin() {
  return guarded([] {
    check(cudaStreamBeginCapture(context().stream, cudaStreamCaptureModeThreadLocal),
          "beginning to record");
    context().is_capturing = true;
  });
}
int record_end(void** recording) {
  return guarded([&] {
    cudaGraph_t graph = nullptr;
    context().is_capturing = false;
    check(cudaStreamEndCapture(context().stream, &graph), "recording");
    cudaGraphExec_t executable = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    check(status, "making a graph of the recording");
    *recording = executable;
  });
}
int record_replay(void* recording) {
  return guarded([&] {
    context().links.progress.begin_plan();
    check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(recording), context().stream),
          "replaying a recording");
  });
}
int record_forget(void* recording) {
  return guarded([&] {
    check(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(recording)), "forgetting a recording");
  });
}

int mark_new(void** mark) {
  return guarded([&] {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "making an event");
    *mark = event;
  });
}
int mark_set(void* mark, int32_t stream) {
  return guarded([&] {
    check(cudaEventRecord(static_cast<cudaEvent_t>(mark), stream_of(stream)), "setting an event");
  });
}
int mark_wait(void* mark, int32_t stream) {
  return guarded([&] {
    check(cudaStreamWaitEvent(stream_of(stream), static_cast<cudaEvent_t>(mark), 0),
          "waiting for an event");
  });
}
int mark_elapsed(void* from, void* to, float* milliseconds) {
  return guarded([&] {
    auto* last = static_cast<cudaEvent_t>(to);
    if (context().links.n_ranks > 1) await(Streams::both);
    check(cudaEventSynchronize(last), "waiting for an event");
    check(cudaEventElapsedTime(milliseconds, static_cast<cudaEvent_t>(from), last),
          "reading events");
  });
}
int mark_forget(void* mark) {
  return guarded(
      [&] { check(cudaEventDestroy(static_cast<cudaEvent_t>(mark)), "forgetting an event"); });
}

int attention_library(OctetCudaLibrary* library) {
  return guarded([&] {
    std::string problem;
    const std::string version = attention_library_version(context(), problem);
    copy_text(library->version, sizeof(library->version), version);
    copy_text(library->problem, sizeof(library->problem), problem);
  });
}

int algorithm_count(int32_t* n) {
  return guarded([&] { *n = static_cast<int32_t>(context().gemm_algorithms.size()); });
}
int algorithm_get(int32_t index, OctetCudaAlgorithm* algorithm) {
  return guarded([&] { *algorithm = recorded_algorithm(context(), index); });
}
int algorithm_recall(const OctetCudaAlgorithm* algorithm) {
  return guarded([&] { cache_algorithm(context(), *algorithm); });
}

const char* last_error() {
  return error_text().c_str();
}

}  // namespace
}  // namespace octet::cuda

extern "C" __attribute__((visibility("default"))) const OctetCudaApi* octet_cuda_api(void) {
  using namespace octet::cuda;
  static const OctetCudaApi api = {
      .version = OCTET_CUDA_API_VERSION,
      .n_kernels = kKernelCount,
      .last_error = last_error,
      .open = open,
      .enter = enter,
      .allocate = allocate,
      .release = release,
      .host_allocate = host_allocate,
      .host_release = host_release,
      .copy_in = copy_in,
      .copy_parts_in = copy_parts_in,
      .copy_out = copy_out,
      .copy_out_beside = copy_out_beside,
      .copy_within = copy_within,
      .zero = zero,
      .fill_nan_where = fill_nan_where,
      .borrow_stream = borrow_stream,
      .return_stream = return_stream,
      .synchronize = synchronize,
      .used_bytes = used_bytes,
      .lend = lend,
      .prepare = prepare,
      .launch = launch,
      .forget = forget,
      .record_begin = record_begin,
      .record_end = record_end,
      .record_replay = record_replay,
      .record_forget = record_forget,
      .mark_new = mark_new,
      .mark_set = mark_set,
      .mark_wait = mark_wait,
      .mark_elapsed = mark_elapsed,
      .mark_forget = mark_forget,
      .attention_library = attention_library,
      .algorithm_count = algorithm_count,
      .algorithm_get = algorithm_get,
      .algorithm_recall = algorithm_recall,
      .share = share,
      .nccl_library = nccl_library,
      .nccl_id = nccl_id,
      .join = join,
      .connect = connect,
      .leave = leave,
      .await_ranks = await_ranks,
  };
  return &api;
}
