// AdamW of many tensors that lie in the caller's memory: what is launched together, and the table
// that such a launch reads (optimizer_api.h says what each call does).
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "backends/cuda/kernels/adamw/adamw.h"

namespace octet::cuda {

class AdamwMany {
 public:
  // Throws ModuleError for a device that is not there or options that no kernel has.
  explicit AdamwMany(const OctetCudaOptimizerOptions& options);

  OctetCudaPlan plan(std::span<const OctetCudaWeight> weights);
  void place(void* table, OctetCudaControl* control, cudaStream_t stream);
  void write_numbers(std::span<const OctetCudaNumbers> numbers, cudaStream_t stream);
  void write_gradients(std::span<const uint64_t> addresses, cudaStream_t stream);
  void squares(cudaStream_t stream) const;
  void step(double clip, bool has_squares, cudaStream_t stream) const;
  void one_by_one(bool is_wanted);

  int device() const { return options_.device; }

 private:
  // Kinds of rows: those of one store and gradient for the kernel of expanded moments, 2 * store
  // and 1 for f32; any; and weights that have launches of their own.
  static constexpr size_t kAny = 8, kAlone = 9, kKinds = 10;
  struct Rows {
    std::vector<UpdateRow> row;
    std::vector<uint32_t> first_tile;
    size_t before = 0;  // rows of other kinds that lie before them
    uint32_t n_tiles = 0;
  };
  // Offsets of the parts of the table, in bytes.
  struct Layout {
    size_t numbers, weights, n, dtype, first_chunk, sums, gradients, scalars, rows, first_tile, end;
  };

  Layout layout_of() const;
  void check_weight(const OctetCudaWeight& weight) const;
  AdamwCall call_of(size_t weight) const;
  size_t kind_of(const AdamwCall& call) const;
  std::vector<size_t> kinds() const;
  void make_rows(cudaStream_t stream);
  void add_rows(size_t weight, Rows& rows, bool is_expanded) const;
  UpdateRows list_of(size_t kind) const;
  template <typename T>
  T* part(size_t offset) const {
    return reinterpret_cast<T*>(table_ + offset);
  }

  OctetCudaOptimizerOptions options_;
  int n_sm_ = 1;
  std::vector<OctetCudaWeight> weights_;
  std::vector<uint32_t> first_chunk_;
  uint32_t n_chunks_ = 0, n_numbers_ = 0;
  size_t most_rows_ = 0;
  Layout layout_{};
  std::byte* table_ = nullptr;
  OctetCudaControl* control_ = nullptr;
  std::vector<OctetCudaNumbers> numbers_;
  std::vector<uint64_t> gradients_;
  std::vector<size_t> kinds_;        // of each weight; empty: rows are to be made
  std::vector<AdamwPieces> pieces_;  // of those alone
  std::array<Rows, kKinds> rows_;
  bool is_each_alone_ = false;
};

}  // namespace octet::cuda
