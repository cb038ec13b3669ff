// The gated delta rule's kernels at sizes that the op cases do not have, against the CPU's
// reference: heads of Qwen3.5's size and others, several chunks, documents that begin anywhere, and
// states that go on from call to call. Decays are a hundredth of the op cases', so that chunks feel
// those before them.
#include <bit>
#include <cmath>
#include <limits>

#include "gpu/attention/compare.h"
#include "gpu/parity/gpu.h"
#include "gpu/parity/table.h"
#include "plan/kernel_row.h"

namespace octet::fusion {
namespace {

struct DeltaSize {
  int64_t batch, seq, key_heads, heads, key_dim, value_dim;
  int64_t rows() const { return batch * seq; }
};

// 64, 128 and 256 are the widths of tiles; 63 to 65, and others, fill chunks or do not.
constexpr DeltaSize kDeltaSizes[] = {{1, 130, 1, 1, 128, 128}, {2, 65, 1, 2, 64, 64},
                                     {1, 64, 1, 1, 100, 72},   {1, 191, 1, 1, 16, 130},
                                     {1, 70, 1, 1, 256, 40},   {1, 100, 2, 4, 33, 7}};

std::vector<OperandCase> delta_operands(const DeltaSize& s, bool has_documents) {
  std::vector<OperandCase> all = {
      tensor({s.rows(), s.key_heads * s.key_dim}), tensor({s.rows(), s.key_heads * s.key_dim}),
      tensor({s.rows(), s.heads * s.value_dim}), tensor({s.rows(), s.heads}, Fill::negative),
      tensor({s.rows(), s.heads}, Fill::positive)};
  if (has_documents) all.push_back(integers({s.rows()}, Fill::doc_starts, s.seq));
  return all;
}
OpCase delta_case(const DeltaSize& s, bool has_documents) {
  return {
      .name = fmt::format("gated_delta {} x {} {} x {}", s.batch, s.seq, s.key_dim, s.value_dim),
      .op = OpCode::gated_delta,
      .attrs = GatedDeltaAttrs{.batch = s.batch, .key_heads = s.key_heads},
      .operands = delta_operands(s, has_documents),
      .typed_only = true};
}
OpCase delta_grad_case(const DeltaSize& s, bool has_documents) {
  OpCase c = delta_case(s, has_documents);
  c.op = OpCode::gated_delta_grad;
  c.operands.insert(c.operands.begin(), tensor({s.rows(), s.heads * s.value_dim}));
  return c;
}
OpCase delta_state_case(const DeltaSize& s) {
  OpCase c = delta_case(s, false);
  c.operands.push_back(none());
  c.operands.push_back(tensor({s.batch, s.heads, s.key_dim, s.value_dim}));
  return c;
}

// Inputs with decays as small as a model's.
Tensors delta_inputs(const OpCase& c) {
  Tensors inputs = case_inputs(c, 5);
  const bool is_gradient = c.op == OpCode::gated_delta_grad;
  const SlotId slot =
      is_gradient ? SlotId{GatedDeltaGrad::log_decay} : SlotId{GatedDelta::log_decay};
  for (double& x : inputs.at(fmt::format("in{}", slot)))
    x = static_cast<float>(static_cast<uint16_t>(std::abs(x) * 64)) * -0x1p-13f;
  return inputs;
}

std::string_view delta_row(const Graph& graph, Backend& backend) {
  const auto choice = backend.catalogue->choose(graph, graph.nodes.front());
  return choice ? choice->row->name : "none";
}

// GPUs with less shared memory than Hopper's take the decomposition of some sizes.
bool has_delta_row(const Graph& graph, Backend& gpu) {
  const bool has_row = delta_row(graph, gpu) != "none";
  EXPECT_TRUE(has_row || gpu.catalogue->target().capability != 90) << print(graph);
  return has_row;
}

void expect_delta_near(const OpCase& c, Dtype dtype, Backend& gpu) {
  const Graph graph = case_graph(c, dtype);
  if (!has_delta_row(graph, gpu)) return;
  const Tensors inputs = delta_inputs(c);
  const double error = largest_error(run_plan(graph, inputs, gpu), run_reference(graph, inputs));
  EXPECT_LE(error, dtype == Dtype::f32 ? 5e-6 : 0x1p-8)
      << c.name << " on " << delta_row(graph, gpu);
}

TEST(GatedDelta, is_near_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const DeltaSize& size : kDeltaSizes) {
    for (const bool has_documents : {false, true}) {
      expect_delta_near(delta_case(size, has_documents), Dtype::f32, *gpu);
      expect_delta_near(delta_grad_case(size, has_documents), Dtype::f32, *gpu);
    }
  }
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16}) {
    expect_delta_near(delta_case(kDeltaSizes[1], true), dtype, *gpu);
    expect_delta_near(delta_grad_case(kDeltaSizes[1], true), dtype, *gpu);
  }
}

