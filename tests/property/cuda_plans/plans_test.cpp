// Plans for the GPU, made without one: every shipped run file with every recipe has a kernel for
// each of its nodes, and the 7B shape takes the memory that it should.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "backends/cuda/backend.h"
#include "base/error.h"
#include "compile/program.h"
#include "config/load.h"
#include "infer/model_spec.h"
#include "ir/op_def.h"
#include "passes/precision/recipe.h"
#include "plan/kernel_row.h"
#include "train/run_setup.h"

namespace octet::cuda_plans_plans_test {
namespace {

Backend& gpu() {
  static Backend backend = cuda::make_plan_backend({.n_threads = 1});
  return backend;
}
Backend& deterministic_gpu() {
  static Backend backend = cuda::make_plan_backend({.deterministic = true, .n_threads = 1});
  return backend;
}

// The run file with two layers, so that plans are quick; what it names on disk is not read.
ProgramOptions options_of(const std::string& path, std::vector<std::string> sets) {
  const RunConfig config = load_config(path, sets).config;
  return program_options(config, model_from_config(posix_files(), config));
}

std::vector<std::string> run_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(OCTET_SOURCE_DIR "/recipes")) {
    // These have the shape of a model folder which only their user has.
    if (!entry.is_regular_file()) continue;
    const std::string name = entry.path().filename();
    const bool names_model =
        name == "continue.yaml" || name.starts_with("finetune-") || name.starts_with("pictures-");
    if (!names_model) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

TEST(CudaPlans, have_kernels_for_loss_scaling_and_periodic_scales) {
  for (const char* recipe :
       {"{base: fp16, loss_scaling: adaptive}", "{base: hif8, scaling: none, loss_scaling: global}",
        "{base: hif8, compute: fp16, scaling: periodic, loss_scaling: adaptive, activations: "
        "hif8}"}) {
    for (const char* accumulate : {"1", "3"}) {
      Program program(options_of(OCTET_SOURCE_DIR "/recipes/llama-25m.yaml",
                                 {"model.layers=1", std::string("recipe=") + recipe,
                                  std::string("train.accumulate=") + accumulate}),
                      *gpu().catalogue);
      EXPECT_NO_THROW(program.planned_bytes()) << recipe;
    }
  }
}

TEST(CudaPlans, every_recipe_and_model_has_kernels_for_all_nodes) {
  int n_plans = 0;
  for (const std::string& file : run_files()) {
    for (const Recipe* recipe : all_recipes()) {
      if (recipe->unit_scales && file.find("llama-25m") == std::string::npos) continue;
      for (const char* accumulate : {"1", "3"}) {
        Program program(
            options_of(file, {"model.layers=2", "recipe.base=" + std::string(recipe->name),
                              std::string("train.accumulate=") + accumulate}),
            *gpu().catalogue);
        EXPECT_NO_THROW(program.planned_bytes()) << file << " " << recipe->name;
        for (const std::string_view name : program.train_functions()) {
          EXPECT_EQ(program.plan(name).near_misses, std::vector<std::string>{})
              << file << " " << recipe->name;
        }
        ++n_plans;
      }
    }
  }
  EXPECT_GE(n_plans, 80);
}

TEST(CudaPlans, products_of_f32_round_their_factors_where_the_run_says_so) {
  for (const bool tf32 : {false, true}) {
    Program program(options_of(OCTET_SOURCE_DIR "/recipes/llama-25m.yaml",
                               {"model.layers=2", "recipe.base=fp32",
                                std::string("recipe.tf32=") + (tf32 ? "true" : "false")}),
                    *gpu().catalogue);
    int n_gemms = 0;
    for (const Node& node : program.plan(function::step).graph.nodes) {
      if (node.op != OpCode::gemm) continue;
      EXPECT_EQ(std::get<GemmAttrs>(node.attrs).tf32, tf32);
      ++n_gemms;
    }
    EXPECT_GE(n_gemms, 2 * 7 * 3);
  }
}

// A quantizer that the target has no kernel for is not taken up, and the amax of its scale is.
TEST(CudaPlans, gradients_that_no_kernel_quantizes_are_measured_as_they_are_made) {
  Backend backend = cuda::make_plan_backend({.n_threads = 1});
  backend.catalogue->strike("gated_act_grad_quantize codes");
  Program program(options_of(OCTET_SOURCE_DIR "/recipes/llama-25m.yaml",
                             {"model.layers=1", "recipe.base=coat"}),
                  *backend.catalogue);
  int n_gradients = 0;
  for (const Node& node : program.plan(function::step).graph.nodes) {
    EXPECT_NE(node.op, OpCode::gated_act_grad_quantize);
    if (node.op != OpCode::gated_act_grad) continue;
    EXPECT_TRUE(emits_amax(node.attrs));
    ++n_gradients;
  }
  EXPECT_EQ(n_gradients, 1);
}

// Bytes of the whole 32-layer step, workspaces included.
double gib_7b(std::vector<std::string> sets) {
  const std::string file = OCTET_SOURCE_DIR "/recipes/llama-2-7b.yaml";
  Program program(options_of(file, std::move(sets)), *gpu().catalogue);
  return static_cast<double>(program.plan(function::step).peak_bytes()) / (1 << 30);
}

TEST(CudaPlans, coat_7b_fits_where_it_should) {
  EXPECT_LE(gib_7b({"train.batch=4", "optim.master=bf16_sr"}), 46);
  EXPECT_LE(gib_7b({"train.batch=4"}), 58);
  EXPECT_LE(gib_7b({"train.batch=8", "optim.master=bf16_sr"}), 62);
  EXPECT_LE(gib_7b({"train.batch=8"}), 75);
}

// Bytes of scratch of every op of the step of a run file's one-layer model.
std::map<OpCode, int64_t> scratch_of(Backend& backend, std::vector<std::string> sets) {
  sets.emplace_back("model.layers=1");
  Program program(options_of(OCTET_SOURCE_DIR "/recipes/llama-2-7b.yaml", std::move(sets)),
                  *backend.catalogue);
  const Plan& plan = program.plan(function::step);
  std::map<OpCode, int64_t> bytes;
  for (const PlanStep& step : plan.steps)
    bytes[plan.graph.node(step.node).op] += step.kernel.scratch_bytes;
  return bytes;
}

TEST(CudaPlans, a_deterministic_run_reserves_dp_for_the_gradient_of_attention_alone) {
  struct Case {
    std::vector<std::string> sets;
    int64_t more;
    int64_t instead = -1;  // of ours, sums of do * o alone
  };
  const int64_t gib = int64_t{1} << 30;
  const Case cases[] = {{{"train.batch=4"}, gib},
                        {{"train.batch=1", "model.seq=4096"}, gib},
                        {{"train.batch=16"}, 4 * gib},
                        {{"train.batch=17"}, 0, 4 * 17 * 32 * 2048},  // more than is ever reserved
                        {{"train.batch=4", "recipe.base=fp32"}, 0}};
  for (const Case& c : cases) {
    auto expected = scratch_of(gpu(), c.sets);
    int64_t& bytes = expected.at(OpCode::attention_grad);
    bytes = c.instead < 0 ? bytes + c.more : c.instead;
    EXPECT_EQ(scratch_of(deterministic_gpu(), c.sets), expected) << c.sets[0];
  }
}

TEST(CudaPlans, an_algorithm_that_no_run_recorded_is_refused) {
  const AutotunedChoice good{.problem = "p", .code = std::string(128, 'a')};
  EXPECT_NO_THROW(gpu().catalogue->use_autotune_cache({&good, 1}));
  for (const std::string& code : {std::string(), std::string(127, 'a'), std::string(128, 'g')}) {
    const AutotunedChoice bad{.problem = "p", .code = code};
    EXPECT_THROW(gpu().catalogue->use_autotune_cache({&bad, 1}), Error) << code;
  }
  EXPECT_TRUE(gpu().catalogue->autotune_cache().choices.empty());
}

// The kernels of a plan that are of this row ("gemm blocks").
int kernels_of(const Plan& plan, const std::string& row) {
  return static_cast<int>(std::ranges::count_if(
      plan.steps, [&](const PlanStep& step) { return row_key(*step.kernel.row) == row; }));
}

// The step of two layers of 7B.
const Plan& step_7b(Program& program) {
  return program.plan(function::step);
}
ProgramOptions options_7b(std::vector<std::string> sets) {
  sets.emplace_back("model.layers=2");
  return options_of(OCTET_SOURCE_DIR "/recipes/llama-2-7b.yaml", std::move(sets));
}

TEST(CudaPlans, products_in_blocks_are_the_librarys_where_it_has_them) {
  constexpr int kProducts = 2 * 7 * 3;  // layers, linears, and forward, dgrad, wgrad
  Program fp8_block(options_7b({"recipe.base=fp8_block"}), *gpu().catalogue);
  EXPECT_EQ(kernels_of(step_7b(fp8_block), "gemm blocks"), kProducts);
  EXPECT_EQ(kernels_of(step_7b(fp8_block), "gemm decoded"), 0);
  Program mxfp8(options_7b({"recipe.base=mxfp8"}), *gpu().catalogue);
  EXPECT_EQ(kernels_of(step_7b(mxfp8), "gemm blocks"), 0);
  EXPECT_EQ(kernels_of(step_7b(mxfp8), "gemm decoded"), kProducts);
}

// wgrad of the head in runs of rows: the last one adds to f32 and gives BF16.
TEST(CudaPlans, a_head_in_runs_of_rows_makes_its_last_sums_in_little_scratch) {
  Program program(options_7b({"train.head_chunk=16777216"}), *gpu().catalogue);
  const Plan& plan = step_7b(program);
  int n_own = 0;
  for (const PlanStep& step : plan.steps) {
    const Node& node = plan.graph.node(step.node);
    if (node.op != OpCode::gemm || node.in(Gemm::c) == kNoValue) continue;
    if (plan.graph.type(node.in(Gemm::c)).dtype == plan.graph.type(node.results[0]).dtype) continue;
    EXPECT_LE(step.kernel.scratch_bytes, int64_t{97} << 20) << step.kernel.name;
    ++n_own;
  }
  EXPECT_EQ(n_own, 1);
}

TEST(CudaPlans, attention_within_documents_and_windows_runs_on_tensor_cores) {
  struct Case {
    std::vector<std::string> sets;
    std::string row;
  };
  const std::string isolate = "data.document_boundaries=isolate", kind = "model.kind=mistral",
                    window = "model.sliding_window=64";
  const Case cases[] = {{{isolate}, "tensor cores"},
                        {{kind, window}, "cudnn"},
                        {{kind, "model.sliding_window=256"}, "cudnn"},  // as long as the row
                        {{kind, window, isolate}, "tensor cores"}};
  for (const Case& c : cases) {
    for (const Recipe* recipe : all_recipes()) {
      if (recipe->unit_scales && std::ranges::find(c.sets, window) != c.sets.end()) continue;
      std::vector<std::string> sets = c.sets;
      sets.push_back("model.layers=2");
      sets.push_back("recipe.base=" + std::string(recipe->name));
      Program program(options_of(OCTET_SOURCE_DIR "/recipes/llama-25m.yaml", sets),
                      *gpu().catalogue);
      const Plan& plan = program.plan(function::step);
      const std::string row = recipe->compute == Dtype::f32 ? "plain" : c.row;
      EXPECT_EQ(kernels_of(plan, "attention " + row), 2) << recipe->name;
      EXPECT_EQ(kernels_of(plan, "attention_grad " + row), 2) << recipe->name;
    }
  }
}

}  // namespace
}  // namespace octet::cuda_plans_plans_test
