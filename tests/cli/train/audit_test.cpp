// train.audit: GEMMs made again on the CPU (train/gemm_audit.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cpu/backend.h"
#include "base/json.h"
#include "cli/train/tiny_run.h"
#include "infer/model_spec.h"
#include "train/gemm_audit.h"
#include "train/run_setup.h"
#include "train/trainer.h"
#include "unit/base/error_of.h"

namespace octet::train_audit_test {
namespace {

using test::error_of;
using test::ScratchFolder;
using test::tiny_config;

Backend hopper_cpu(cpu::Isa isa = cpu::detect_isa()) {
  Backend backend = cpu::make_backend(2, isa);
  backend.catalogue->set_arithmetic(Arithmetic::hopper);
  return backend;
}

struct AuditedRun {
  explicit AuditedRun(const RunConfig& config)
      : data(open_run_data(posix_files(), config, model_from_config(posix_files(), config))),
        trainer(config, data,
                {.files = posix_files(),
                 .device = *backend.device,
                 .catalogue = *backend.catalogue,
                 .auditor = &auditor}) {}

  // From now on a bit of the first output of each linear's GEMM flips behind its launch.
  void flip_bits(const StepObserver& look = {}) {
    TrainEngine& engine = trainer.engine();
    engine.observe([&engine, look](const Plan& plan, const PlanStep& plan_step, bool before) {
      const Node& node = plan.graph.node(plan_step.node);
      if (!before && linear_role(node) != GemmRole::other)
        *engine.arenas().address(plan, node.out(Gemm::y)) ^= std::byte{4};
      if (look) look(plan, plan_step, before);
    });
  }

  Backend backend = hopper_cpu(), auditor = hopper_cpu(cpu::Isa::scalar);
  Dataset data;
  Trainer trainer;
};

RunConfig audited_config(const ScratchFolder& folder, std::vector<std::string> sets) {
  sets.insert(sets.end(), {"train.audit=2", "train.steps=4", "recipe=coat-fast"});
  return tiny_config(folder, sets);
}

TEST(Audit, finds_no_other_bits_in_sound_gemms) {
  const ScratchFolder folder;
  const RunConfig config = audited_config(folder, {});
  AuditedRun run(config);
  run.trainer.run(StartMode::fresh, {});
  EXPECT_EQ(run.trainer.step_count(), 4);
  EXPECT_THAT(posix_files().read_text(config.out + "/telemetry.jsonl"),
              testing::Not(testing::HasSubstr("audit")));
}

TEST(Audit, ends_a_run_that_asks_for_it_behind_its_record) {
  const ScratchFolder folder;
  const RunConfig config = audited_config(folder, {"train.on_audit=stop"});
  AuditedRun run(config);
  ASSERT_TRUE(run.trainer.begin(StartMode::fresh, {}));
  run.flip_bits();
  EXPECT_THAT(error_of([&] { run.trainer.advance(); }), testing::HasSubstr("[audit] step 1: "));
  EXPECT_THAT(posix_files().read_text(config.out + "/telemetry.jsonl"),
              testing::HasSubstr("\"event\":\"audit\""));
}

TEST(Audit, names_an_output_with_another_bit_once_a_role) {
  const ScratchFolder folder;
  AuditedRun run(audited_config(folder, {"train.audit=0"}));
  GemmAudit audit(run.trainer.engine().arenas(), *run.backend.device, *run.backend.catalogue,
                  run.auditor, 1);
  run.flip_bits(audit.observer(1));
  run.trainer.step();
  EXPECT_EQ(audit.n_outputs(), 3 * 256);
  const std::vector<AuditDifference> found = audit.take();
  ASSERT_EQ(found.size(), 3u);
  int n_tried = 0;
  for (const AuditDifference& d : found) {
    EXPECT_THAT(d.linear, testing::StartsWith("layers."));
    EXPECT_NE(d.role, GemmRole::other);
    EXPECT_EQ(d.n_other, 1);
    EXPECT_EQ(d.row, 0);
    EXPECT_EQ(d.col, 0);
    EXPECT_EQ(d.expected ^ d.got, 4u);
    // The operands of a gradient that is added to another one are gone.
    EXPECT_NE(d.repeats, std::optional(true));
    n_tried += d.repeats.has_value();
    EXPECT_THAT(audit_text(d), testing::HasSubstr(d.repeats ? "a bit that flipped" : "not tried"));
    const Json line = parse_own_json(audit_json(7, d));
    EXPECT_EQ(line.at("event"), "audit");
    EXPECT_EQ(line.at("role"), enum_name(d.role));
  }
  EXPECT_GT(n_tried, 0);
}

TEST(Audit, needs_sums_with_a_rule) {
  const ScratchFolder folder;
  const RunConfig config = audited_config(folder, {});
  const Backend own = cpu::make_backend(1, cpu::detect_isa());
  const Dataset data =
      open_run_data(posix_files(), config, model_from_config(posix_files(), config));
  const auto text = error_of([&] {
    Trainer(config, data,
            {.files = posix_files(), .device = *own.device, .catalogue = *own.catalogue});
  });
  EXPECT_THAT(text, testing::HasSubstr("train.audit: expected 0 on cpu"));
}

}  // namespace
}  // namespace octet::train_audit_test
