// Bias that is added to attention's scores, and the tiles of its gradient.
#pragma once

#include "backends/cuda/kernels/attention/attention_tiles.cuh"

namespace octet::cuda {

// Bias of the scores of one head of a sequence.
class Bias {
 public:
  __device__ __forceinline__ Bias(const AttentionParams& p, const void* x, int64_t b, int64_t h)
      : x_(x),
        first_(b * p.bias.batch + h * p.bias.head),
        query_(p.bias.query),
        q_len_(static_cast<int>(p.q_len)),
        kv_len_(static_cast<int>(p.kv_len)),
        dtype_(p.bias.dtype) {}

  __device__ __forceinline__ float at(int query, int key) const {
    if (query >= q_len_ || key >= kv_len_) return 0;
    const int64_t i = first_ + query * query_ + key;
    if (dtype_ == Dtype::f32) return static_cast<const float*>(x_)[i];
    const uint16_t bits = static_cast<const uint16_t*>(x_)[i];
    return dtype_ == Dtype::bf16 ? to_float<Dtype::bf16>(bits) : to_float<Dtype::fp16>(bits);
  }

 private:
  const void* x_;
  int64_t first_, query_;
  int q_len_, kv_len_;
  Dtype dtype_;
};
// The tiles of a bias's gradient.
struct BiasPlace {
  int64_t b, h;
  int query, key;  // the first
};
struct BiasGrid {
  int64_t batch, heads, q_tiles, kv_tiles;

  BiasGrid(const AttentionParams& p, int tile_queries, int tile_keys)
      : batch(p.bias.batch == 0 ? 1 : p.batch),
        heads(p.bias.head == 0 ? 1 : p.heads),
        q_tiles(p.bias.query == 0 ? 1 : (p.q_len + tile_queries - 1) / tile_queries),
        kv_tiles((p.kv_len + tile_keys - 1) / tile_keys) {}
  unsigned blocks() const { return static_cast<unsigned>(batch * heads * q_tiles * kv_tiles); }
  __device__ __forceinline__ BiasPlace place(int tile_queries, int tile_keys) const {
    const int64_t i = blockIdx.x, tile = i / kv_tiles;
    return {tile / q_tiles / heads, tile / q_tiles % heads,
            static_cast<int>(tile % q_tiles) * tile_queries,
            static_cast<int>(i % kv_tiles) * tile_keys};
  }
};
// Items of a block: tiles of queries of the heads and entries that its bias repeats over.
struct BiasShare {
  struct Item {
    int64_t b, h;
    int query;
  };
  int64_t first_b, first_h;
  int first_query, step, n_tiles, n_heads, n;

  __device__ __forceinline__ BiasShare(const AttentionParams& p, const BiasPlace& place,
                                       int tile_queries)
      : first_b(place.b), first_h(place.h), first_query(place.query), step(tile_queries) {
    n_tiles = p.bias.query == 0 ? (static_cast<int>(p.q_len) + step - 1) / step : 1;
    n_heads = p.bias.head == 0 ? static_cast<int>(p.heads) : 1;
    n = n_tiles * n_heads * (p.bias.batch == 0 ? static_cast<int>(p.batch) : 1);
  }
  __device__ __forceinline__ Item at(int i) const {
    return {first_b + i / n_tiles / n_heads, first_h + i / n_tiles % n_heads,
            first_query + i % n_tiles * step};
  }
};
// Destination of the sums of a block's tile: rows and keys of the bias.
struct BiasOut {
  const AttentionParams& p;
  void* x;
  BiasPlace place;

  __device__ __forceinline__ void write(int64_t query, int64_t key, float value) const {
    const AttentionBias& bias = p.bias;
    const int64_t i = place.b * bias.batch + place.h * bias.head + query * bias.query + key;
    if (bias.dtype == Dtype::f32) {
      static_cast<float*>(x)[i] = value;
    } else {
      static_cast<uint16_t*>(x)[i] = bias.dtype == Dtype::bf16 ? from_float<Dtype::bf16>(value)
                                                               : from_float<Dtype::fp16>(value);
    }
  }
};
// lse, of which exp(s - lse) is 0 for a query whose keys its bias hides.
__device__ __forceinline__ float shown_lse(float lse) {
  return lse == -INFINITY ? INFINITY : lse;
}

}  // namespace octet::cuda
