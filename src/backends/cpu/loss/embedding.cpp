#include "backends/cpu/loss/embedding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/loss/embedding.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/simd-inl.h"
#include "backends/cpu/elementwise/quantized_matrix.h"
#include "base/error.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

// y = the sum of the named rows of dy.
void SumRows(const EmbeddingBackward& a, Out y, const int32_t* begin, const int32_t* end,
             int64_t cols) {
  for_lanes(0, cols, [&](int64_t i, auto io) HWY_ATTR {
    VF s = zero();
    for (const int32_t* t = begin; t != end; ++t) {
      s = hn::Add(s, load(io, a.dy, static_cast<int64_t>(*t) * cols + i));
    }
    store(io, s, y, i);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(SumRows);

namespace {

constexpr int64_t kRows = 16;

void check_id(int32_t id, int64_t vocabulary) {
  if (id < 0 || id >= vocabulary) {
    throw Error(ErrorCode::bad_data, "[embedding] token must be below {}, got {}", vocabulary, id);
  }
}

}  // namespace

void embedding(In table, const int32_t* ids, Out y, const EmbeddingShape& shape, ThreadPool& pool) {
  for_blocks(pool, shape.tokens, kRows, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      check_id(ids[t], shape.vocabulary);
      convert_span(offset(table, ids[t] * shape.cols), shape.cols, offset(y, t * shape.cols));
    }
  });
}

void embedding_backward(const EmbeddingBackward& args, const EmbeddingShape& shape,
                        ThreadPool& pool) {
  // Counting sort of the tokens by id, stable, so that each row adds its tokens in their order.
  int32_t* const first = args.scratch;  // [vocabulary + 1]
  int32_t* const order = args.scratch + shape.vocabulary + 1;
  std::fill(first, first + shape.vocabulary + 1, 0);
  for (int64_t t = 0; t < shape.tokens; ++t) {
    check_id(args.ids[t], shape.vocabulary);
    ++first[args.ids[t] + 1];
  }
  for (int64_t v = 0; v < shape.vocabulary; ++v) first[v + 1] += first[v];
  for (int64_t t = 0; t < shape.tokens; ++t) {
    order[first[args.ids[t]]++] = static_cast<int32_t>(t);  // first[v] becomes the end of v
  }
  const auto kernel = HWY_DYNAMIC_DISPATCH(SumRows);
  for_blocks(pool, shape.vocabulary, kRows, [&](int64_t begin, int64_t end, int) {
    for (int64_t v = begin; v < end; ++v) {
      const int32_t from = v == 0 ? 0 : first[v - 1];
      kernel(args, offset(args.dtable, v * shape.cols), order + from, order + first[v], shape.cols);
    }
  });
}

}  // namespace octet::cpu
#endif
