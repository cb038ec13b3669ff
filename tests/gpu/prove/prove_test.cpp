// `octet doctor --prove`: the GPU's kernels are proved for every recipe, and one that leaves out
// its blocks, or the last of them, is found.
#include "train/prove_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "backends/cpu/backend.h"
#include "base/error.h"
#include "base/files.h"
#include "config/load.h"
#include "gpu/parity/gpu.h"
#include "gpu/prove/faults.h"
#include "infer/model_spec.h"
#include "train/prove_products.h"

namespace octet::prove_test {
namespace {

struct ProveCase {
  const char* name;
  std::vector<std::string> sets;
};
std::ostream& operator<<(std::ostream& out, const ProveCase& c) {
  return out << c.name;
}

RunConfig config_of(const ProveCase& c) {
  return load_config(OCTET_SOURCE_DIR "/recipes/llama-3m.yaml", c.sets).config;
}

// With the sums of the GPU's tensor cores, where a rule is known.
const Backend& reference_of(const Backend& gpu) {
  static const Backend scalar = [&] {
    Backend backend = cpu::make_backend(2, cpu::Isa::scalar);
    if (gpu.catalogue->target().capability == capability_of(Arithmetic::hopper))
      backend.catalogue->set_arithmetic(Arithmetic::hopper);
    return backend;
  }();
  return scalar;
}

// Whose reference has the order and the functions of the kernel (backends/cpu/reference/card.h).
bool is_exact(const std::string& kernel) {
  const auto is_of = [&](std::string_view op) { return kernel.starts_with(std::string(op) + " "); };
  constexpr std::string_view kOps[] = {"rms_norm",
                                       "rms_norm_quantize",
                                       "layer_norm",
                                       "layer_norm_quantize",
                                       "rms_norm_grad",
                                       "layer_norm_grad",
                                       "quantize",
                                       "amax_quantize",
                                       "gemm",
                                       "gated_act",
                                       "gated_act_quantize",
                                       "gated_act_grad",
                                       "gated_act_grad_quantize",
                                       "gelu",
                                       "gelu_quantize",
                                       "gelu_grad",
                                       "rope",
                                       "cross_entropy",
                                       "cross_entropy_grad",
                                       "global_norm"};
  return std::ranges::any_of(kOps, is_of);
}

class Prove : public testing::TestWithParam<ProveCase> {};

TEST_P(Prove, finds_every_planned_kernel_right) {
  OCTET_GPU_OR_SKIP(gpu);
  const RunConfig config = config_of(GetParam());
  const ModelSpec spec = model_from_config(posix_files(), config);
  KernelProofs proofs;
  prove_run(config, spec, {*gpu, reference_of(*gpu), proofs});
  for (const std::string& kernel : planned_kernels(config, spec, *gpu->catalogue))
    EXPECT_GT(proofs[kernel].n_nodes, 0) << kernel;
  if (gpu->catalogue->target().capability != capability_of(Arithmetic::hopper)) return;
  for (const auto& [kernel, proof] : proofs) {
    const bool is_update = GetParam().name == std::string("exact") && kernel.starts_with("adamw");
    if (is_exact(kernel) || is_update) EXPECT_EQ(proof.n_other, 0) << kernel;
  }
}

// Each kernel on its first node, at the first size.
class Faults {
 public:
  void try_each(const std::string& kernel, const std::function<void()>& prove) {
    prove();
    if (!tried_.insert(kernel).second) return;
    try_one(kernel, all, prove);
    try_one(kernel, last, prove);
    if (kernel.find("fp8 ") == std::string::npos) return;
    for (const Omitted what : {last_factors, promotion, one_bit}) {
      const bool is_found = finds(kernel, what, prove);
      if (omit(none) == 0) continue;  // sums of one chain are the same promoted
      EXPECT_TRUE(is_found) << kernel << ", fault " << what;
      ++n_wrong_products_[what];
    }
  }
  int n_wrong_products(Omitted what) const {
    const auto found = n_wrong_products_.find(what);
    return found == n_wrong_products_.end() ? 0 : found->second;
  }
  int n_found() const { return n_found_; }
  const std::set<std::string>& copies() const { return copies_; }

