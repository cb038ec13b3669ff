// Eight bits are real: what a GEMM reads from the arena while a step runs are codes, and they are
// the quantizer's of the unquantized value that lies there too.
#include <gtest/gtest.h>

#include <cstring>

#include "backends/cpu/reference/reference.h"
#include "property/recipes/tiny_training.h"

namespace octet::recipes_codes_test {
namespace {

// A quantize step seen while it ran: its source in BF16, its scale and the codes in the arena.
struct Seen {
  std::string what;
  QuantizeAttrs attrs;
  Dtype dtype;
  std::vector<double> source = {};
  float scale = 0;
  std::vector<uint8_t> codes = {};
};

class Watch {
 public:
  explicit Watch(Arenas& arenas) : arenas_(arenas) {}

  void operator()(const Plan& plan, const PlanStep& step, bool before) {
    const Node& node = plan.graph.node(step.node);
    if (before || node.tag.layer < 0) return;
    if (node.op == OpCode::quantize || node.op == OpCode::quantize_both)
      see(plan, node, std::get<QuantizeAttrs>(node.attrs), node.in(Quantize::scale));
    if (node.op == OpCode::amax_quantize) {
      ++n_own_scales;
      see(plan, node, std::get<AmaxQuantizeAttrs>(node.attrs).q, node.out(AmaxQuantize::scale));
    }
    if (node.op == OpCode::gemm) {
      ++n_gemms;
      for (const SlotId i : {Gemm::a, Gemm::b}) {
        const TensorType& type = plan.graph.type(node.in(i));
        EXPECT_EQ(dtype_bytes(type.dtype), 1);
        EXPECT_EQ(bytes_of(plan, node.in(i)), type.n_stored());
      }
    }
  }

  std::vector<Seen> seen;
  int n_gemms = 0, n_own_scales = 0;

 private:
  static int64_t bytes_of(const Plan& plan, ValueId id) { return buffer(plan, id).bytes; }
  static const Buffer& buffer(const Plan& plan, ValueId id) {
    return plan.buffers[static_cast<size_t>(plan.buffer_of[static_cast<size_t>(id)])];
  }
  const std::byte* at(const Plan& plan, ValueId id) {
    return arenas_.arena(buffer(plan, id).arena) + buffer(plan, id).offset;
  }

  void see(const Plan& plan, const Node& node, const QuantizeAttrs& attrs, ValueId scale) {
    Seen s{
        .what = fmt::format("layer {} {} {}", node.tag.layer, node.tag.origin,
                            plan.graph.input_of(node.in(Quantize::x)) != nullptr ? "weight" : "x"),
        .attrs = attrs,
        .dtype = plan.graph.type(node.out(Quantize::q)).dtype};
    const TensorType& source = plan.graph.type(node.in(Quantize::x));
    s.source.resize(static_cast<size_t>(source.n_elems()));
    reference::load(source.dtype, at(plan, node.in(Quantize::x)), s.source);
    std::memcpy(&s.scale, at(plan, scale), sizeof(float));
    const auto* codes = reinterpret_cast<const uint8_t*>(at(plan, node.out(Quantize::q)));
    s.codes.assign(codes, codes + plan.graph.type(node.out(Quantize::q)).n_stored());
    if (!plan.graph.type(node.out(Quantize::q)).layout.transposed) seen.push_back(std::move(s));
  }

  Arenas& arenas_;
};

double decoded(Dtype dtype, uint8_t code) {
  double value = 0;
  const auto byte = static_cast<std::byte>(code);
  reference::load(dtype, &byte, {&value, 1});
  return value;
}

class Codes : public testing::TestWithParam<const char*> {};

TEST_P(Codes, lie_in_the_arena_and_decode_to_the_rounded_source) {
  const ProgramOptions options = tiny::options(GetParam());
  TrainEngine engine(options, *tiny::backend().device, *tiny::backend().catalogue);
  tiny::start(engine);
  Watch watch(engine.arenas());
  engine.observe([&](const Plan& p, const PlanStep& s, bool before) { watch(p, s, before); });
  const Batch batch = tiny::batch(options.train, 0);
  engine.step({&batch, 1}, tiny::scalars(0));
  EXPECT_EQ(watch.n_gemms, 2 * 7 * 3);
  EXPECT_GT(watch.n_own_scales, 0);
  int n_weights = 0;
  for (const Seen& s : watch.seen) {
    n_weights += s.what.ends_with("weight") ? 1 : 0;
    ASSERT_EQ(s.source.size(), s.codes.size());
    double amax = 0;
    for (size_t i = 0; i < s.codes.size(); ++i) {
      const auto scaled = static_cast<float>(s.source[i]) * (1 / s.scale);
      EXPECT_EQ(decoded(s.dtype, s.codes[i]),
                reference::round_to(s.dtype, static_cast<double>(scaled)))
          << s.what << " [" << i << "]";
      amax = std::max(amax, std::fabs(decoded(s.dtype, s.codes[i])));
    }
    // The largest member of its group reaches the target; the others stay below it.
    EXPECT_LE(amax, s.attrs.target * 1.07) << s.what;
    EXPECT_GT(amax, 0) << s.what;
  }
  EXPECT_GE(n_weights, 2 * 7);
}

INSTANTIATE_TEST_SUITE_P(EightBit, Codes, testing::Values("fp8_linear", "coat", "hif8"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace octet::recipes_codes_test
