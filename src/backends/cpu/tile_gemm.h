// One product of fixed size on one thread: c [m, n] f32 (+)= a [m, k] b [k, n], with a and b both
// f32 or both bf16, a dense by rows and b in panels. A thin wrapper of oneDNN's matmul primitive:
// it accumulates in f32 and always gives the same bits.
//
// n is a multiple of kTileColumns and k of kTileDepth (callers pad with zeros), so that the library
// pads nothing itself. run() allocates nothing of ours and may be called by any number of threads
// with different `thread` numbers.
#pragma once

#include <cstddef>
#include <memory>

#include "backends/cpu/pack.h"

namespace octet::cpu {

inline constexpr int64_t kTileColumns = 64;
inline constexpr int64_t kTileDepth = 32;

struct TileShape {
  int64_t m = 0, n = 0, k = 0;
  Dtype dtype = Dtype::f32;  // f32 or bf16; bf16 only where bf16_compute_dtype() says so
  bool accumulate = false;
};

class TileGemm {
 public:
  TileGemm(const TileShape& shape, int n_threads);
  ~TileGemm();
  TileGemm(TileGemm&&) noexcept;
  TileGemm& operator=(TileGemm&&) noexcept;

  const TileShape& shape() const;
  // How b is laid out: n / width panels, one after another.
  const PanelLayout& panels() const;
  // Scratch of one thread, aligned to 64 bytes.
  size_t scratch_bytes() const;

  struct Buffers {
    const void* a = nullptr;
    const void* b = nullptr;
    float* c = nullptr;
    void* scratch = nullptr;
  };
  void run(int thread, const Buffers& buffers) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octet::cpu
