// Adapters that come in as PEFT's folders: a run's own exports evaluate as the run does, and
// training goes on with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/finetune/small_model.h"
#include "formats/arrays.h"
#include "infer/evaluate.h"
#include "infer/export.h"
#include "infer/inference.h"
#include "infer/model_source.h"
#include "infer/peft_adapter.h"
#include "train/open_run.h"
#include "unit/base/error_of.h"
#include "unit/infer/put_arrays.h"

namespace octet::finetune_go_on_test {
namespace {

using test::error_of;
using test::Fixture;
using test::sets_with;
using test::Tuner;
using testing::HasSubstr;

// The mean over a run's validation data of a model in f32.
double loss_of(const ModelSource& source, Tuner& run) {
  const BatchSize size = {
      .batch = 1, .seq = run.config().model.seq, .documents = RowDocuments::isolated};
  const std::vector<FunctionKey> functions = {{function::evaluate, size}};
  Inference model(source.spec, "fp32", functions, *run.backend.device, *run.backend.catalogue);
  model.load(WeightReader(posix_files(), source.weights, source.spec));
  NllSum sum;
  for (const NllSum& row : row_nll(model.function(function::evaluate, size),
                                   *make_eval_rows(run.data.val, run.config(), 1 << 20), 1))
    sum.add(row);
  return sum.mean();
}

OpenRun opened(const FinetuneOptions& options, const std::vector<std::string>& sets,
               const Log& log = {}) {
  return open_run(posix_files(), finetune_config(posix_files(), options, sets),
                  {.data = {.log = log}, .fits_to_data = true});
}

struct Case {
  std::vector<std::string> sets;
  ModelKind kind = ModelKind::llama;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << fmt::format("{}", fmt::join(c.sets, " "));
}

class GoneOn : public testing::TestWithParam<Case> {
 protected:
  std::vector<std::string> sets() const {
    std::vector<std::string> all = sets_with({"recipe=fp32", "optim.lr=0.02", "train.steps=8"});
    all.insert(all.end(), GetParam().sets.begin(), GetParam().sets.end());
    return all;
  }
};

TEST_P(GoneOn, adapters_of_a_run_are_the_same_model_elsewhere) {
  Fixture f(GetParam().kind);
  double first = 0, last = 0;
  {
    Tuner run(f.options, sets());
    first = run.trainer.evaluate().value();
    run.trainer.run({StartMode::fresh, run.loaded.source}, {});
    last = run.trainer.evaluate().value();
    EXPECT_LT(last, first - 0.05);
    export_adapter(posix_files(), find_model_source(posix_files(), f.folder / "run"),
                   f.folder / "adapter");
    const ModelSource source = find_model_source(posix_files(), f.folder / "adapter");
    EXPECT_EQ(source.folder, f.options.model);
    EXPECT_NEAR(loss_of(source, run), last, 3e-6 * last);
    // The base alone is what it was.
    EXPECT_NEAR(loss_of(find_model_source(posix_files(), f.options.model), run), first,
                3e-6 * first);
  }
  f.options.out = f.folder / "more";
  Tuner more(f.options, {"recipe=fp32", "lora.adapter=" + f.folder / "adapter", "train.steps=12",
                         "optim.lr=0.002", "train.export=none", "optim.warmup_share=0"});
  EXPECT_EQ(more.config().lora.rank, 4);
  EXPECT_NEAR(more.trainer.evaluate().value(), last, 3e-6 * last);
  more.trainer.run({StartMode::fresh, more.loaded.source}, {});
  EXPECT_LT(more.trainer.evaluate().value(), last);
}

INSTANTIATE_TEST_SUITE_P(
    kinds, GoneOn,
    testing::Values(Case{{}}, Case{{"lora.kind=rslora", "lora.ranks=['q_proj=2','*.1.mlp.*=3:5']"}},
                    Case{{"lora.kind=dora", "lora.targets=[q_proj, down_proj]"}},
                    Case{{"lora.save=[lm_head]", "lora.targets=[up_proj]"}},
                    Case{{"lora.kind=dora", "lora.targets=[c_attn]"}, ModelKind::gpt2},
                    Case{{"lora.save=[embed_out]", "lora.targets=[query_key_value]"},
                         ModelKind::gpt_neox}),
    [](const auto& info) { return "case_" + std::to_string(info.index); });

// An embedding that is the head as well is one parameter, and PEFT's file has both.
TEST(GoingOn, with_a_tied_embedding_that_is_trained_whole) {
  Fixture f;
  ModelSpec spec = test::small_spec();
  spec.tied = true;
  f.options.model = test::put_model(f.folder, spec, "tied");
  double last = 0;
  {
    Tuner run(f.options, sets_with({"recipe=fp32", "lora.save=[embed_tokens, lm_head]"}));
    run.trainer.run({StartMode::fresh, run.loaded.source}, {});
    last = run.trainer.evaluate().value();
    export_adapter(posix_files(), find_model_source(posix_files(), f.folder / "run"),
                   f.folder / "adapter");
    const ModelSource source = find_model_source(posix_files(), f.folder / "adapter");
    EXPECT_TRUE(source.spec.tied);
    EXPECT_NEAR(loss_of(source, run), last, 3e-6 * last);
  }
  const Json config =
      Json::parse(posix_files().read_text(f.folder / "adapter/adapter_config.json"));
  EXPECT_EQ(config.at("modules_to_save"), Json({"model.embed_tokens"}));
  EXPECT_EQ(config.at("ensure_weight_tying"), true);
  const auto file =
      SafetensorsReader::open(posix_files(), f.folder / "adapter/adapter_model.safetensors");
  const std::string prefix = "base_model.model.";
  EXPECT_EQ(file.read(prefix + "lm_head.weight"), file.read(prefix + "model.embed_tokens.weight"));
  f.options.out = f.folder / "more";
  Tuner more(f.options, {"recipe=fp32", "lora.adapter=" + f.folder / "adapter", "train.steps=2",
                         "optim.lr=0.002", "train.export=none", "optim.warmup_share=0"});
  EXPECT_NEAR(more.trainer.evaluate().value(), last, 3e-6 * last);
  more.trainer.run({StartMode::fresh, more.loaded.source}, {});
  EXPECT_LT(more.trainer.evaluate().value(), last);
}

// PEFT writes embeddings beside the factors (save_embedding_layers); those of the base say nothing.
TEST(GoingOn, with_embeddings_beside_the_factors_where_they_are_the_bases) {
  for (const bool tied : {false, true}) {
    Fixture f;
    ModelSpec spec = test::small_spec();
    spec.tied = tied;
    f.options.model = test::put_model(f.folder, spec, "base");
    {
      Tuner run(f.options, sets_with({"recipe=fp32", "train.steps=2"}));
      run.trainer.run({StartMode::fresh, run.loaded.source}, {});
      export_adapter(posix_files(), find_model_source(posix_files(), f.folder / "run"),
                     f.folder / "adapter");
    }
    const std::string path = f.folder / "adapter/adapter_model.safetensors";
    const auto factors = SafetensorsReader::open(posix_files(), path);
    std::vector<test::ArrayToPut> arrays;
    for (const StoredTensor& tensor : factors.tensors())
      arrays.push_back(test::array_of(tensor.name, SafeDtype::f32, tensor.shape,
                                      decode_values(Dtype::f32, factors.read(tensor.name))));
    const auto base =
        SafetensorsReader::open(posix_files(), f.options.model + "/model.safetensors");
    const std::string name = "model.embed_tokens.weight";
    std::vector<float> values = decode_values(Dtype::f32, base.read(name));
    const auto put = [&] {
      std::vector<test::ArrayToPut> all = arrays;
      all.push_back(test::array_of("base_model.model." + name, SafeDtype::f32, {256, 32}, values));
      test::put_arrays(path, all);
    };
    const auto go_on = [&] {
      Tuner(f.options, {"recipe=fp32", "lora.adapter=" + f.folder / "adapter", "train.steps=1",
                        "train.export=none"});
    };
    put();
    EXPECT_EQ(error_of(go_on), "no error");
    values[5] += 1;
    put();
    EXPECT_EQ(
        error_of(go_on, f.folder.path()),
        "[adapter] DIR/adapter: 'base_model.model.model.embed_tokens.weight': expected the "
        "weight that the base has in training, got another; `octet convert DIR/adapter MODEL` "
        "writes what both are together, as a model to train");
  }
}

// transformers 5 calls the head of gpt_neox lm_head, 4 and files embed_out.
TEST(GoingOn, a_head_has_its_name_of_either_version) {
  Fixture f(ModelKind::gpt_neox);
  {
    Tuner run(f.options, sets_with({"recipe=fp32", "train.steps=2", "lora.save=[embed_out]"}));
    run.trainer.run({StartMode::fresh, run.loaded.source}, {});
    export_adapter(posix_files(), find_model_source(posix_files(), f.folder / "run"),
                   f.folder / "adapter");
  }
  const std::string path = f.folder / "adapter/adapter_model.safetensors",
                    config = f.folder / "adapter/adapter_config.json";
  const auto factors = SafetensorsReader::open(posix_files(), path);
  const auto of_class = posix_files().read_text(config);
  EXPECT_NE(factors.find("base_model.model.lm_head.weight"), nullptr);
  EXPECT_EQ(Json::parse(of_class).at("modules_to_save"), Json({"lm_head"}));
  std::vector<test::ArrayToPut> arrays;
  for (const StoredTensor& tensor : factors.tensors()) {
    const bool is_head = tensor.name == "base_model.model.lm_head.weight";
    arrays.push_back(test::array_of(is_head ? "base_model.model.embed_out.weight" : tensor.name,
                                    SafeDtype::f32, tensor.shape,
                                    decode_values(Dtype::f32, factors.read(tensor.name))));
  }
  const ModelSpec spec = find_model_source(posix_files(), f.options.model).spec;
  const auto saved = [&] {
    return read_peft_adapter(posix_files(), f.folder / "adapter", spec).saved;
  };
  EXPECT_EQ(saved().at("embed_out.weight"), "base_model.model.lm_head.weight");
  test::put_arrays(path, arrays);
  std::string of_files = of_class;
  of_files.replace(of_files.find("lm_head"), 7, "embed_out");
  f.folder.put("adapter/adapter_config.json", of_files);
  EXPECT_EQ(saved().at("embed_out.weight"), "base_model.model.embed_out.weight");
}

TEST(GoingOn, begins_dora_with_the_base_in_every_recipe) {
  const std::pair<const char*, const char*> cases[] = {
      {"fp32", "auto"}, {"bf16", "e4m3"}, {"coat", "auto"}};
  for (const auto& [recipe, base] : cases) {
    Fixture f;
    const std::string of_recipe = std::string("recipe=") + recipe;
    const std::string of_base = std::string("lora.base=") + base;
    Tuner plain(f.options, sets_with({of_recipe, of_base}));
    Tuner dora(f.options, sets_with({of_recipe, of_base, "lora.kind=dora"}));
    const double before = plain.trainer.evaluate().value();
    EXPECT_NEAR(dora.trainer.evaluate().value(), before, 2e-3 * before) << recipe;
    for (int i = 0; i < 12; ++i) dora.trainer.step();
    EXPECT_LT(dora.trainer.evaluate().value(), before - 0.05) << recipe;
  }
}

TEST(GoingOn, refuses_other_keys_and_another_base) {
  Fixture f;
  {
    Tuner run(f.options, sets_with({"recipe=fp32", "train.steps=1"}));
    run.trainer.run({StartMode::fresh, run.loaded.source}, {});
    export_adapter(posix_files(), find_model_source(posix_files(), f.folder / "run"),
                   f.folder / "adapter");
  }
  const std::string adapter = "lora.adapter=" + f.folder / "adapter";
  EXPECT_THAT(error_of([&] {
                Tuner(f.options, {adapter, "lora.rank=8"});
              }),
              HasSubstr("lora.rank: expected 4"));
  EXPECT_THAT(error_of([&] {
                Tuner(f.options, {adapter, "lora.targets=[q_proj]"});
              }),
              HasSubstr("lora.targets"));
  EXPECT_THAT(error_of([&] {
                parse_config("lora: {rank: 2, kind: dora, dropout: 0.1}\nmodel: {path: m}\n", "a");
              }),
              HasSubstr("lora.dropout"));
  EXPECT_THAT(
      error_of([&] { parse_config("lora: {rank: 2, ranks: [q_proj]}\nmodel: {path: m}\n", "a"); }),
      HasSubstr("PATTERN=RANK"));
  EXPECT_THAT(error_of([&] {
                Tuner(f.options, sets_with({"recipe=fp32", "lora.save=[nothing]"}));
              }),
              HasSubstr("lora.save"));
  std::vector<std::byte> bytes = posix_files().read_bytes(f.options.model + "/model.safetensors");
  bytes.back() ^= std::byte{1};
  write_atomically(posix_files(), f.options.model + "/model.safetensors",
                   [&](FileWriter& out) { out.write(bytes); });
  EXPECT_THAT(error_of([&] { find_model_source(posix_files(), f.folder / "adapter"); }),
              HasSubstr("expected the base"));
  EXPECT_THAT(error_of([&] { opened(f.options, {adapter}); }), HasSubstr("expected the base"));
}

// The names are all that there is of an adapter that somebody else wrote.
TEST(GoingOn, tells_an_adapter_that_names_another_base) {
  Fixture f;
  {
    Tuner run(f.options, sets_with({"recipe=fp32", "train.steps=1"}));
    run.trainer.run({StartMode::fresh, run.loaded.source}, {});
    export_adapter(posix_files(), find_model_source(posix_files(), f.folder / "run"),
                   f.folder / "adapter");
  }
  Json config = Json::parse(posix_files().read_text(f.folder / "adapter/adapter_config.json"));
  config["base_model_name_or_path"] = "org/other";
  f.folder.put("theirs/adapter_config.json", config.dump());
  const std::string weights = "/adapter_model.safetensors";
  const auto ours = SafetensorsReader::open(posix_files(), f.folder / "adapter" + weights);
  std::vector<test::ArrayToPut> theirs;
  for (const StoredTensor& tensor : ours.tensors())
    theirs.push_back({tensor, ours.read(tensor.name)});
  test::put_arrays(f.folder / "theirs" + weights, theirs);
  std::string said;
  const Log log([&](LogLevel, const std::string& line) { said += line + "\n"; });
  opened(f.options, {"lora.adapter=" + f.folder / "theirs"}, log);
  EXPECT_THAT(said, HasSubstr("made beside 'org/other'"));
}

}  // namespace
}  // namespace octet::finetune_go_on_test
