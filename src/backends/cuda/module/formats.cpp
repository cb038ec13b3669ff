// The C interface to the number formats (formats_api.h): checks calls, and turns exceptions into
// codes.
#include "backends/cuda/kernels/quantize/format_arrays.h"
#include "backends/cuda/module/context.h"
#include "formats/table.h"

namespace octet::cuda {
namespace {

const char* last_error() {
  return error_text().c_str();
}

void check_place(const void* at, int64_t n, int64_t bytes, const char* what) {
  if (n == 0) return;
  if (at != nullptr && reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(bytes) == 0) return;
  throw ModuleError("[formats] " + std::string(what) + ": expected memory aligned to " +
                    std::to_string(bytes) + " bytes, got " +
                    (at == nullptr ? "none" : "some that is not"));
}

Dtype format_of(uint8_t number) {
  const auto dtype = static_cast<Dtype>(number);
  if (number >= kDtypeCount || !is_format(dtype))
    throw ModuleError("[formats] expected a number format, got " + std::to_string(number));
  return dtype;
}

int encode(const OctetCudaEncoding* call, void* stream) {
  return guarded([&] {
    const Dtype format = format_of(call->format);
    const auto source = static_cast<Dtype>(call->source);
    if (source != Dtype::f32 && source != Dtype::bf16 && source != Dtype::fp16)
      throw ModuleError("[formats] expected values of f32, bf16 or fp16");
    if (!rounding_supported(format, static_cast<Rounding>(call->rounding)))
      throw ModuleError("[formats] expected a rounding of " + std::string(dtype_name(format)));
    check_place(call->values, call->n, bytes_of(source, 1), "values");
    check_place(call->codes, call->n, bytes_of(format, 1), "codes");
    if (call->bits != nullptr) check_place(call->bits, call->n, 4, "random words");
    const DeviceScope scope(call->device);
    launch_encode_array(*call, static_cast<cudaStream_t>(stream));
  });
}

int decode(const OctetCudaDecoding* call, void* stream) {
  return guarded([&] {
    check_place(call->codes, call->n, bytes_of(format_of(call->format), 1), "codes");
    check_place(call->values, call->n, 4, "values");
    const DeviceScope scope(call->device);
    launch_decode_array(*call, static_cast<cudaStream_t>(stream));
  });
}

// Calls launch(call, stream) where the memory that all these calls share is there.
template <typename F>
int with_tiles(const OctetCudaTiles* call, void* stream, F&& launch) {
  return guarded([&] {
    if (call->rows < 0 || call->cols < 0 || call->tile_rows < 1 || call->tile_cols < 1)
      throw ModuleError("[formats] expected a matrix, and tiles of 1 x 1 or more");
    const int64_t n = call->rows * call->cols, n_tiles = call->grid_rows * call->grid_cols;
    check_place(call->x, n, 4, "values");
    check_place(call->codes, n, 1, "codes");
    check_place(call->of_tiles, n_tiles, 4, "scales");
    const DeviceScope scope(call->device);
    launch(*call, static_cast<cudaStream_t>(stream));
  });
}

int quantize(const OctetCudaTiles* call, void* stream) {
  return with_tiles(call, stream, [](const OctetCudaTiles& tiles, cudaStream_t to) {
    check_place(tiles.nonfinite, 1, 4, "flag");
    launch_quantize_tiles(tiles, to);
  });
}
int dequantize(const OctetCudaTiles* call, void* stream) {
  return with_tiles(call, stream, launch_dequantize_tiles);
}
int expand(const OctetCudaTiles* call, void* stream) {
  return with_tiles(call, stream, [](const OctetCudaTiles& tiles, cudaStream_t to) {
    check_place(tiles.nonfinite, 1, 4, "flag");
    check_place(tiles.scratch, tiles.grid_rows * tiles.grid_cols, 4, "scratch");
    launch_expand_tiles(tiles, to);
  });
}
int contract(const OctetCudaTiles* call, void* stream) {
  return with_tiles(call, stream, launch_contract_tiles);
}

}  // namespace
}  // namespace octet::cuda

extern "C" __attribute__((visibility("default"))) const OctetCudaFormatsApi* octet_cuda_formats_api(
    void) {
  using namespace octet::cuda;
  static const OctetCudaFormatsApi api = {.version = OCTET_CUDA_FORMATS_VERSION,
                                          .reserved = 0,
                                          .last_error = last_error,
                                          .encode = encode,
                                          .decode = decode,
                                          .quantize = quantize,
                                          .dequantize = dequantize,
                                          .expand = expand,
                                          .contract = contract};
  return &api;
}
