// train.audit on a GPU: a card whose products are wrong is told, as often as it is looked at.
#include <gtest/gtest.h>

#include "backends/cpu/backend.h"
#include "cli/train/tiny_run.h"
#include "gpu/parity/gpu.h"
#include "gpu/prove/faults.h"
#include "infer/model_spec.h"
#include "train/gemm_audit.h"
#include "train/run_setup.h"
#include "train/trainer.h"

namespace octet::prove_audit_test {
namespace {

using test::ScratchFolder;

std::vector<AuditDifference> found_in(Backend& gpu, const std::string& recipe, int64_t n_steps,
                                      int64_t* n_outputs = nullptr) {
  Backend cpu = cpu::make_backend(1, cpu::detect_isa());
  cpu.catalogue->set_arithmetic(Arithmetic::hopper);
  const ScratchFolder folder;
  const RunConfig config = test::tiny_config(
      folder, {"recipe=" + recipe, "model.hidden=64", "model.ffn=96", "model.seq=80"});
  const Dataset data =
      open_run_data(posix_files(), config, model_from_config(posix_files(), config));
  Trainer trainer(config, data,
                  {.files = posix_files(), .device = *gpu.device, .catalogue = *gpu.catalogue});
  GemmAudit audit(trainer.engine().arenas(), *gpu.device, *gpu.catalogue, cpu, 3);
  for (int64_t step = 1; step <= n_steps; ++step) {
    trainer.engine().observe(audit.observer(step));
    trainer.step();
  }
  trainer.engine().observe({});
  if (n_outputs != nullptr) *n_outputs = audit.n_outputs();
  return audit.take();
}

TEST(GpuAudit, finds_no_other_bits_in_a_sound_card) {
  OCTET_GPU_OR_SKIP(gpu);
  if (gpu->catalogue->target().capability != capability_of(Arithmetic::hopper))
    GTEST_SKIP() << "no rule for this GPU's sums";
  const int64_t n_steps = is_emulated() ? 3 : 1400;
  for (const std::string recipe : {"coat", "coat-fast", "bf16"}) {
    int64_t n_outputs = 0;
    EXPECT_TRUE(found_in(*gpu, recipe, n_steps, &n_outputs).empty()) << recipe;
    EXPECT_EQ(n_outputs, n_steps * 3 * 256);
  }
}

TEST(GpuAudit, names_products_that_are_wrong) {
  OCTET_GPU_OR_SKIP(gpu);
  if (!is_emulated()) GTEST_SKIP() << "no emulated device";
  omit(last_factors);
  const std::vector<AuditDifference> found = found_in(*gpu, "coat", 1);
  omit(none);
  ASSERT_EQ(found.size(), 3u);
  int n_tried = 0;
  for (const AuditDifference& d : found) {
    // The operands of a gradient that is added to another one are gone.
    EXPECT_NE(d.repeats, std::optional(false)) << audit_text(d);
    n_tried += d.repeats.has_value();
    EXPECT_GT(d.n_other, 16);
    EXPECT_NE(d.role, GemmRole::other);
  }
  EXPECT_GT(n_tried, 0);
}

}  // namespace
}  // namespace octet::prove_audit_test
