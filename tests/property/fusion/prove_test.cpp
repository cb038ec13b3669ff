// Differences that `octet doctor --prove` allows where terms cancel: rounding of the magnitudes
// that are added, and no fault.
#include "train/prove_kernels.h"

#include "base/error.h"
#include "run.h"
#include "train/prove_bounds.h"

namespace octet::fusion::proof {
namespace {

constexpr int64_t kRows = 96, kColumns = 48;

// Kernels of another catalogue, which then add a number to element 0 of their first result.
class FaultyCatalogue : public Catalogue {
 public:
  FaultyCatalogue(std::unique_ptr<Catalogue> own, float fault)
      : Catalogue(own->target()), own_(std::move(own)), fault_(fault) {}
  std::optional<KernelChoice> choose(const Graph& graph, const Node& node) const override {
    return own_->choose(graph, node);
  }
  LaunchFn prepare(const Graph& graph, const Node& node, const KernelChoice& choice) override {
    return [launch = own_->prepare(graph, node, choice), fault = fault_](const LaunchArgs& args) {
      launch(args);
      for (std::byte* const result : args.results) {
        if (result == nullptr) continue;
        reinterpret_cast<float*>(result)[0] += fault;
        return;
      }
    };
  }

 private:
  std::unique_ptr<Catalogue> own_;
  float fault_;
};

// A library that has no algorithm with the sums that its catalogue asks for.
class RefusingCatalogue : public Catalogue {
 public:
  explicit RefusingCatalogue(std::unique_ptr<Catalogue> own)
      : Catalogue(own->target()), own_(std::move(own)) {}
  void set_arithmetic(Arithmetic arithmetic) override { target_.arithmetic = arithmetic; }
  std::optional<KernelChoice> choose(const Graph& graph, const Node& node) const override {
    return own_->choose(graph, node);
  }
  LaunchFn prepare(const Graph& graph, const Node& node, const KernelChoice& choice) override {
    if (target().arithmetic != Arithmetic::own)
      throw Error(ErrorCode::device, "none of 2 algorithms adds so");
    return own_->prepare(graph, node, choice);
  }

 private:
  std::unique_ptr<Catalogue> own_;
};

struct Input {
  std::string name;
  TensorType type;
  std::vector<float> values = {};
};
struct Case {
  const char* name;
  OpCode op;
  Attrs attrs;
  std::vector<Input> inputs;
};

// Numbers whose columns sum to 0 but for the rounding of the last row.
std::vector<float> cancelling() {
  const RandomStream random{.name = 3};
  std::vector<float> x(static_cast<size_t>(kRows * kColumns));
  random.normals(x);
  for (size_t column = 0; column < kColumns; ++column) {
    double sum = 0;
    for (size_t at = column; at < x.size() - kColumns; at += kColumns) sum += x[at];
    x[x.size() - kColumns + column] = static_cast<float>(-sum);
  }
  return x;
}
std::vector<float> same_rows() {
  std::vector<float> x(static_cast<size_t>(kRows * kColumns));
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.3F + 0.1F * static_cast<float>(i % kColumns);
  return x;
}

std::vector<Case> cases() {
  const TensorType matrix{Dtype::f32, {kRows, kColumns}}, row{Dtype::f32, {kColumns}},
      column{Dtype::f32, {kRows}};
  const std::vector<float> dy = cancelling(), x = same_rows();
  const auto all = [](int64_t n, float value) {
    return std::vector<float>(static_cast<size_t>(n), value);
  };
  return {
      {"column sum", OpCode::column_sum, NoAttrs{}, {{"x", matrix, dy}}},
      {"reduce_sum", OpCode::reduce_sum, AxesAttrs{.axes = {0}}, {{"x", matrix, dy}}},
      {"wgrad", OpCode::gemm, GemmAttrs{.trans_a = true}, {{"a", matrix, dy}, {"b", matrix, x}}},
      {"norm's gradient",
       OpCode::layer_norm_grad,
       NormAttrs{},
       {{"dy", matrix, dy},
        {"x", matrix, x},
        {"mean", column, all(kRows, 0.4F)},
        {"rstd", column, all(kRows, 2.0F)},
        {"w", row, all(kColumns, 1.5F)}}},
  };
}

Backend faulty_device(float fault) {
  Backend device = cpu::make_backend(2, cpu::detect_isa());
  device.catalogue = std::make_unique<FaultyCatalogue>(std::move(device.catalogue), fault);
  return device;
}

// Throws where a kernel of the device is wrong.
KernelProofs prove_on(const Backend& device, const Backend& reference, const Case& c) {
  Graph graph;
  graph.phase = Phase::lowered;
  Builder b(graph);
  ValueIds operands;
  for (const Input& input : c.inputs)
    operands.push_back(b.input(InputKind::batch, input.name, input.type));
  const ValueIds results = b.emit(c.op, c.attrs, operands);
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] != kNoValue) b.output("y" + std::to_string(i), results[i]);
  }
  KernelProofs proofs;
  const Prover prover{device, reference, proofs};
  ProvingCatalogue catalogue(prover);
  Layout layout;
  layout.add_inputs(graph);
  const Plan plan = make_plan(graph, layout, catalogue);
  Arenas arenas(*reference.device, plan.arena_bytes);
  BoundPlan bound(plan, catalogue, arenas);
  for (const Input& input : c.inputs)
    bound.write_input(input.name, input.values.data(),
                      static_cast<int64_t>(input.values.size() * sizeof(float)));
  bound.run();
  EXPECT_EQ(proofs.size(), 1u) << c.name;
  return proofs;
}
void prove(const Case& c, float fault) {
  prove_on(faulty_device(fault), scalar_backend(), c);
}

TEST(Prove, sums_that_cancel_may_be_off_by_the_rounding_of_what_is_added) {
  for (const Case& c : cases()) EXPECT_NO_THROW(prove(c, 0)) << c.name;
}

// The columns' magnitudes sum to about 77, of which 2e-5 are 0.0015.
TEST(Prove, faults_in_sums_that_cancel_are_found) {
  for (const Case& c : cases()) EXPECT_THROW(prove(c, 0.05F), Error) << c.name;
}

// A GEMM whose sums no algorithm has is proved within a bound, in a line that says so; the faults
// of one are still found.
TEST(Prove, gemms_without_the_cards_sums_are_proved_within_a_bound) {
  const Case wgrad = cases()[2];
  const auto refusing = [&](float fault) {
    Backend device = faulty_device(fault);
    device.catalogue = std::make_unique<RefusingCatalogue>(std::move(device.catalogue));
    device.catalogue->set_arithmetic(Arithmetic::hopper);
    return device;
  };
  Backend reference = cpu::make_backend(1, cpu::Isa::scalar);
  reference.catalogue->set_arithmetic(Arithmetic::hopper);
  const Backend device = refusing(0);
  const KernelProofs proofs = prove_on(device, reference, wgrad);
  EXPECT_TRUE(proofs.begin()->first.ends_with(", sums of its own")) << proofs.begin()->first;
  const KernelProof& proof = proofs.begin()->second;
  EXPECT_EQ(proof.n_nodes, 1);
  EXPECT_EQ(proof.why_near, "within 2e-05 of the largest result: none of 2 algorithms adds so");
  EXPECT_EQ(device.catalogue->target().arithmetic, Arithmetic::hopper);
  EXPECT_THROW(prove_on(refusing(0.05F), reference, wgrad), Error);
}

}  // namespace
}  // namespace octet::fusion::proof
