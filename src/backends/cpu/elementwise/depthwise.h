// Depthwise convolutions of pictures [n, height, width, channels]: ir/ops/unfold.cpp has the
// equations and the order of all sums, which the kernels keep: same bits for any number of threads.
// f32 or bf16 storage for each operand; products and sums are f32 and rounded once.
#pragma once

#include <vector>

#include "backends/cpu/elementwise/unfold.h"

namespace octet::cpu {

// What is added up to each pixel of a picture of the result: of pixel i the pixel terms[k].pixel of
// the operand's picture, or zeros, times the weights of terms[k].place, from k = begins[i] up to
// begins[i + 1].
struct DepthwiseTerms {
  struct Term {
    int64_t pixel = -1, place = 0;  // -1: zeros
  };
  std::vector<Term> terms;
  std::vector<int64_t> begins;
  int64_t height = 0, width = 0;  // of the result's pictures
  int64_t n_source_pixels = 0;    // of an operand's picture
};
// Made once for a shape; windows of dy are the operand's pixels where pixels are the result's.
DepthwiseTerms depthwise_terms(const UnfoldAttrs& windows);
DepthwiseTerms depthwise_gradient_terms(const UnfoldAttrs& windows);

// Operands and result of the op. The scratch need not be initialised.
struct DepthwiseCall {
  In first = {}, second = {};
  Out result = {};
  float* scratch = nullptr;
};

// y of x and the weight, or dx of dy and the weight. Scratch: depthwise_weight_floats(windows).
int64_t depthwise_weight_floats(const Windows& windows);
void depthwise(const Windows& windows, const DepthwiseTerms& terms, const DepthwiseCall& call,
               ThreadPool& pool);

// dw [channels, window] of dy and x. Scratch: depthwise_sum_floats(windows).
int64_t depthwise_sum_floats(const Windows& windows);
void depthwise_weight_gradient(const Windows& windows, const DepthwiseCall& call, ThreadPool& pool);

}  // namespace octet::cpu
