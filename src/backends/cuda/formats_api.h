// The C interface of the CUDA module to the number formats, for programs that own the memory and
// the streams: octet.formats calls it on arrays that lie on a GPU. Plain data and addresses only.
//
// Rules and bits are those of formats/encode.h, decode.h, quantize.h and math/expansion.h, but for
// powers that are fast. Work is queued on the caller's stream and nothing waits for it, so that a
// CUDA graph may hold it. Functions return 0, or 1 and last_error() says in one line what happened
// to this thread's last call. They keep nothing; any threads may call them.
#pragma once

#include <stdint.h>

#define OCTET_CUDA_FORMATS_VERSION 1

extern "C" {

// Enumerators are those of formats/dtype.h and formats/table.h, as numbers. Addresses are of the
// device, aligned to an element, null where n is 0; inputs and results do not overlap.
struct OctetCudaEncoding {
  const void* values;    // n of `source`: f32, bf16 or fp16
  void* codes;           // n of `format`
  const uint32_t* bits;  // random words, one a value; null: those of `seed`
  int64_t n;
  int32_t device;
  uint32_t seed;
  uint8_t format, rounding, source, saturate, nan_to_zero;
  uint8_t reserved[3];
};

struct OctetCudaDecoding {
  const void* codes;
  float* values;
  int64_t n;
  int32_t device;
  uint8_t format;
  uint8_t reserved[3];
};

// A matrix [rows, cols], row-major, in tiles of which those at the edges may be smaller; every tile
// has a scale, or with range expansion a word of metadata: [grid_rows, grid_cols]. A tile is not
// smaller than 1 x 1.
struct OctetCudaTiles {
  int64_t rows, cols, tile_rows, tile_cols, grid_rows, grid_cols;
  float* x;
  uint8_t* codes;
  void* of_tiles;       // f32 scales or u32 metadata
  uint32_t* scratch;    // of expand: a word a tile
  uint32_t* nonfinite;  // of quantize and expand: set to 0, or 1 where x holds a NaN or Inf
  int32_t device;
  uint8_t format;
  uint8_t bf16_scales;    // of quantize: scales are values of BF16
  uint8_t second_moment;  // of expand: the range is that of v
  uint8_t fast;           // of expand and contract: the machine's powers
};

struct OctetCudaFormatsApi {
  int32_t version;
  int32_t reserved;
  const char* (*last_error)(void);
  int (*encode)(const struct OctetCudaEncoding* call, void* stream);
  int (*decode)(const struct OctetCudaDecoding* call, void* stream);
  int (*quantize)(const struct OctetCudaTiles* call, void* stream);
  int (*dequantize)(const struct OctetCudaTiles* call, void* stream);
  int (*expand)(const struct OctetCudaTiles* call, void* stream);
  // The inverse of expand. A tile whose metadata no quantizer writes becomes NaN.
  int (*contract)(const struct OctetCudaTiles* call, void* stream);
};

const struct OctetCudaFormatsApi* octet_cuda_formats_api(void);
}
