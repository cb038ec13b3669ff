// Low-rank adapters in training, in checkpoints, merged and exported, on tiny models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "cli/finetune/small_model.h"
#include "cli/train/first_moments.h"
#include "infer/evaluate.h"
#include "infer/export.h"
#include "infer/inference.h"
#include "infer/model_source.h"
#include "passes/precision/store_frozen.h"
#include "unit/base/error_of.h"

namespace octet::finetune_adapters_test {
namespace {

using test::error_of;
using test::Fixture;
using test::sets_with;
using test::Tuner;
using testing::HasSubstr;

std::vector<std::byte> bytes_of(TrainEngine& engine, const Layout::Slot& slot) {
  std::vector<std::byte> bytes(static_cast<size_t>(slot.type.n_bytes()));
  engine.arenas().device().copy_out(bytes.data(), engine.arenas().arena(slot.arena) + slot.offset,
                                    slot.type.n_bytes());
  return bytes;
}

std::map<std::string, std::vector<std::byte>> base_of(TrainEngine& engine) {
  std::map<std::string, std::vector<std::byte>> base;
  for (const auto& [name, slot] : engine.layout().slots) {
    if (slot.kind == InputKind::constant) base[name] = bytes_of(engine, slot);
  }
  return base;
}

struct Case {
  std::string recipe, base;
  ModelKind kind = ModelKind::llama;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.recipe << " " << c.base << " " << model_def(c.kind).name;
}

class Adapters : public testing::TestWithParam<Case> {};

TEST_P(Adapters, are_learned_beside_a_base_that_stays_as_it_is) {
  Fixture f(GetParam().kind);
  std::vector<std::string> sets =
      sets_with({"recipe=" + GetParam().recipe, "lora.base=" + GetParam().base});
  if (GetParam().kind == ModelKind::gpt2) sets.push_back("lora.targets=[c_*]");
  sets.insert(sets.end(), {"train.steps=40", "optim.lr=0.05"});
  Tuner run(f.options, sets);
  const auto before = base_of(run.trainer.engine());
  ASSERT_FALSE(before.empty());
  const double first = run.trainer.evaluate().value();
  for (int i = 0; i < 20; ++i) run.trainer.step();
  EXPECT_LT(run.trainer.evaluate().value(), first - 0.3);
  EXPECT_EQ(base_of(run.trainer.engine()), before);
}

TEST_P(Adapters, merged_weights_mean_what_base_and_adapters_mean) {
  Fixture f(GetParam().kind);
  std::vector<std::string> sets =
      sets_with({"recipe=" + GetParam().recipe, "lora.base=" + GetParam().base});
  if (GetParam().kind == ModelKind::gpt2) sets.push_back("lora.targets=[c_*]");
  Tuner run(f.options, sets);
  run.trainer.run({StartMode::fresh, run.loaded.source}, {});
  const double adapted = run.trainer.evaluate().value();
  const ModelSource source = find_model_source(posix_files(), f.folder / "run");
  const BatchSize size = {
      .batch = 1, .seq = run.config().model.seq, .documents = RowDocuments::isolated};
  const std::vector<FunctionKey> functions = {{function::evaluate, size}};
  Inference model(source.spec, source.recipe, functions, *run.backend.device,
                  *run.backend.catalogue);
  model.load(WeightReader(posix_files(), source.weights, source.spec));
  const auto rows = make_eval_rows(run.data.val, run.config(), 1 << 20);
  NllSum sum;
  for (const NllSum& row : row_nll(model.function(function::evaluate, size), *rows, 1))
    sum.add(row);
  const double merged = sum.mean();
  const double tolerance = GetParam().recipe == "fp32" ? 2e-6 : 0.03;
  EXPECT_NEAR(merged, adapted, tolerance * adapted);
}

INSTANTIATE_TEST_SUITE_P(
    recipes_and_bases, Adapters,
    testing::Values(Case{"fp32", "auto"}, Case{"fp32", "bf16"}, Case{"fp32", "e4m3"},
                    Case{"fp32", "e4m3/128x128"}, Case{"fp32", "hif8"}, Case{"bf16", "auto"},
                    Case{"bf16", "e4m3"}, Case{"coat", "auto"}, Case{"coat", "e4m3"},
                    Case{"coat", "e4m3/128x128"}, Case{"coat-fast", "bf16"},
                    Case{"coat-fast", "e4m3"}, Case{"fp8_linear", "hif8"}, Case{"hif8", "hif8"},
                    Case{"fp32", "e4m3", ModelKind::gpt2}, Case{"bf16", "auto", ModelKind::gpt2}),
    [](const auto& info) { return "case_" + std::to_string(info.index); });

// d loss / d factor from the first moment: the gradient times 1 - beta1 after one step.
TEST(AdapterGradients, equal_differences_of_the_loss) {
  Fixture f;
  // All of the rank that the layers' widths allow, and B away from zero.
  Tuner run(f.options,
            sets_with({"recipe=fp32", "lora.rank=32", "optim.clip=0", "optim.state_m=f32",
                       "optim.betas=[0.5, 0.95]", "train.batch=2", "lora.base=e4m3"}));
  TrainEngine& engine = run.trainer.engine();
  for (int i = 0; i < 3; ++i) run.trainer.step();
  const auto loader = make_loader(run.data, run.config());
  const Batch batch = loader.peek(0, 2);
  const std::vector<Batch> batches = {batch};
  std::map<std::string, std::vector<float>> weights, moments;
  const auto read = [&](const std::string& name) {
    const std::vector<std::byte> bytes = bytes_of(engine, engine.layout().slots.at(name));
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  const auto write = [&](const std::string& name, std::span<const float> values) {
    const Layout::Slot& slot = engine.layout().slots.at(name);
    engine.arenas().device().copy_in(engine.arenas().arena(slot.arena) + slot.offset,
                                     std::as_bytes(values).data(), slot.type.n_bytes());
  };
  const std::string names[] = {"model.layers.0.self_attn.q_proj.lora_A.weight",
                               "model.layers.0.self_attn.q_proj.lora_B.weight",
                               "model.layers.1.mlp.down_proj.lora_A.weight",
                               "model.layers.1.mlp.down_proj.lora_B.weight"};
  for (const std::string& name : names) {
    weights[name] = read(name);
    moments[name] = read("adam_m:" + name);
  }
  // lr 0: the weights stay, the moments tell the gradient.
  engine.step(batches, {.lr = 0, .clip = 0, .attempt = 9});
  std::map<std::string, std::vector<float>> stepped;  // before the probes' own steps move them on
  for (const std::string& name : names) stepped[name] = read("adam_m:" + name);
  const auto loss_with = [&](const std::string& name, size_t i, float value) {
    std::vector<float> changed = weights[name];
    changed[i] = value;
    write(name, changed);
    const double loss = static_cast<double>(engine.step(batches, {.lr = 0}).loss);
    write(name, weights[name]);
    return loss;
  };
  for (const std::string& name : names) {
    const std::vector<float>& after = stepped[name];
    std::vector<float> gradient(after.size());
    size_t largest = 0;
    for (size_t i = 0; i < after.size(); ++i) {
      gradient[i] = (after[i] - 0.5f * moments[name][i]) / 0.5f;
      if (std::fabs(gradient[i]) > std::fabs(gradient[largest])) largest = i;
    }
    ASSERT_GT(std::fabs(gradient[largest]), 1e-5f) << name;
    const size_t probes[] = {largest, 1, after.size() / 2};
    for (const size_t i : probes) {
      const float at = weights[name][i], h = 0.01f;
      const double slope = (loss_with(name, i, at + h) - loss_with(name, i, at - h)) /
                           (2.0 * static_cast<double>(h));
      EXPECT_NEAR(slope, static_cast<double>(gradient[i]),
                  0.02 * std::fabs(static_cast<double>(gradient[largest])) + 2e-5)
          << name << " " << i;
    }
  }
}

class ResumedAdapters : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(ResumedAdapters, go_on_bit_for_bit) {
  Fixture f;
  test::expect_parts_are_the_whole(f, sets_with(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(
    settings, ResumedAdapters,
    testing::Values(std::vector<std::string>{"recipe=bf16", "lora.base=e4m3"},
                    std::vector<std::string>{"recipe=coat", "lora.dropout=0.3"},
                    std::vector<std::string>{"recipe=fp32", "lora.dropout=0.5", "train.batch=1",
                                             "train.accumulate=2"},
                    std::vector<std::string>{"recipe=coat-fast", "lora.base=e4m3/128x128"}));

TEST(AdapterDropout, masks_differ_by_step_and_micro_batch_and_not_in_evaluations) {
  Fixture f;
  const auto losses = [&](const std::string& dropout) {
    Tuner run(f.options, sets_with({"recipe=fp32", "lora.dropout=" + dropout, "train.batch=2"}));
    const double before = run.trainer.evaluate().value();
    EXPECT_EQ(run.trainer.evaluate().value(), before);
    std::vector<float> all;
    for (int i = 0; i < 4; ++i) all.push_back(run.trainer.step().loss);
    return all;
  };
  const std::vector<float> without = losses("0"), with = losses("0.5");
  EXPECT_EQ(without[0], with[0]);  // B is zero
  EXPECT_NE(without[2], with[2]);
  EXPECT_EQ(losses("0.5"), with);
}

TEST(AdapterCheckpoint, holds_the_adapters_and_names_the_base) {
  Fixture f;
  Tuner run(f.options, sets_with({"recipe=bf16", "lora.targets=[q_proj]"}));
  run.trainer.run({StartMode::fresh, run.loaded.source}, {});
  const auto newest = Checkpoints(posix_files(), f.folder / "run/ckpt").newest();
  ASSERT_TRUE(newest);
  std::vector<std::string> names;
  for (const StoredTensor& tensor : newest->model.tensors()) names.push_back(tensor.name);
  EXPECT_THAT(names,
              testing::UnorderedElementsAre("model.layers.0.self_attn.q_proj.lora_A.weight",
                                            "model.layers.0.self_attn.q_proj.lora_B.weight",
                                            "model.layers.1.self_attn.q_proj.lora_A.weight",
                                            "model.layers.1.self_attn.q_proj.lora_B.weight"));
  const auto note = adapter_note_of(newest->model);
  ASSERT_TRUE(note);
  EXPECT_EQ(note->base, f.options.model);
  EXPECT_EQ(note->lora.rank, 4);
  for (const StoredTensor& tensor : newest->optim.tensors())
    EXPECT_THAT(tensor.name, HasSubstr("lora_"));
}

TEST(AdapterCheckpoint, another_base_is_refused) {
  Fixture f;
  const std::vector<std::string> sets = sets_with({"recipe=bf16"});
  {
    Tuner run(f.options, sets);
    run.trainer.run({StartMode::fresh, run.loaded.source}, {});
  }
  std::vector<std::byte> bytes = posix_files().read_bytes(f.options.model + "/model.safetensors");
  bytes.back() ^= std::byte{1};
  write_atomically(posix_files(), f.options.model + "/model.safetensors",
                   [&](FileWriter& out) { out.write(bytes); });
  EXPECT_THAT(error_of([&] {
                Tuner again(f.options, sets);
                again.trainer.run({StartMode::resume, again.loaded.source}, {});
              }),
              HasSubstr("model.path"));
  const ModelSource source = find_model_source(posix_files(), f.folder / "run");
  EXPECT_THAT(error_of([&] { WeightReader(posix_files(), source.weights, source.spec); }),
              HasSubstr("expected the base"));
}

TEST(AdapterExport, has_the_names_that_peft_reads) {
  Fixture f;
  Tuner run(f.options,
            sets_with({"recipe=fp32", "lora.targets=[\"*.0.self_attn.q_proj\", up_proj]"}));
  run.trainer.run({StartMode::fresh, run.loaded.source}, {});
  const ModelSource source = find_model_source(posix_files(), f.folder / "run");
  export_adapter(posix_files(), source, f.folder / "adapter");
  const auto file =
      SafetensorsReader::open(posix_files(), f.folder / "adapter/adapter_model.safetensors");
  const std::string up = "base_model.model.model.layers.1.mlp.up_proj.lora_";
  EXPECT_EQ(file.tensors().size(), 6u);
  EXPECT_EQ(file.at(up + "A.weight").shape, (Shape{4, 32}));
  EXPECT_EQ(file.at(up + "B.weight").shape, (Shape{40, 4}));
  const Json config =
      Json::parse(posix_files().read_text(f.folder / "adapter/adapter_config.json"));
  EXPECT_EQ(config["peft_type"], "LORA");
  EXPECT_EQ(config["r"], 4);
  EXPECT_EQ(config["lora_alpha"], 8.0);
  EXPECT_EQ(config["target_modules"], Json({"model.layers.0.self_attn.q_proj", "up_proj"}));
  EXPECT_EQ(config["base_model_name_or_path"], f.options.model);
  ModelSource plain = source;
  plain.weights = plain.folder = f.options.model;
  EXPECT_THAT(error_of([&] { export_adapter(posix_files(), plain, f.folder / "no"); }),
              HasSubstr("lora.rank"));
}

// Linears that train.freeze names have no adapter, in the run as in its files.
TEST(AdapterFreeze, names_linears_without_adapters) {
  Fixture f;
  const std::vector<std::string> sets = sets_with(
      {"recipe=fp32", "lora.targets=[q_proj, up_proj]", "train.freeze=[\"model.layers.0.*\"]"});
  test::expect_parts_are_the_whole(f, sets);
  f.options.out = f.folder / "run";
  Tuner run(f.options, sets);
  run.trainer.run({StartMode::fresh, run.loaded.source}, {});
  const ModelSource source = find_model_source(posix_files(), f.folder / "run");
  export_adapter(posix_files(), source, f.folder / "adapter");
  const Json config =
      Json::parse(posix_files().read_text(f.folder / "adapter/adapter_config.json"));
  EXPECT_EQ(config["target_modules"],
            Json({"model.layers.1.mlp.up_proj", "model.layers.1.self_attn.q_proj"}));
  const WeightReader merged(posix_files(), source.weights, source.spec);
  const WeightReader base(posix_files(), f.options.model, source.spec);
  for (const int layer : {0, 1}) {
    const std::string name = fmt::format("model.layers.{}.self_attn.q_proj.weight", layer);
    EXPECT_EQ(merged.read(name) == base.read(name), layer == 0);
  }
}

TEST(AdapterFreeze, leaves_something_to_train_and_names_what_is_there) {
  Fixture f;
  const auto error = [&](const std::string& freeze) {
    return error_of([&] {
      Tuner run(f.options, sets_with({"recipe=fp32", "lora.targets=[q_proj]", freeze}));
    });
  };
  EXPECT_THAT(error("train.freeze=[\"*lora_A*\"]"), HasSubstr("which matches none"));
  EXPECT_THAT(error("train.freeze=[\"*q_proj*\"]"), HasSubstr("that leave an adapter to train"));
  EXPECT_THAT(error("lora.ranks=[k_proj=8]"), HasSubstr("lora.ranks: expected patterns of linears "
                                                        "that have an adapter"));
  EXPECT_EQ(error("lora.ranks=[\"*_proj=8\"]"), "no error");
  EXPECT_THAT(error_of([&] {
                Tuner run(f.options,
                          sets_with({"recipe=fp32", "lora.targets=[q_proj]", "lora.save=[lm_head]",
                                     "train.freeze=[\"lm_head*\"]"}));
              }),
              HasSubstr("lora.save: expected modules of which train.freeze [lm_head*] leaves"));
}

TEST(AdapterExport, of_the_merged_model_is_a_model_again) {
  Fixture f;
  Tuner run(f.options, sets_with({"recipe=bf16", "lora.base=e4m3", "train.export=f32"}));
  run.trainer.run({StartMode::fresh, run.loaded.source}, {});
  const ModelSource source = find_model_source(posix_files(), f.folder / "run");
  const WeightReader merged(posix_files(), source.weights, source.spec);
  const WeightReader exported(posix_files(), f.folder / "run/export", source.spec);
  for (const ParameterSpec& p : model_parameters(source.spec))
    EXPECT_EQ(exported.read(p.name), merged.read(p.name)) << p.name;
}

TEST(AdapterConfig, needs_a_model_to_stand_beside) {
  EXPECT_THAT(error_of([] { parse_config("lora: {rank: 4}\n", "a.yaml"); }),
              HasSubstr("model.path"));
  EXPECT_THAT(error_of([] { parse_config("train: {export: adapter}\n", "a.yaml"); }),
              HasSubstr("train.export"));
}

}  // namespace
}  // namespace octet::finetune_adapters_test
