// No recipe on any family of models falls to a kernel that is far from the peak: on a CPU with
// vector instructions to the reference, on a GPU to one that goes element by element, or to
// attention without tensor cores. What does is told here, with the reason.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <set>

#include "backends/cpu/backend.h"
#include "backends/cuda/backend.h"
#include "base/error.h"
#include "compile/program.h"
#include "config/load.h"
#include "config/names.h"
#include "infer/model_spec.h"
#include "nn/model.h"
#include "plan/row_unavailable.h"
#include "property/fusion/run.h"
#include "property/recipes/tiny_training.h"
#include "property/rows/take_away.h"
#include "property/variant_options.h"
#include "train/run_setup.h"

namespace octet::rows_test {
namespace {

using Sets = std::vector<std::string>;

struct Exception {
  std::string_view op;     // a part of its name
  std::string_view types;  // a part of what the printed name has of them
  std::string_view reason;
};
constexpr Exception kExceptions[] = {
    {"attention", " f32 x f32 x f32", "tensor cores would round factors to TF32"},
    {"", "hif8:1x16", "the kernels of codes read E4M3"},
    {"", "e5m2:1x16", "the kernels of codes read E4M3"},
    {"_grad", " fp16 x e4m3:1x16", "BF16 alone goes with codes"},
    {"rms_norm_quantize", " e4m3:1x16 x fp16", "BF16 alone goes with codes"},
    {"_quantize", "-> e5m2:tensor", "layers store E4M3 and HiF8"},
    {"adamw_step", "-> fp16, e4m3", "weights are f32 or BF16 beside coded moments"},
};
constexpr int64_t kFewElements = 1024;  // which a kernel of any kind takes no time for
constexpr size_t kMaxExceptions = 12;
static_assert(std::size(kExceptions) <= kMaxExceptions);

const char* const kFamilies[] = {"llama",   "mistral", "qwen2", "qwen3",    "smollm3",
                                 "olmo",    "olmo2",   "gpt2",  "gpt_neox", "bert",
                                 "roberta", "vit",     "deit"};
// Choices that bring types of their own; a recipe takes those that it can.
const Sets kChoices[] = {{},
                         {"recipe.activations=hif8"},
                         {"recipe.activations=e5m2"},
                         {"recipe.activation_scale=tensor"},
                         {"recipe.compute=fp16"},
                         {R"(recipe.override={"*": {x: e5m2, w: e4m3/128x128, dy: hif8}})"},
                         {"recipe.scaling=delayed"},
                         {"recipe.override={'*.down_proj': {x: e4m3/1x128, w: e4m3/128x128}}"},
                         {"optim.state_m=e4m3+x", "optim.state_v=e4m3+x"},
                         {"optim.master=fp16_scaled"},
                         {"data.document_boundaries=isolate"}};

class SlowRows {
 public:
  // Rows of all functions of a run and, where the model writes text, of decoding.
  void look_at(const ProgramOptions& options, Catalogue& catalogue, const std::string& run,
               bool writes_text) {
    Program program(options, catalogue);
    for (const FunctionKey& key : rows::functions_of(program, options, writes_text)) {
      const Plan& plan = program.plan(key);
      for (const PlanStep& step : plan.steps) {
        ASSERT_NE(step.kernel.row, nullptr);
        const RowFacts& facts = step.kernel.row->facts;
        if (!facts.generic && !facts.reference) continue;
        const Node& node = plan.graph.node(step.node);
        if (facts.generic && plan.graph.type(node.operands[0]).n_elems() < kFewElements) continue;
        const std::string& kernel = step.kernel.name;
        const auto* known = std::ranges::find_if(kExceptions, [&](const Exception& e) {
          return facts.generic && row_key(*step.kernel.row).find(e.op) != std::string::npos &&
                 kernel.find(e.types) != std::string::npos;
        });
        if (known != std::end(kExceptions)) {
          used_.insert(known);
        } else {
          faults_.emplace(fmt::format("{} {}", catalogue.target().backend, kernel), run);
        }
      }
    }
  }

  void expect_none_but_all_exceptions() const {
    for (const auto& [kernel, run] : faults_) ADD_FAILURE() << kernel << ", in " << run;
    for (const Exception& e : kExceptions)
      EXPECT_TRUE(used_.contains(&e)) << "no longer there: " << e.op << ", " << e.types;
    std::cout << std::size(kExceptions) << " exceptions\n";
  }

