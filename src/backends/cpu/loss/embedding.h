// Embedding rows: y[t] = table[id[t]], and the gradient dtable[v] = sum over the t with id[t] = v
// of dy[t], in the order of t, in f32, rounded once. Rows that no token names get zeros.
//   table, dtable: [vocabulary, cols]    y, dy: [tokens, cols]    ids: [tokens] i32
// Deterministic: a row of the table belongs to one tile. Throws bad_data on an id outside the
// vocabulary.
#pragma once

#include "backends/cpu/common/operand.h"

namespace octet::cpu {

struct EmbeddingShape {
  int64_t tokens = 0, vocabulary = 0, cols = 0;
};

void embedding(In table, const int32_t* ids, Out y, const EmbeddingShape& shape, ThreadPool& pool);

struct EmbeddingBackward {
  In dy = {};
  const int32_t* ids = nullptr;
  Out dtable = {};
  int32_t* scratch = nullptr;  // embedding_backward_scratch(shape) integers
};
void embedding_backward(const EmbeddingBackward& args, const EmbeddingShape& shape,
                        ThreadPool& pool);

constexpr int64_t embedding_backward_scratch(const EmbeddingShape& shape) {
  return shape.vocabulary + 1 + shape.tokens;
}

}  // namespace octet::cpu
