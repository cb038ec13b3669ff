// `octet doctor --prove`: the GPU's kernels are proved for every recipe, and one that leaves out
// its blocks, or the last of them, is found.
#include "train/prove_run.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <iostream>
#include <set>

#include "backends/cpu/backend.h"
#include "base/error.h"
#include "base/files.h"
#include "config/load.h"
#include "gpu/parity/gpu.h"
#include "infer/model_spec.h"

namespace octet {
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

const Backend& reference() {
  static const Backend scalar = cpu::make_backend(1, cpu::Isa::scalar);
  return scalar;
}

class Prove : public testing::TestWithParam<ProveCase> {};

TEST_P(Prove, finds_every_planned_kernel_right) {
  OCTET_GPU_OR_SKIP(gpu);
  const RunConfig config = config_of(GetParam());
  const ModelSpec spec = model_from_config(posix_files(), config);
  KernelProofs proofs;
  prove_run(config, spec, {*gpu, reference(), proofs});
  for (const std::string& kernel : planned_kernels(config, spec, *gpu->catalogue))
    EXPECT_GT(proofs[kernel].n_nodes, 0) << kernel;
}

// What the emulator leaves out (tests/emulator/faults.h).
enum Omitted : int { none, all, last };
int64_t omit(Omitted what) {
  using Omit = int64_t (*)(int);
  static const auto set = [] {
    void* const module = dlopen(gpu_module().c_str(), RTLD_NOW | RTLD_NOLOAD);
    return reinterpret_cast<Omit>(dlsym(module, "octet_emulated_omit"));
  }();
  return set(what);
}

// Each kernel on its first node, at the first size.
class Faults {
 public:
  void try_each(const std::string& kernel, const std::function<void()>& prove) {
    prove();
    if (!tried_.insert(kernel).second) return;
    try_one(kernel, all, prove);
    try_one(kernel, last, prove);
  }
  int n_found() const { return n_found_; }
  const std::set<std::string>& copies() const { return copies_; }

 private:
  void try_one(const std::string& kernel, Omitted what, const std::function<void()>& prove) {
    omit(what);
    bool is_found = false;
    try {
      prove();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::device);
      EXPECT_NE(std::string(error.what()).find("[prove] " + kernel + ": "), std::string::npos);
      is_found = true;
    }
    if (omit(none) == 0) {
      copies_.insert(kernel);  // the runtime's copies alone
    } else {
      EXPECT_TRUE(is_found) << kernel << ", " << (what == all ? "all" : "the last");
      n_found_ += is_found;
    }
  }

  std::set<std::string> tried_, copies_;
  int n_found_ = 0;
};

TEST_P(Prove, finds_kernels_that_leave_out_blocks) {
  OCTET_GPU_OR_SKIP(gpu);
  if (!is_emulated()) GTEST_SKIP() << "no emulated device";
  const RunConfig config = config_of(GetParam());
  const ModelSpec spec = model_from_config(posix_files(), config);
  KernelProofs proofs;
  Faults faults;
  prove_run(config, spec, {*gpu, reference(), proofs, [&](const auto& kernel, const auto& prove) {
                             faults.try_each(kernel, prove);
                           }});
  for (const std::string& kernel : faults.copies()) std::cout << "no blocks: " << kernel << "\n";
  EXPECT_GE(faults.n_found(), 20);
  EXPECT_LE(faults.copies().size(), 4u);
}

INSTANTIATE_TEST_SUITE_P(recipes, Prove,
                         testing::Values(ProveCase{"coat", {"recipe=coat"}},
                                         ProveCase{"bf16", {"recipe=bf16"}},
                                         ProveCase{"coat_fast", {"recipe=coat-fast"}},
                                         ProveCase{"coat_static", {"recipe=coat-static"}},
                                         ProveCase{"hif8", {"recipe=hif8"}},
                                         ProveCase{"fp8_lm", {"recipe=fp8_lm"}},
                                         ProveCase{"gpt2", {"recipe=coat", "model.kind=gpt2"}},
                                         ProveCase{"muon", {"recipe=coat", "optim.kind=muon"}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace octet