 private:
  std::map<std::string, std::string> faults_;  // kernel -> a run that has it
  std::set<const Exception*> used_;
};

TEST(Rows, of_every_recipe_on_every_family_are_fast_but_for_the_exceptions) {
  Backend gpu = cuda::make_plan_backend({.n_threads = 1});
  std::optional<Backend> cpu;
  if (cpu::detect_isa() != cpu::Isa::scalar) cpu = cpu::make_backend(1, cpu::detect_isa());
  SlowRows rows;
  int n_runs = 0;
  for (const char* family : kFamilies) {
    const bool writes_text =
        std::ranges::any_of(models(), [&](const ModelDef* model) { return model->name == family; });
    for (const std::string& recipe : recipe_names()) {
      for (const Sets& choice : kChoices) {
        if (family != kFamilies[0] && !choice.empty()) break;
        const auto options = test::variant_options(family, recipe, choice);
        if (!options) continue;
        const std::string run = fmt::format("{} {} {}", family, recipe, fmt::join(choice, " "));
        rows.look_at(*options, *gpu.catalogue, run, writes_text);
        if (cpu) rows.look_at(*options, *cpu->catalogue, run, writes_text);
        ++n_runs;
      }
    }
  }
  EXPECT_GE(n_runs, 200);
  rows.expect_none_but_all_exceptions();
}

// Every row that a run uses, one at a time; here of a few recipes, in slow/rows of all.
TEST(Rows, may_be_taken_away_one_by_one) {
  for (const char* recipe : {"bf16", "coat", "fp8_block"}) {
    const auto options = test::variant_options("llama", recipe, {});
    ASSERT_TRUE(options.has_value());
    const rows::Counts gpu =
        rows::take_each_away(*options, [] { return cuda::make_plan_backend({.n_threads = 1}); });
    EXPECT_GE(gpu.planned, 4) << recipe;
    const rows::Counts cpu =
        rows::take_each_away(*options, [] { return cpu::make_backend(1, cpu::detect_isa()); });
    EXPECT_EQ(cpu.refused, 0) << recipe;
    EXPECT_GE(cpu.planned, 10) << recipe;
  }
}

// The CPU's kernels, one row of which is not there when it is prepared; what stands in for it needs
// more memory.
class RefusingCatalogue : public Catalogue {
 public:
  RefusingCatalogue(Catalogue& right, std::string row)
      : Catalogue(right.target()), right_(right), row_(std::move(row)) {}
  std::optional<KernelChoice> choose(const Graph& graph, const Node& node) const override {
    std::optional<KernelChoice> choice = right_.choose(graph, node);
    const bool stands_in = !target().without.empty() && row_.starts_with(op_def(node.op).name);
    if (choice && stands_in) choice->scratch_bytes += 4 << 20;
    return choice;
  }
  LaunchFn prepare(const Graph& graph, const Node& node, const KernelChoice& choice) override {
    if (row_key(*choice.row) == row_) throw RowUnavailable(row_, "a test");
    return right_.prepare(graph, node, choice);
  }
  void strike(std::string row) override {
    right_.strike(row);
    Catalogue::strike(std::move(row));
  }

 private:
  Catalogue& right_;
  std::string row_;
};

TEST(Rows, that_are_refused_when_they_are_prepared_are_planned_around) {
  if (cpu::detect_isa() == cpu::Isa::scalar) GTEST_SKIP() << "the reference is all there is";
  const ProgramOptions options = tiny::options("coat");
  const std::vector<float> expected = tiny::losses(options, 2);
  const Backend backend = cpu::make_backend(2, cpu::detect_isa());
  RefusingCatalogue refusing(*backend.catalogue, "rope simd");
  const auto found = tiny::losses_on({*backend.device, refusing}, options, 2, tiny::spec());
  EXPECT_TRUE(refusing.target().text().ends_with(", without rope simd"));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 0.02f);
}

// Chooses the reference wherever it applies.
class ReferenceCatalogue : public Catalogue {
 public:
  explicit ReferenceCatalogue(std::unique_ptr<Catalogue> own)
      : Catalogue(own->target()), own_(std::move(own)) {}
  std::optional<KernelChoice> choose(const Graph& graph, const Node& node) const override {
    const NodeView view{graph, node, target()};
    for (const KernelRow* row : target().rows) {
      if (row->op != node.op || !row->facts.reference || !row->applies(view)) continue;
      const int64_t scratch = row->scratch == nullptr ? 0 : row->scratch(view);
      return KernelChoice{.name = "reference", .scratch_bytes = scratch, .row = row};
    }
    return own_->choose(graph, node);
  }
  LaunchFn prepare(const Graph& graph, const Node& node, const KernelChoice& choice) override {
    return own_->prepare(graph, node, choice);
  }

 private:
  std::unique_ptr<Catalogue> own_;
};

TEST(Rows, that_the_plan_has_run_though_the_catalogue_would_choose_others) {
  if (cpu::detect_isa() == cpu::Isa::scalar) GTEST_SKIP() << "the reference is all there is";
  Backend handed = cpu::make_backend(2, cpu::detect_isa());
  handed.catalogue = std::make_unique<ReferenceCatalogue>(std::move(handed.catalogue));
  int n_different = 0;
  for (const op_cases::OpCase& c : op_cases::op_cases()) {
    if (c.op != OpCode::gemm && c.op != OpCode::reduce_sum && c.op != OpCode::exp) continue;
    const Graph graph = op_cases::case_graph(c, Dtype::f32);
    const auto own = fusion::fast_backend().catalogue->choose(graph, graph.nodes[0]);
    if (!own || own->reference) continue;
    const auto inputs = op_cases::case_inputs(c, 5);
    const auto reference = fusion::run_plan(graph, inputs, fusion::scalar_backend());
    fusion::expect_same(fusion::run_plan(graph, inputs, handed), reference, c.name);
    if (fusion::run_plan(graph, inputs, fusion::fast_backend()) != reference) ++n_different;
  }
  EXPECT_GT(n_different, 0);  // else nothing would be seen
}

}  // namespace
}  // namespace octet::rows_test
