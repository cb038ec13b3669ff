// FP16 operands and results on the kernels of f32: the exact product of the decoded operands,
// rounded once.
#include "backends/cpu/bind/widened.h"

#include <gtest/gtest.h>

#include "backends/cpu/backend.h"
#include "backends/cpu/common/isa.h"
#include "backends/cpu/common/operand.h"
#include "formats/codec.h"
#include "ir/builder.h"

namespace octet::cpu {
namespace {

constexpr int64_t kM = 5, kN = 70, kK = 33;

// Whole numbers over 8: every sum is exact in f32, so any order gives the same bits.
float value_at(int64_t i) {
  return static_cast<float>(i * 37 % 61 - 30) / 8;
}

std::vector<uint16_t> values(int64_t n, int64_t start) {
  std::vector<uint16_t> x(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    x[i] = static_cast<uint16_t>(encode<Dtype::fp16>(value_at(start + i), Rounding::near));
  }
  return x;
}

struct Product {
  Graph graph;
  Product() {
    graph.phase = Phase::typed;
    Builder builder(graph);
    const ValueId a =
        builder.input(InputKind::batch, "a", {.dtype = Dtype::fp16, .shape = {kM, kK}});
    const ValueId b =
        builder.input(InputKind::batch, "b", {.dtype = Dtype::fp16, .shape = {kN, kK}});
    GemmAttrs attrs;
    attrs.trans_b = true;
    builder.emit_typed(OpCode::gemm, attrs, {a, b}, {Dtype::fp16});
  }
};

TEST(widened, a_product_of_halves_is_exact_and_rounds_once) {
  Product product;
  const Node& node = product.graph.nodes.back();
  const auto a = values(kM * kK, 0), b = values(kN * kK, 7);
  for (const int n_threads : {1, 3}) {
    Backend backend = make_backend(n_threads, detect_isa());
    const auto choice = backend.catalogue->choose(product.graph, node);
    ASSERT_TRUE(choice.has_value());
    EXPECT_FALSE(choice->reference);
    const LaunchFn launch = backend.catalogue->prepare(product.graph, node);
    std::vector<uint16_t> y(kM * kN, 0xDEAD);
    std::vector<std::byte> scratch(static_cast<size_t>(choice->scratch_bytes) + 64);
    auto* const aligned =
        reinterpret_cast<std::byte*>(round_up(reinterpret_cast<int64_t>(scratch.data()), 64));
    auto bytes = [](const std::vector<uint16_t>& x) {
      return const_cast<std::byte*>(reinterpret_cast<const std::byte*>(x.data()));
    };
    std::byte* operands[] = {bytes(a), bytes(b)};
    std::byte* results[] = {bytes(y)};
    launch(LaunchArgs{.operands = operands, .results = results, .scratch = aligned});
    for (int64_t m = 0; m < kM; ++m) {
      for (int64_t n = 0; n < kN; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < kK; ++k) {
          sum += double{value_at(m * kK + k)} * double{value_at(7 + n * kK + k)};
        }
        ASSERT_EQ(y[m * kN + n], encode<Dtype::fp16>(static_cast<float>(sum), Rounding::near));
      }
    }
  }
}

TEST(widened, nodes_without_halves_are_not_touched) {
  Graph graph;
  graph.phase = Phase::typed;
  Builder builder(graph);
  const ValueId x = builder.input(InputKind::batch, "x", {.dtype = Dtype::f32, .shape = {4}});
  builder.add(x, x);
  const Target target{.rows = kernel_rows(Isa::avx2)};
  EXPECT_FALSE(WidenedNode::of({graph, graph.nodes.back(), target}).has_value());
}

}  // namespace
}  // namespace octet::cpu