TEST(GatedDelta, of_a_state_is_near_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const DeltaSize& size : kDeltaSizes) {
    DeltaSize one = size;
    one.seq = 1;
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      expect_delta_near(delta_state_case(size), dtype, *gpu);
      expect_delta_near(delta_state_case(one), dtype, *gpu);
    }
  }
}

TEST(GatedDelta, has_kernels_for_keys_of_256_and_its_steps_for_more) {
  OCTET_GPU_OR_SKIP(gpu);
  const auto row = [&](int64_t key_dim, int64_t seq) {
    const DeltaSize size{1, seq, 1, 1, key_dim, 64};
    return delta_row(case_graph(delta_state_case(size), Dtype::f32), *gpu);
  };
  EXPECT_EQ(row(256, 1), "one token");
  EXPECT_EQ(row(257, 1), "none");
  if (gpu->catalogue->target().capability != 90) return;
  EXPECT_EQ(row(256, 2), "chunks");
  EXPECT_EQ(row(257, 2), "none");
  const OpCase gradient = delta_grad_case({1, 70, 1, 1, 256, 64}, false);
  EXPECT_EQ(delta_row(case_graph(gradient, Dtype::f32), *gpu), "chunks");
}

TEST(GatedDelta, repeats_its_bits) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const OpCase& c :
       {delta_case(kDeltaSizes[1], true), delta_grad_case(kDeltaSizes[1], true)}) {
    const Graph graph = case_graph(c, Dtype::f32);
    if (!has_delta_row(graph, *gpu)) continue;
    const Tensors inputs = delta_inputs(c), first = run_plan(graph, inputs, *gpu);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(run_plan(graph, inputs, *gpu), first) << c.name;
  }
}

// What is not a number stays in its head, and reaches what comes behind it there.
TEST(GatedDelta, keeps_nan_in_its_head) {
  OCTET_GPU_OR_SKIP(gpu);
  const DeltaSize size{1, 70, 2, 2, 16, 8};
  const OpCase c = delta_case(size, false);
  const Graph graph = case_graph(c, Dtype::f32);
  if (!has_delta_row(graph, *gpu)) return;
  Tensors inputs = delta_inputs(c);
  // NaN as a CPU makes it, and as a card does.
  const double card_nan = std::bit_cast<float>(0x7FFFFFFFu);
  for (const double special : {HUGE_VAL, std::numeric_limits<double>::quiet_NaN(), card_nan}) {
    const Tensors clean = run_plan(graph, delta_inputs(c), *gpu);
    inputs.at(fmt::format("in{}", SlotId{GatedDelta::v}))[static_cast<size_t>(size.value_dim)] =
        special;
    const std::vector<double> got = run_plan(graph, inputs, *gpu).at("out0");
    const std::vector<double>& want = clean.at("out0");
    for (size_t i = 0; i < got.size(); ++i) {
      const bool is_second = i / static_cast<size_t>(size.value_dim) % 2 == 1;
      if (is_second) continue;
      EXPECT_EQ(got[i], want[i]) << i;
    }
    EXPECT_FALSE(std::isfinite(got[got.size() - static_cast<size_t>(size.value_dim)]));
  }
}

}  // namespace
}  // namespace octet::fusion
