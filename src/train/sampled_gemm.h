// Some outputs of a GEMM, made again on a CPU with the bits of the card's tensor cores: of rows and
// columns that lie together, by a small GEMM of the same kind (plan/tensor_gemm.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plan/backend.h"
#include "runtime/bound_graph.h"

namespace octet {

// Copies bytes of an operand, as it lies, from the first one on.
using ReadOperand = std::function<void(size_t slot, int64_t first_byte, std::span<std::byte> to)>;

// Rows and columns from these on. Where scales are of blocks, they begin at a multiple of 128.
struct SamplePlace {
  int64_t row = 0, col = 0;
};

class SampledGemm {
 public:
  // A sample of n x n outputs, a multiple of 16. `cpu` has the card's sums (Target::arithmetic) and
  // outlives it. Nothing where these have no rule for the node, or n rows or columns of it another
  // one. An addend in y's own memory is added to the rounded sum, as cards do.
  enum class Addend : uint8_t { apart, in_y };
  static std::unique_ptr<SampledGemm> make(const Graph& graph, const Node& node, int64_t n,
                                           const Backend& cpu, Addend addend = Addend::apart);

  // Outputs as y stores them, row by row.
  std::vector<std::byte> compute(const ReadOperand& read, SamplePlace place);
  // The same of the GEMM's own y.
  std::vector<std::byte> read_y(const ReadOperand& read, SamplePlace place) const;
  int64_t k() const { return k_; }
  int64_t rows() const { return whole_.shape[0]; }
  int64_t cols() const { return whole_.shape[1]; }
  Dtype dtype() const { return whole_.dtype; }

 private:
  // An operand of the whole GEMM and of the small one.
  struct Operand {
    size_t slot;
    std::string name;
    TensorType whole, part;
  };
  SampledGemm(Graph graph, std::vector<Operand> operands, const Node& node, TensorType y,
              const Backend& cpu);
  std::vector<std::byte> part_of(const ReadOperand& read, const Operand& operand,
                                 SamplePlace place) const;
  std::vector<std::byte> scales_of(const ReadOperand& read, const Operand& scales,
                                   const Operand& factor, SamplePlace place) const;
  int64_t first_of(size_t slot, SamplePlace place) const;
  bool k_is_last(const Operand& factor) const;

  Graph graph_;
  std::vector<Operand> operands_;
  Node node_;
  TensorType whole_;
  int64_t n_ = 0, k_ = 0;
  BoundGraph bound_;
};

}  // namespace octet
