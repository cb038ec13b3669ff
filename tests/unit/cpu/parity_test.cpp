// Every fast row of the CPU against the reference: each op case, each combination of f32, bf16 and
// fp16 that a row takes, each instruction set that this machine has, any number of threads.
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "backends/cpu/bind/binding.h"
#include "backends/cpu/elementwise/elementwise.h"
#include "ir/print.h"
#include "unit/cpu/kernels_support.h"
#include "unit/cpu/parity.h"
#include "unit/cpu/parity_cases.h"

namespace octet::cpu::parity {
namespace {

// Ops that are not named give the reference's bits.
const Bound kBounds[] = {
    {OpCode::gelu, 2e-7, {.specials = Special::nonfinite}},
    {OpCode::gelu_grad, 1e-6, {.floor = 1}},
    {OpCode::gated_act, 3e-7},
    {OpCode::gated_act_grad, 3e-7, {.codes = 1e-6}},
    {OpCode::axpby, 1e-7},
    {OpCode::rms_norm, 3e-6},
    {OpCode::layer_norm, 3e-6, {.floor = 1}},
    {OpCode::rms_norm_grad, 1e-5, {.floor = 1}},
    {OpCode::layer_norm_grad, 1e-5, {.floor = 1}},
    {OpCode::batch_norm, 3e-6, {.floor = 1}},
    {OpCode::batch_norm_grad, 1e-5, {.floor = 1}},
    {OpCode::fold, 1e-6},
    {OpCode::convolution, 3e-6},
    {OpCode::depthwise, 1e-6},
    {OpCode::bias_add, 1e-7},
    {OpCode::column_sum, 1e-6},
    {OpCode::reduce_sum, 1e-6},
    {OpCode::rope, 2e-7},
    {OpCode::embedding_grad, 1e-6},
    {OpCode::cross_entropy, 1e-6, {.floor = 8}},
    {OpCode::cross_entropy_grad, 2e-6, {.floor = 1}},
    {OpCode::gemm, 3e-6},
    {OpCode::batched_gemm, 3e-6},
    {OpCode::attention, 2e-6, {.bf16 = 6e-3, .specials = Special::none}},
    {OpCode::attention_grad, 4e-6, {.floor = 1, .bf16 = 1.2e-2, .specials = Special::none}},
    {OpCode::gated_delta, 3e-6, {.floor = 1, .specials = Special::none}},
    {OpCode::gated_delta_grad, 1e-5, {.floor = 1, .specials = Special::none}},
    {OpCode::rms_norm_quantize, 3e-6},
    {OpCode::layer_norm_quantize, 3e-6, {.floor = 1}},
    {OpCode::gated_act_quantize, 3e-7},
    {OpCode::gelu_quantize, 2e-7},
};

// Collectives are the same in both catalogues: RankSelfTest has them.
bool is_fast(const KernelRow& row) {
  return std::ranges::find(kernel_rows(Isa::scalar), &row) == kernel_rows(Isa::scalar).end();
}

// Elementwise ops only ever use either vectors or doubles; FP16 is looked at by itself.
bool is_due(const KernelRow& row) {
  const bool is_simd = row.name == "simd";
  const bool has_doubles = std::ranges::any_of(kernel_rows(Isa::avx2), [&](const KernelRow* other) {
    return other->op == row.op && other->name == "doubles";
  });
  const bool is_other = has_doubles && row.op != OpCode::rescale && is_simd != has_lanes(row.op);
  return is_fast(row) && row.name != "as f32" && !is_other;
}

class Parity {
 public:
  // The vectors of the ISA, and of those below the best one.
  explicit Parity(Isa isa)
      : vectors_(isa == detect_isa() ? "AVX"
                 : isa == Isa::avx2  ? "AVX2"
                                     : "AVX3") {
    for (const int n_threads : {3, 1, 2, 5, 8}) fast_.push_back(make_backend(n_threads, isa));
  }

  void check(const OpCase& c) {
    // They refuse tokens that a table has not.
    const bool is_lookup = c.op == OpCode::embedding || c.op == OpCode::embedding_grad;
    if (is_lookup && c.operands[1].fill == Fill::any_ids) return;
    const reference::Tensors inputs = case_inputs(c, 11);
    const auto* const found = std::ranges::find(kBounds, c.op, &Bound::op);
    const Bound* const bound = found == std::end(kBounds) ? nullptr : found;
    int64_t n = 0;
    for (const OperandCase& o : c.operands) n = std::max(n, o.absent ? 0 : o.type.n_elems());
    bool is_f32_fast = false;
    std::set<std::string> seen;
    for (const Types types : all_types(c, n >= 2048 ? 0 : n >= 500 ? 1 : 2)) {
      const auto graph = graph_of(c, types);
      if (!graph || !seen.insert(print(*graph)).second) continue;  // where types are no choice
      const auto choice = fast_[0].catalogue->choose(*graph, graph->nodes[0]);
      if (!choice) continue;
      const std::string what = fmt::format("{}: {}", c.name, choice->name);
      const bool is_f32 = types.bf16 == 0 && !types.fp16;
      is_f32_fast = is_f32_fast || (is_f32 && is_fast(*choice->row));
      if (choice->row->facts.reference && types.fp16 && is_f32_fast)
        faults += what + " is fast in f32 alone\n";
      if (!is_fast(*choice->row)) continue;
      chosen_.insert(choice->row);
      const Graph exact = *graph_of(c, types, bound != nullptr);
      bool is_first = true;
      for (const Special special : specials_of(bound, n > 5000, is_f32)) {
        const auto values = with_special(special, c, inputs);
        if (!values) continue;
        what_ = fmt::format("{}, special {}", what, static_cast<int>(special));
        compare(*graph, exact, *values, bound, n >= 2048 && is_first);
        if (n > 5000) break;
        is_first = false;
      }
    }
  }

