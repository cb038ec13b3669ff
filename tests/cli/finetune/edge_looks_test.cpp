// Decisions of a look for scales alone: the same rescales as one that counts everything.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/philox.h"
#include "cli/finetune/small_model.h"
#include "config/load.h"
#include "infer/model_spec.h"
#include "train/calibration.h"

namespace octet::finetune_edge_looks_test {
namespace {

using test::easy_text;
using test::put_model;
using test::ScratchFolder;
using test::small_spec;

// Matrices N(0, 1), and channels between up and down that saturate and are flushed.
void grow(const std::string& name, std::vector<float>& values) {
  constexpr size_t kHidden = 32, kFfn = 40;
  if (name.find("norm") != name.npos) return;
  RandomStream{.name = name_hash(name), .seed = 5}.normals(values);
  const bool is_up = name.find("up_proj") != name.npos;
  const bool is_down = name.find("down_proj") != name.npos;
  for (size_t i = 0; (is_up || is_down) && i < values.size(); ++i) {
    const size_t channel = is_up ? i / kHidden : i % kFfn;
    if (channel % 16 == 3) values[i] *= is_up ? 4096.0f : 1.0f / 4096;
  }
}

class EdgeLooksOf : public testing::TestWithParam<const char*> {};

TEST_P(EdgeLooksOf, scales_alone_decide_as_all_do) {
  const ScratchFolder folder;
  put_model(folder, small_spec(), "model", grow);
  folder.put("text.txt", easy_text(3001));
  const RunConfig config =
      parse_config(fmt::format("model: {{path: {0}/model, seq: 24}}\n"
                               "data: {{train: [{0}/text.txt], tokenizer: bytes}}\n"
                               "train: {{steps: 2, batch: 4}}\n"
                               "out: {0}/run\n"
                               "recipe: {1}\n",
                               folder.path(), GetParam()),
                   "looks.yaml")
          .config;
  const Dataset data =
      open_run_data(posix_files(), config, model_from_config(posix_files(), config));
  cpu::Backend backend = cpu::make_backend(3, cpu::detect_isa());
  Trainer trainer(config, data, {posix_files(), *backend.device, *backend.catalogue});
  EdgeWatch all(trainer.engine().arenas()), scales(trainer.engine().arenas(), EdgeLooks::scales);
  trainer.engine().observe([&](const Plan& plan, const PlanStep& step, bool before) {
    all.observer()(plan, step, before);
    scales.observer()(plan, step, before);
  });
  trainer.step();
  const std::vector<EdgeStatistics> edges = all.take(), fewer = scales.take();
  EXPECT_LT(fewer.size(), edges.size());
  for (const AlarmRule rule : {AlarmRule::before_first_step, AlarmRule::by_maximum}) {
    const auto expected = with_rescales({}, alarms_of(edges, nullptr, rule));
    EXPECT_FALSE(expected.empty());
    EXPECT_EQ(with_rescales({}, alarms_of(fewer, nullptr, rule)), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(recipes, EdgeLooksOf,
                         testing::Values("scalify_fp8", "coat-static",
                                         "{base: coat-static, activation_scale: tensor}",
                                         "{base: scalify_fp8, compute: fp16}", "scalify_fp16"),
                         [](const auto& info) { return fmt::format("number_{}", info.index); });

}  // namespace
}  // namespace octet::finetune_edge_looks_test
