// Target that programs are planned for: what a back end's rows look at beside a node. It is told at
// the head of a plan, and a plan runs on no other (runtime/executor.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/arithmetic.h"

namespace octet {

struct KernelRow;

struct Target {
  std::string_view backend = {};       // cpu | cuda
  std::string_view architecture = {};  // of a CPU its instruction set, of a GPU its generation
  int capability = 0;                  // of a GPU: 10 major + minor
  std::string blas = {}, dnn = {};     // versions of libraries; empty: there is none
  bool assumed = false;                // no device was asked
  bool deterministic = false;          // scratch for kernels whose results repeat
  // True if products of 8-bit codes read only factors whose reduction is the contiguous axis
  // (passes/precision/quantize_linears.h).
  bool k_major = true;
  int n_threads = 0;  // of a CPU, for scratch of each
  int ranks = 1;      // that run the program together
  Arithmetic arithmetic = Arithmetic::own;
  // Tokens of all texts that fill the device while a KV cache is filled (infer/text_model.h).
  int64_t rows_to_fill = 256;
  std::span<const KernelRow* const> rows = {};  // all that the back end has; they outlive it
  // Rows that are struck, by op and name: "rms_norm codes".
  std::vector<std::string> without = {};

  // "cuda Hopper (9.0), cuBLASLt 13.1.0, cuDNN 9.19.0", what is assumed said so.
  std::string text() const;
};

}  // namespace octet