  std::string faults;
  const std::set<const KernelRow*>& chosen() const { return chosen_; }

 private:
  void compare(const Graph& graph, const Graph& exact, const reference::Tensors& values,
               const Bound* bound, bool in_threads) {
    const auto inputs = stored(graph, values);
    const Launched want = launch(exact, inputs, scalar_);
    const OpDef& def = op_def(graph.nodes[0].op);
    const bool of_codes = std::ranges::any_of(graph.inputs, [&](const GraphInput& input) {
      return is_quantized(graph.type(input.value).dtype);
    });
    on_vectors([&](const std::string& target) {
      const Launched got = launch(graph, inputs, fast_[0]);
      if (!got.fault.empty()) tell(target, got.fault);
      for (size_t i = 0; i < got.results.size(); ++i) {
        const ValueId id = graph.nodes[0].results[i], exact_id = exact.nodes[0].results[i];
        if (id == kNoValue) continue;
        const TensorType& type = graph.type(id);
        const bool is_amax = def.amax_results > 0 && i == def.own_results();
        const std::string far = difference(
            type, values_of(type, got.results[i]),
            is_amax ? amax_of_stored(graph, got) : values_of(exact.type(exact_id), want.results[i]),
            is_amax ? nullptr : bound, of_codes);
        if (!far.empty()) tell(target, fmt::format("result {} {}", i, far));
      }
      if (!std::exchange(in_threads, false)) return;  // on one target
      for (size_t i = 1; i < fast_.size(); ++i) {
        if (launch(graph, inputs, fast_[i]).results != got.results)
          tell(target, fmt::format("other bits with {} threads", fast_[i].pool->n_threads()));
      }
    });
  }
  void on_vectors(const std::function<void(const std::string& target)>& body) const {
    for_each_target([&](const std::string& target) {
      if (target.starts_with(vectors_)) body(target);
    });
  }
  static Doubles amax_of_stored(const Graph& graph, const Launched& got) {
    double amax = 0;
    const Node& node = graph.nodes[0];
    for (size_t i = 0; i < op_def(node.op).amax_results; ++i) {
      for (const double x : values_of(graph.type(node.results[i]), got.results[i]))
        amax = std::isfinite(x) ? std::max(amax, std::abs(x)) : amax;
    }
    return {amax};
  }
  void tell(const std::string& target, const std::string& fault) {
    faults += fmt::format("{} {}, {}\n", what_, target, fault);
  }

  std::string_view vectors_;
  std::vector<Backend> fast_;
  Backend scalar_ = make_backend(1, Isa::scalar);
  std::set<const KernelRow*> chosen_;
  std::string what_;
};

const auto kAllCases = {&op_cases::op_cases, &sized_cases};

TEST(parity, of_every_fast_row_with_the_reference) {
  if (detect_isa() == Isa::scalar) GTEST_SKIP() << "there is the reference alone";
  Parity parity(detect_isa());
  for (const auto& cases : kAllCases) {
    for (const OpCase& c : cases()) parity.check(c);
  }
  EXPECT_EQ(parity.faults, "");
  for (const KernelRow* row : kernel_rows(detect_isa())) {
    EXPECT_TRUE(!is_due(*row) || parity.chosen().contains(row)) << row_key(*row) << " has no case";
  }
}

constexpr OpCode kWithLibrary[] = {OpCode::gemm, OpCode::batched_gemm, OpCode::attention,
                                   OpCode::attention_grad};

// The library's limit is of a process.
void run_products(Isa isa) {
  limit_isa(isa);
  Parity parity(isa);
  for (const auto& cases : kAllCases) {
    for (const OpCase& c : cases()) {
      if (std::ranges::count(kWithLibrary, c.op) > 0) parity.check(c);
    }
  }
  std::cerr << parity.faults << parity.chosen().size() << " rows\n";
  std::exit(parity.faults.empty() ? 0 : 1);
}

TEST(parity, of_products_and_attention_on_lesser_instruction_sets) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    if (isa >= detect_isa()) break;
    EXPECT_EXIT(run_products(isa), testing::ExitedWithCode(0), "") << isa_name(isa);
  }
}

TEST(widened, nodes_without_halves_are_not_touched) {
  Graph graph;
  graph.phase = Phase::typed;
  Builder builder(graph);
  const ValueId x = builder.input(InputKind::batch, "x", {.dtype = Dtype::f32, .shape = {4}});
  builder.add(x, x);
  const Target target{.rows = kernel_rows(Isa::avx2)};
  const Binding& row = widened_bindings()[static_cast<size_t>(OpCode::add)];
  EXPECT_FALSE(row.row.applies({graph, graph.nodes.back(), target}));
}

}  // namespace
}  // namespace octet::cpu::parity
