// Products of windows of pictures (ir/ops/unfold.cpp, `convolution`) that are unfolded, or folded,
// a few pictures at a time, in the cache of the thread that multiplies them. The windows of a
// dgrad are f32.
//
// Same bits for any number of threads: the pictures of a task depend on the shape alone, and sums
// over tasks (wgrad) are added in their order. Scratch is the caller's; an instance is prepared
// once for a shape and launched often.
#pragma once

#include <memory>

#include "backends/cpu/elementwise/unfold.h"
#include "ir/attr_enums.h"

namespace octet::cpu {

struct ConvolutionSpec {
  Windows windows;  // of x
  int64_t n_out = 0;
  GemmRole role = GemmRole::forward;
  Dtype in = Dtype::f32, out = Dtype::f32;  // of both operands, and of the result: f32 or bf16

  int64_t window_rows() const { return windows.attrs.n_windows(0) * windows.attrs.n_windows(1); }
  int64_t window_elems() const { return windows.window_elems(); }
};

struct ConvolutionArgs {
  const void *a = nullptr, *b = nullptr;
  void* y = nullptr;
  void* scratch = nullptr;  // scratch_bytes of the threads, aligned to 64 bytes
};

class Convolution {
 public:
  Convolution(const ConvolutionSpec& spec, int n_threads);

  // Scratch of a launch on so many threads, however many the instance has.
  size_t scratch_bytes(int n_threads) const;
  void launch(const ConvolutionArgs& args, ThreadPool& pool) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // of copies too
};

}  // namespace octet::cpu
