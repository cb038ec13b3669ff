// The C interface to the optimizer (optimizer_api.h): turns exceptions into codes.
#include "backends/cuda/module/adamw_many.h"
#include "backends/cuda/module/context.h"

namespace octet::cuda {
namespace {

const char* last_error() {
  return error_text().c_str();
}

template <typename F>
int on_device(void* optimizer, F&& f) {
  return guarded([&] {
    auto& many = *static_cast<AdamwMany*>(optimizer);
    const DeviceScope scope(many.device());
    f(many);
  });
}

cudaStream_t stream_of(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

int open(const OctetCudaOptimizerOptions* options, void** optimizer) {
  return guarded([&] { *optimizer = std::make_unique<AdamwMany>(*options).release(); });
}
void close(void* optimizer) {
  delete static_cast<AdamwMany*>(optimizer);
}
int plan(void* optimizer, const OctetCudaWeight* weights, int64_t n, OctetCudaPlan* plan) {
  return on_device(optimizer, [&](AdamwMany& many) {
    *plan = many.plan({weights, static_cast<size_t>(n)});
  });
}
int place(void* optimizer, void* table, OctetCudaControl* control, void* stream) {
  return on_device(optimizer,
                   [&](AdamwMany& many) { many.place(table, control, stream_of(stream)); });
}
int write_numbers(void* optimizer, const OctetCudaNumbers* numbers, int32_t n, void* stream) {
  return on_device(optimizer, [&](AdamwMany& many) {
    many.write_numbers({numbers, static_cast<size_t>(n)}, stream_of(stream));
  });
}
int write_gradients(void* optimizer, const uint64_t* addresses, int64_t n, void* stream) {
  return on_device(optimizer, [&](AdamwMany& many) {
    many.write_gradients({addresses, static_cast<size_t>(n)}, stream_of(stream));
  });
}
int squares(void* optimizer, void* stream) {
  return on_device(optimizer, [&](const AdamwMany& many) { many.squares(stream_of(stream)); });
}
int step(void* optimizer, double clip, int32_t has_squares, void* stream) {
  return on_device(optimizer, [&](const AdamwMany& many) {
    many.step(clip, has_squares != 0, stream_of(stream));
  });
}
int one_by_one(void* optimizer, int32_t is_wanted) {
  return guarded([&] { static_cast<AdamwMany*>(optimizer)->one_by_one(is_wanted != 0); });
}

}  // namespace
}  // namespace octet::cuda

extern "C" __attribute__((visibility("default"))) const OctetCudaOptimizerApi*
octet_cuda_optimizer_api(void) {
  using namespace octet::cuda;
  static const OctetCudaOptimizerApi api = {.version = OCTET_CUDA_OPTIMIZER_VERSION,
                                            .reserved = 0,
                                            .last_error = last_error,
                                            .open = open,
                                            .close = close,
                                            .plan = plan,
                                            .place = place,
                                            .write_numbers = write_numbers,
                                            .write_gradients = write_gradients,
                                            .squares = squares,
                                            .step = step,
                                            .one_by_one = one_by_one};
  return &api;
}
