#include "runtime/nonfinite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "formats/codec.h"
#include "ir/parse.h"
#include "unit/train/host_device.h"

namespace octet::nonfinite {
namespace {

template <typename T>
NonfiniteCount count(Dtype dtype, const std::vector<T>& values) {
  return count_nonfinite(dtype, std::as_bytes(std::span<const T>(values)));
}

// Every code of every format of 8 and 16 bits, against what it decodes to.
TEST(CountNonfinite, agrees_with_the_decoder_for_every_code) {
  for (const Dtype dtype : {Dtype::e4m3, Dtype::e5m2, Dtype::hif8, Dtype::e8m0, Dtype::de8s,
                            Dtype::de8u, Dtype::bf16, Dtype::fp16}) {
    const uint32_t n_codes = dtype_bytes(dtype) == 1 ? 256 : 65536;
    NonfiniteCount expected;
    std::vector<uint8_t> bytes;
    for (uint32_t code = 0; code < n_codes; ++code) {
      const float x = decode(dtype, code);
      if (!std::isfinite(x) && expected.first < 0) expected.first = code;
      expected.n_nan += std::isnan(x) ? 1 : 0;
      expected.n_inf += std::isinf(x) ? 1 : 0;
      bytes.push_back(static_cast<uint8_t>(code));
      if (n_codes > 256) bytes.push_back(static_cast<uint8_t>(code >> 8));
    }
    const NonfiniteCount got = count(dtype, bytes);
    EXPECT_EQ(got.n_nan, expected.n_nan) << dtype_name(dtype);
    EXPECT_EQ(got.n_inf, expected.n_inf) << dtype_name(dtype);
    EXPECT_EQ(got.first, expected.first) << dtype_name(dtype);
  }
}

TEST(CountNonfinite, of_f32_tells_nan_from_inf_and_of_integers_is_nothing) {
  const float inf = std::numeric_limits<float>::infinity();
  const NonfiniteCount got = count(Dtype::f32, std::vector<float>{1, -inf, std::nanf(""), inf});
  EXPECT_EQ(got.n_nan, 1);
  EXPECT_EQ(got.n_inf, 2);
  EXPECT_EQ(got.first, 1);
  EXPECT_FALSE(count(Dtype::i32, std::vector<uint32_t>{0x7FC00000u}).any());
}

// A kernel that writes zeros, and one Inf as its second element where it is told to.
class ZeroCatalogue : public Catalogue {
 public:
  explicit ZeroCatalogue(OpCode bad) : bad_(bad) {}
  std::optional<KernelChoice> choose(const Graph&, const Node&) const override {
    return KernelChoice{.name = "zero"};
  }
  LaunchFn prepare(const Graph& graph, const Node& node, const KernelChoice& /*choice*/) override {
    std::vector<size_t> n_bytes;
    for (const ValueId id : node.results)
      n_bytes.push_back(static_cast<size_t>(graph.type(id).n_bytes()));
    return [n_bytes, is_bad = node.op == bad_](const LaunchArgs& args) {
      for (size_t i = 0; i < n_bytes.size(); ++i) std::memset(args.results[i], 0, n_bytes[i]);
      const uint16_t inf = 0x7F80;
      if (is_bad) std::memcpy(args.results[0] + 2, &inf, 2);
    };
  }

 private:
  OpCode bad_;
};

const char* kGraph = R"(graph "g" phase typed
%0 = input parameter "w" : bf16[4,4]
%1 = input batch "x" : bf16[4,4]
%2 = exp(%1) : bf16[4,4]
%3 = mul(%2, %0) : bf16[4,4]
output "y" %3
)";

std::optional<NonfiniteSite> site_of(OpCode bad, uint16_t weight) {
  ZeroCatalogue catalogue(bad);
  const Graph graph = parse_graph(kGraph, "text");
  Layout layout;
  layout.add_inputs(graph);
  const Plan plan = make_plan(graph, layout, catalogue);
  test::HostDevice device;
  Arenas arenas(device, plan.arena_bytes);
  BoundPlan bound(plan, catalogue, arenas);
  std::vector<uint16_t> w(16, weight), x(16, 0);
  bound.write_input("w", w.data(), 32);
  bound.write_input("x", x.data(), 32);
  NonfiniteWatch watch(arenas);
  bound.run(watch.observer());
  return watch.site();
}

TEST(NonfiniteWatch, names_the_first_op_that_made_one) {
  const auto site = site_of(OpCode::exp, 0);
  ASSERT_TRUE(site.has_value());
  EXPECT_EQ(to_string(*site),
            "exp in the forward pass, made %2 bf16[4,4] with 1 Inf, the first at 1 (launch 0 of g, "
            "zero)");
}

TEST(NonfiniteWatch, names_an_output_of_the_graph) {
  const auto site = site_of(OpCode::mul, 0);
  ASSERT_TRUE(site.has_value());
  EXPECT_EQ(site->tensor, "y");
}

TEST(NonfiniteWatch, names_an_input_that_was_like_that_before) {
  const auto site = site_of(OpCode::neg, 0x7FC0);
  ASSERT_TRUE(site.has_value());
  EXPECT_EQ(to_string(*site),
            "w bf16[4,4] held 16 NaN, the first at 0, before mul in the forward pass, read it "
            "(launch 1 of g, zero)");
}

TEST(NonfiniteWatch, finds_nothing_where_all_is_finite) {
  EXPECT_FALSE(site_of(OpCode::neg, 0x3F80).has_value());
}

}  // namespace
}  // namespace octet::nonfinite