 private:
  static bool finds(const std::string& kernel, Omitted what, const std::function<void()>& prove) {
    omit(what);
    try {
      prove();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::device);
      EXPECT_NE(std::string(error.what()).find("[prove] " + kernel + ": "), std::string::npos);
      return true;
    }
    return false;
  }
  void try_one(const std::string& kernel, Omitted what, const std::function<void()>& prove) {
    const bool is_found = finds(kernel, what, prove);
    if (omit(none) == 0) {
      copies_.insert(kernel);  // the runtime's copies alone
    } else {
      EXPECT_TRUE(is_found) << kernel << ", " << (what == all ? "all" : "the last");
      n_found_ += is_found;
    }
  }

  std::set<std::string> tried_, copies_;
  std::map<Omitted, int> n_wrong_products_;
  int n_found_ = 0;
};

TEST_P(Prove, finds_kernels_that_leave_out_blocks) {
  OCTET_GPU_OR_SKIP(gpu);
  if (!is_emulated()) GTEST_SKIP() << "no emulated device";
  const RunConfig config = config_of(GetParam());
  const ModelSpec spec = model_from_config(posix_files(), config);
  KernelProofs proofs;
  Faults faults;
  prove_run(config, spec,
            {*gpu, reference_of(*gpu), proofs,
             [&](const auto& kernel, const auto& prove) { faults.try_each(kernel, prove); }});
  for (const std::string& kernel : faults.copies()) std::cout << "no blocks: " << kernel << "\n";
  EXPECT_GE(faults.n_found(), 20);
  EXPECT_LE(faults.copies().size(), 4u);
  if (!find_recipe(config.recipe.base).linears.quantized || config.recipe.base == "hif8") return;
  for (const Omitted what : {last_factors, one_bit}) EXPECT_GE(faults.n_wrong_products(what), 3);
  EXPECT_GE(faults.n_wrong_products(promotion), 1);
}

const Backend& fast_cpu() {
  static const Backend cpu = [] {
    Backend backend = cpu::make_backend(2, cpu::detect_isa());
    backend.catalogue->set_arithmetic(Arithmetic::hopper);
    return backend;
  }();
  return cpu;
}

TEST_P(Prove, finds_gemms_of_the_runs_own_sizes_right) {
  OCTET_GPU_OR_SKIP(gpu);
  if (gpu->catalogue->target().capability != capability_of(Arithmetic::hopper))
    GTEST_SKIP() << "no rule for this GPU's sums";
  ProveCase c = GetParam();
  c.sets.push_back("train.batch=2");
  const RunConfig config = config_of(c);
  const auto proofs =
      prove_products(config, model_from_config(posix_files(), config), *gpu, fast_cpu());
  ASSERT_GE(proofs.size(), 8u);
  for (const ProductProof& p : proofs) {
    EXPECT_EQ(p.n_values, 3 * 64 * 64) << p.kernel;
    EXPECT_NE(p.kernel.find("gemm"), std::string::npos);
  }
}

TEST_P(Prove, finds_wrong_gemms_of_the_runs_own_sizes) {
  OCTET_GPU_OR_SKIP(gpu);
  if (!is_emulated()) GTEST_SKIP() << "no emulated device";
  if (GetParam().name != std::string("coat")) GTEST_SKIP() << "one recipe is enough";
  ProveCase c = GetParam();
  c.sets.push_back("train.batch=2");
  const RunConfig config = config_of(c);
  const ModelSpec spec = model_from_config(posix_files(), config);
  for (const Omitted what : {last_factors, promotion, one_bit}) {
    omit(what);
    std::string said;
    try {
      prove_products(config, spec, *gpu, fast_cpu());
    } catch (const Error& error) {
      said = error.what();
    }
    omit(none);
    EXPECT_NE(said.find("[prove] gemm e"), std::string::npos) << what << ": " << said;
  }
}

INSTANTIATE_TEST_SUITE_P(recipes, Prove,
                         testing::Values(ProveCase{"coat", {"recipe=coat"}},
                                         ProveCase{"bf16", {"recipe=bf16"}},
                                         ProveCase{"coat_fast", {"recipe=coat-fast"}},
                                         ProveCase{"coat_static", {"recipe=coat-static"}},
                                         ProveCase{"hif8", {"recipe=hif8"}},
                                         ProveCase{"fp8_lm", {"recipe=fp8_lm"}},
                                         ProveCase{"exact", {"recipe=coat", "optim.math=exact"}},
                                         ProveCase{"gpt2", {"recipe=coat", "model.kind=gpt2"}},
                                         ProveCase{"muon", {"recipe=coat", "optim.kind=muon"}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace octet::prove_test
