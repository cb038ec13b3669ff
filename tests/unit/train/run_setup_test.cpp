#include "train/run_setup.h"

#include <gtest/gtest.h>

#include <sstream>

#include "config/load.h"
#include "config/table.h"
#include "data/dataset.h"
#include "data/token_rows.h"
#include "infer/model_spec.h"
#include "nn/other_kinds.h"
#include "train/local_text.h"
#include "train/open_run.h"
#include "train/row_data.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::train_run_setup_test {
namespace {

using test::error_of;

RunConfig config_with(const std::vector<std::string>& sets) {
  return parse_config("", "a.yaml", sets).config;
}

TEST(RunSetup, program_follows_the_configuration) {
  const RunConfig config = config_with(
      {"recipe=bf16", "optim.betas=[0.8, 0.99]", "optim.weight_decay=0.2", "train.accumulate=5"});
  const ModelSpec spec = model_from_config(posix_files(), config);
  const ProgramOptions options = program_options(config, spec);
  EXPECT_EQ(options.recipe, "bf16");
  EXPECT_EQ(options.optim.beta1, 0.8);
  EXPECT_EQ(options.optim.beta2, 0.99);
  EXPECT_EQ(options.optim.weight_decay, 0.2);
  EXPECT_EQ(options.optim.master, Master::bf16_remainder);
  EXPECT_EQ(options.optim.state_m, StateFormat{});
  EXPECT_EQ(options.accumulate, 5);
  EXPECT_EQ(options.recipe_options.gradient, Dtype::f32);  // more than 4 micro-batches
  const auto is_spared = [&](const std::string& name) {
    return std::count(options.no_decay.begin(), options.no_decay.end(), name) == 1;
  };
  EXPECT_TRUE(is_spared("model.norm.weight"));
  EXPECT_TRUE(is_spared("model.embed_tokens.weight"));
  EXPECT_FALSE(is_spared("model.layers.0.mlp.up_proj.weight"));
}

TEST(RunSetup, optimizer_states_follow_the_configuration) {
  const RunConfig config =
      config_with({"optim.state_m=e4m3+x", "optim.state_v=de8", "optim.group=256",
                   "optim.master=bf16_sr", "optim.math=exact", "train.seed=5"});
  const OptimPolicy policy = program_options(config, ModelSpec{}).optim;
  EXPECT_EQ(policy.state_m, (StateFormat{.dtype = Dtype::e4m3, .expand = true}));
  EXPECT_EQ(policy.state_v.dtype, Dtype::de8s);
  EXPECT_EQ(policy.group, 256);
  EXPECT_EQ(policy.master, Master::bf16_sr);
  EXPECT_EQ(policy.math, PowerMath::exact);
  EXPECT_EQ(policy.seed, 5u);
}

TEST(RunSetup, gradients_are_narrow_up_to_four_micro_batches) {
  const RunConfig config = config_with({"train.accumulate=4"});
  EXPECT_EQ(program_options(config, ModelSpec{}).recipe_options.gradient, Dtype::bf16);
}

// The formats of a linear by the plan of a run.
std::string formats_in(const std::string& recipe, const std::string& linear) {
  const RunConfig config =
      config_with({"model.hidden=32", "model.layers=2", "model.heads=2", recipe});
  const ModelSpec spec = model_from_config(posix_files(), config);
  const ProgramOptions options = program_options(config, spec);
  const std::string table = resolved_table(
      chosen_recipe(options.recipe, options.recipe_options),
      options.forward({.batch = 1, .seq = 8}, ForwardKind::loss), options.recipe_options);
  std::istringstream lines(table);
  for (std::string name, line; lines >> name;) {
    std::getline(lines, line);
    if (name == linear) return line.substr(line.find("x "));
  }
  return "none";
}

// The examples of docs/configuration.md and docs/hifloat8.md.
TEST(RunSetup, later_lines_of_overrides_win_in_the_examples_of_the_pages) {
  const std::string bf16 = "x bf16  w bf16  dy bf16";
  const std::string coat =
      "recipe={base: coat, override: {'layers.0.*': bf16, '*.down_proj': {dy: e4m3}}}";
  EXPECT_EQ(formats_in(coat, "layers.0.up_proj"), bf16);
  EXPECT_EQ(formats_in(coat, "layers.0.down_proj"), "x bf16  w bf16  dy e4m3");
  EXPECT_EQ(formats_in(coat, "layers.1.up_proj"), "x e4m3  w e4m3  dy e5m2");
  EXPECT_EQ(formats_in(coat, "layers.1.down_proj"), "x e4m3  w e4m3  dy e4m3");
  const std::string hif8 =
      "recipe={base: hif8, override: {'layers.0.*': bf16, '*.down_proj': {dy: e5m2}}}";
  EXPECT_EQ(formats_in(hif8, "layers.0.q_proj"), bf16);
  EXPECT_EQ(formats_in(hif8, "layers.0.down_proj"), "x bf16  w bf16  dy e5m2");
  EXPECT_EQ(formats_in(hif8, "layers.1.down_proj"), "x hif8  w hif8  dy e5m2");
}

TEST(RunSetup, schedule_and_loader_follow_the_configuration) {
  const RunConfig config =
      config_with({"optim.schedule=linear", "optim.warmup=7", "optim.final_lr=0.5",
                   "train.steps=70", "train.seed=9", "data.sampling=random", "model.seq=33"});
  const Schedule schedule = schedule_of(config);
  EXPECT_EQ(schedule.kind, ScheduleKind::linear);
  EXPECT_EQ(schedule.warmup, 7);
  EXPECT_EQ(schedule.steps, 70);
  EXPECT_EQ(schedule.final_lr, 0.5);
  const RowOptions loader = row_options(config);
  EXPECT_EQ(loader.order, WindowOrder::random);
  EXPECT_EQ(loader.seed, 9u);
  EXPECT_EQ(loader.seq, 33);
}

// 10 steps of warm-up, 40 at the peak, 50 down to a tenth of it.
TEST(RunSetup, wsd_rises_stays_and_falls_over_the_share_that_was_asked_for) {
  const Schedule schedule =
      schedule_of(config_with({"optim.schedule=wsd", "optim.lr=1", "optim.warmup=10",
                               "optim.final_lr=0.1", "optim.decay_share=0.5", "train.steps=100"}));
  const std::pair<int64_t, double> rates[] = {{5, 0.5}, {10, 1},    {11, 1},
                                              {50, 1},  {75, 0.55}, {100, 0.1}};
  for (const auto& [step, rate] : rates)
    EXPECT_NEAR(learning_rate(schedule, step), rate, 1e-15) << step;
}

TEST(RunSetup, every_listed_name_means_something) {
  for (const ConfigRow& row : config_rows()) {
    const auto* field = std::get_if<const ModelField*>(&row.field);
    if (field != nullptr && !kind_has(**field, {})) continue;  // refused without its kind
    for (const std::string& name : row_names(row)) {
      const std::string set = fmt::format("{}={}", row.path, name);
      std::vector<std::string> sets = {set};
      if (name == "adapter") continue;  // needs adapters, and they a model's folder
      if (row.path == "train.loss" && !name.ends_with("_token")) continue;  // of other outputs
      if (row.path == "recipe.compute" && name == "f32") sets.push_back("recipe=fp32");
      if (row.path == "recipe.compute" && name == "fp16") sets.push_back("recipe=fp16");
      if (row.path == "recipe.activations" || row.path == "recipe.gradient_rounding")
        sets.push_back("recipe=hif8");
      if (row.path == "recipe.rescale" || row.path == "recipe.scale_rounding" ||
          row.path == "recipe.scaled_gradient")
        sets.push_back("recipe=scalify_fp16");
      if (name == "fp16_sr") sets.push_back("recipe=scalify_fp16");
      if (row.path == "recipe.activation_scale") sets.push_back("recipe=coat-static");
      if (row.path == "recipe.mx_scale") sets.push_back("recipe=mxfp8");
      if (row.path == "model.kind") sets.push_back("model.kv_heads=0");
      if (name == "lstm_seq2seq") sets.push_back("model.source_seq=64");
      if (name == "longrope") {
        const std::string ones = fmt::format("[{}]", fmt::join(std::vector<int>(32, 1), ", "));
        sets.push_back("model.rope_scaling.short_factor=" + ones);
        sets.push_back("model.rope_scaling.long_factor=" + ones);
      }
      const RunConfig config = config_with(sets);
      EXPECT_EQ(error_of([&] {
                  program_options(config, model_from_config(posix_files(), config));
                  learning_rate(schedule_of(config), 1);
                  row_options(config);
                }),
                "no error")
          << set;
    }
  }
}

TEST(RunSetup, evaluation_reads_as_many_bytes_as_asked_for) {
  const RunConfig config = config_with({"train.eval_bytes=1000"});
  EXPECT_EQ(eval_tokens(config, ModelSpec{.vocab = 256}), 1000);
  EXPECT_EQ(eval_tokens(config, ModelSpec{.vocab = 50304}), 500);
  EXPECT_EQ(eval_tokens(config, ModelSpec{.vocab = 128256}), 250);
}

TEST(RunSetup, tables_and_json_that_are_read_as_text_are_told) {
  const test::ScratchFolder folder;
  folder.put("json/a.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  folder.put("table/b.csv", "prompt,completion\na,b\n");
  const auto told = [&](const std::string& data, const std::string& chat) {
    std::vector<std::string> sets = {"data.train=[" + (folder / data) + "]", "data.val_fraction=0",
                                     "model.seq=40", "train.steps=1"};
    if (!chat.empty()) sets.push_back("data.chat.template=" + chat);
    std::string lines;
    const Log log([&](LogLevel, const std::string& line) { lines += line + "\n"; });
    open_run(posix_files(), parse_config("", "a.yaml", sets), {.data = {.log = log}});
    const size_t at = lines.find("read as text");
    return at == lines.npos ? "" : lines.substr(at, lines.find(':', at) - at);
  };
  EXPECT_EQ(told("json", ""), "read as text, with its braces and keys");
  EXPECT_EQ(told("json", "none"), "");
  EXPECT_EQ(told("json", "plain"), "");
  EXPECT_EQ(told("table", ""), "read as text, with its names and separators");
  EXPECT_EQ(told("table", "plain"), "read as text, with its names and separators");
  EXPECT_EQ(told("table", "none"), "");
}

// Evaluations predict what training predicts.
TEST(RunSetup, evaluation_leaves_out_labels_as_training_does) {
  const test::ScratchFolder folder;
  const std::string a = folder.put("a", "abc"), b = folder.put("b", "defg");
  const TokenStream text =
      open_dataset(posix_files(), {.train = {a, b}, .val_fraction = 0}, *byte_tokenizer()).train;
  const auto labels = [&](const std::string& boundaries) {
    const RunConfig config = config_with({"model.seq=6", "data.document_boundaries=" + boundaries});
    return make_eval_rows(text, config, 100)->at(0, 1).ints("labels");
  };
  using Labels = std::vector<int32_t>;
  EXPECT_EQ(labels("ignore"), (Labels{'b', 'c', 'd', 'e', 'f', 'g'}));
  EXPECT_EQ(labels("mask_labels"), (Labels{'b', 'c', -1, 'e', 'f', 'g'}));
}

// Samples count as such, however large they are.
TEST(RunSetup, evaluation_reads_all_samples_or_as_many_as_asked_for) {
  TokenRows rows;
  for (int i = 0; i < 9; ++i) rows.add_row(std::vector<int32_t>(64, i), {});
  Dataset data;
  data.train_rows = data.val_rows = token_rows(std::move(rows), {});
  const auto amount = [&](const std::vector<std::string>& sets) {
    const RunConfig config = config_with(sets);
    const EvalAmount result = eval_amount(data, config, {});
    EXPECT_EQ(make_eval_rows(data, config, {})->n_rows(), result.n);
    return result;
  };
  EXPECT_EQ(amount({"train.eval_bytes=1", "model.seq=64"}).text(), "all 9 samples");
  EXPECT_EQ(amount({"train.eval_rows=4", "model.seq=64"}).text(), "4 of 9 samples");
  EXPECT_TRUE(amount({"train.eval_rows=10", "model.seq=64"}).is_all());
}

TEST(RunSetup, evaluation_says_how_much_text_it_reads) {
  const test::ScratchFolder folder;
  const std::string text = folder.put("text.txt", std::string(100, 'a'));
  const RunConfig config =
      config_with({"data.train=[" + text + "]", "data.val_fraction=0.5", "train.eval_bytes=20"});
  const ModelSpec spec{.vocab = 256};
  EXPECT_EQ(eval_amount(open_run_data(posix_files(), config, spec), config, spec).text(),
            "20 of 50 tokens");
  RunConfig limited = config;
  limited.train.eval_rows = 1;
  EXPECT_EQ(error_of([&] { open_run_data(posix_files(), limited, spec); }),
            "train.eval_rows: expected 0 for text of a decoder, of which train.eval_bytes says how "
            "much is read, got 1");
}

TEST(RunSetup, errors_name_the_key) {
  EXPECT_EQ(error_of([] { open_run_data(posix_files(), config_with({}), ModelSpec{}); }),
            "data.train: expected files or folders, got none");
  const test::ScratchFolder folder;
  const RunConfig config =
      config_with({"data.train=[" + folder.put("a.txt", "some text") + "]", "model.vocab=256"});
  EXPECT_EQ(error_of([&] { open_run_data(posix_files(), config, ModelSpec{.vocab = 200}); }),
            "model.vocab: expected at least the tokenizer's 256, got 200");
}

std::string tokens_of(const TokenStream& stream) {
  std::vector<int32_t> tokens(static_cast<size_t>(stream.n_tokens()));
  std::vector<uint8_t> starts(tokens.size());
  stream.read(0, tokens, starts);
  return {tokens.begin(), tokens.end()};
}

TEST(LocalText, is_a_bounded_sample_of_readable_files_in_a_fixed_order) {
  const test::ScratchFolder folder;
  for (int i = 0; i < 40; ++i) {
    folder.put(fmt::format("a/{}.txt", i), std::string(10000, static_cast<char>('A' + i)));
  }
  folder.put("a/image.png", std::string("\x89PNG\0\xff", 6));
  folder.put("a/long.txt", std::string(60000, '!'));
  const LocalTextOptions options{.paths = {folder / "a", folder / "missing"},
                                 .max_bytes = 200000,
                                 .max_file_bytes = 50000,
                                 .val_fraction = 0.1};
  const Dataset data = collect_local_text(posix_files(), options);
  EXPECT_EQ(data.n_sources, 20);
  EXPECT_EQ(data.val.n_tokens(), 20000);
  EXPECT_EQ(data.train.n_tokens(), 180000);
  const std::string train = tokens_of(data.train);
  EXPECT_EQ(train.find('!'), std::string::npos);
  EXPECT_EQ(train.find(tokens_of(data.val)[0]), std::string::npos);  // no file on both sides
  EXPECT_EQ(tokens_of(collect_local_text(posix_files(), options).train), train);
}

TEST(LocalText, too_little_text_is_an_error) {
  const test::ScratchFolder folder;
  folder.put("a/b.txt", "short");
  EXPECT_EQ(error_of([&] { collect_local_text(posix_files(), {.paths = {folder / "a"}}); },
                     folder.path()),
            "[data] expected at least 65536 bytes of text under DIR/a, got 5; --data names others");
}

// Only the text that a recipe names is the user's to bring.
TEST(RunSetup, every_shipped_recipe_opens_a_text_as_its_data) {
  const test::ScratchFolder folder;
  const std::string text = folder.put("text.txt", std::string(100000, 'a'));
  const std::string recipes = OCTET_SOURCE_DIR "/recipes/";
  for (const DirectoryEntry& entry : posix_files().list(recipes)) {
    if (!entry.name.ends_with(".yaml")) continue;
    SCOPED_TRACE(entry.name);
    if (entry.name.starts_with("finetune-")) continue;  // conversations, and a model of the user's
    if (entry.name.starts_with("resnet") || entry.name.starts_with("pictures-")) continue;
    const std::vector<std::string> sets = {"data.train=[" + text + "]", "data.val=[" + text + "]"};
    const RunConfig config = load_config(recipes + entry.name, sets).config;
    const bool has_shape = config.model.path.empty();  // continue.yaml names a folder of the user's
    const ModelSpec spec =
        has_shape ? model_from_config(posix_files(), config) : ModelSpec{.vocab = 50304};
    EXPECT_EQ(open_run_data(posix_files(), config, spec).train.n_tokens(), 100000);
  }
}

}  // namespace
}  // namespace octet::train_run_setup_test
