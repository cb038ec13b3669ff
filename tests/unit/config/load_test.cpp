#include "config/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "base/philox.h"
#include "config/report.h"
#include "config/table.h"
#include "config/value.h"
#include "nn/other_kinds.h"
#include "passes/precision/recipe.h"
#include "unit/base/error_of.h"

namespace octet::config_load_test {
namespace {

using test::error_of;

const std::string kSource = OCTET_SOURCE_DIR;

TEST(Config, reads_every_kind_of_value) {
  const RunConfig config =
      parse_config(
          "model: {kind: olmo, tied: true, norm_eps: 1.0e-6, rope_scaling: {type: linear, "
          "factor: 2}}\n"
          "recipe: coat\n"
          "optim: {betas: [0.8, 0.9], lr: 3.0e-4}\n"
          "data: {train: [a.txt, \"b c.txt\"], val: v.txt}\n"
          "train: {memory_budget: 1.5 GiB}\n"
          "out: runs/x\n",
          "run.yaml")
          .config;
  EXPECT_EQ(config.model.kind, ModelKind::olmo);
  EXPECT_TRUE(config.model.tied);
  EXPECT_EQ(config.model.norm_eps, 1e-6);
  EXPECT_EQ(config.model.rope_scaling, RopeScaling::linear);
  EXPECT_EQ(config.model.rope_factor, 2.0);
  EXPECT_EQ(config.recipe.base, "coat");
  EXPECT_EQ(config.optim.betas, (std::array<double, 2>{0.8, 0.9}));
  EXPECT_EQ(config.optim.lr, 3e-4);
  EXPECT_EQ(config.data.train, (std::vector<std::string>{"a.txt", "b c.txt"}));
  EXPECT_EQ(config.data.val, (std::vector<std::string>{"v.txt"}));
  EXPECT_EQ(config.train.memory_budget, 3ll << 29);
  EXPECT_EQ(config.out, "runs/x");
}

TEST(Config, a_loss_is_a_name_or_several_with_weights) {
  const auto losses = [](const std::string& value) {
    const LoadedConfig loaded = parse_config("train: {loss: " + value + "}", "run.yaml");
    EXPECT_EQ(value_text(*find_config_row("train.loss"), loaded.config), value);
    return loaded.config.train.loss;
  };
  EXPECT_TRUE(losses("auto").empty());
  EXPECT_EQ(losses("classes"), (std::vector<WeightedLoss>{{.name = "classes"}}));
  EXPECT_EQ(losses("{pairwise: 1, next_token: 0.25}"),
            (std::vector<WeightedLoss>{{.name = "pairwise"}, {"next_token", 0.25}}));
}

TEST(Config, default_warmup_fits_a_short_run) {
  EXPECT_EQ(parse_config("train: {steps: 49}", "run.yaml").config.optim.warmup, 4);
  EXPECT_EQ(parse_config("train: {steps: 50}", "run.yaml").config.optim.warmup, 50);
}

TEST(Config, warmup_of_a_file_fits_the_steps_of_the_command_line) {
  const std::string file = "train: {steps: 300}\noptim: {warmup: 20}\n";
  const auto warmup = [&](const std::vector<std::string>& sets) {
    return parse_config(file, "run.yaml", sets).config.optim.warmup;
  };
  EXPECT_EQ(warmup({}), 20);
  EXPECT_EQ(warmup({"train.steps=20"}), 20);
  EXPECT_EQ(warmup({"train.steps=19"}), 1);
  EXPECT_EQ(warmup({"train.steps=10"}), 1);
  EXPECT_THROW(warmup({"train.steps=10", "optim.warmup=20"}), Error);
  EXPECT_EQ(parse_config(file, "run.yaml", {"train.steps=10"}).source.at("optim.warmup"),
            "derived");
}

TEST(Config, empty_file_gives_resolved_defaults) {
  RunConfig expected;
  resolve(expected);
  EXPECT_EQ(parse_config("", "run.yaml").config, expected);
  EXPECT_EQ(expected.model.kv_heads, 8);
  EXPECT_EQ(expected.model.head_dim, 64);
  EXPECT_EQ(expected.model.ffn, 1408);
  EXPECT_EQ(expected.data.sampling, WindowOrder::shuffled);
}

TEST(Config, recipe_decides_what_is_not_written) {
  for (const Recipe* recipe : all_recipes()) {
    const RunConfig config =
        parse_config(fmt::format("recipe: {}", recipe->name), "run.yaml").config;
    EXPECT_EQ(config.optim.state_m, recipe->state) << recipe->name;
    EXPECT_EQ(config.optim.state_v, recipe->state_v.empty() ? recipe->state : recipe->state_v)
        << recipe->name;
    EXPECT_EQ(enum_name(config.optim.master.value()), default_master(*recipe)) << recipe->name;
    EXPECT_EQ(config.recipe.scaling, recipe->scaling) << recipe->name;
  }
  const RunConfig coat = parse_config("{recipe: coat, optim: {state_m: de8+x}}", "run.yaml").config;
  EXPECT_EQ(coat.optim.state_m, "de8+x");
  EXPECT_EQ(coat.optim.state_v, "e4m3+x");
  EXPECT_EQ(coat.optim.master, Master::bf16_remainder);
  EXPECT_EQ(parse_config("recipe: fp32", "run.yaml").config.optim.master, Master::fp32);
}

// Names that a table lists must be those that the parser takes, whatever else registries learn.
TEST(ConfigTable, every_listed_name_is_accepted_and_stays) {
  for (const ConfigRow& row : config_rows()) {
    const auto* field = std::get_if<const ModelField*>(&row.field);
    if (field != nullptr && !kind_has(**field, {})) continue;  // refused without its kind
    for (const std::string& name : row_names(row)) {
      const std::string set = fmt::format("{}={}", row.path, name);
      if (name == "adapter") continue;  // needs adapters, and they a model's folder
      // Choices of recipes of eight bits alone, but for f32.
      const bool is_choice = row.path == "recipe.compute" || row.path == "recipe.activations";
      const bool is_of_scales = row.path == "recipe.rescale" ||
                                row.path == "recipe.scale_rounding" ||
                                row.path == "recipe.scaled_gradient" || name == "fp16_sr";
      const bool is_static = row.path == "recipe.activation_scale";
      const std::string recipe = is_choice      ? name == "f32" ? "fp32" : "hif8"
                                 : is_of_scales ? "scalify_fp16"
                                 : is_static    ? "coat-static"
                                                : "bf16";
      std::vector<std::string> sets = {set};
      if (name == "longrope") {
        const std::string ones = fmt::format("[{}]", fmt::join(std::vector<int>(32, 1), ", "));
        sets.push_back("model.rope_scaling.short_factor=" + ones);
        sets.push_back("model.rope_scaling.long_factor=" + ones);
      }
      const RunConfig config =
          parse_config("{recipe: {base: " + recipe + "}}", "run.yaml", sets).config;
      const auto values = config_values(config);
      const auto at = std::ranges::find(values, row.path, [](const auto& v) { return v.first; });
      if (name != "auto" && name != "usual") {
        EXPECT_EQ(at->second, name) << set;
      }
    }
  }
}

TEST(Config, set_wins_over_the_file_and_the_last_set_wins) {
  const auto loaded =
      parse_config("train: {steps: 500, batch: 2}\nrecipe: {base: bf16, scaling: delayed}\n",
                   "run.yaml", {"train.steps=600", "train.steps=700", "recipe=coat"});
  EXPECT_EQ(loaded.config.train.steps, 700);
  EXPECT_EQ(loaded.config.train.batch, 2);
  EXPECT_EQ(loaded.config.recipe.base, "coat");
  EXPECT_EQ(loaded.config.recipe.scaling, Scaling::delayed);
}

TEST(Config, set_takes_lists_maps_and_single_overrides) {
  const RunConfig config =
      parse_config(
          "recipe: {base: coat, override: {a: bf16, b: bf16}}", "run.yaml",
          {"data.train=[x, y]", "model={hidden: 64, heads: 4}", "recipe.override.a={x: e5m2}"})
          .config;
  EXPECT_EQ(config.data.train, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(config.model.hidden, 64);
  EXPECT_EQ(config.model.heads, 4);
  ASSERT_EQ(config.recipe.overrides.size(), 2u);
  EXPECT_EQ(config.recipe.overrides[0].pattern, "b");
  EXPECT_EQ(config.recipe.overrides[1].pattern, "a");
  EXPECT_EQ(config.recipe.overrides[1].formats[0].second, "e5m2");
}

TEST(Config, overrides_keep_their_order) {
  const RunConfig config = parse_config(
                               "recipe:\n  base: coat\n  override:\n    z.*: bf16\n    a.*: {x: "
                               "hif8, dy: e5m2}\n    m: bf16\n",
                               "run.yaml")
                               .config;
  const auto& lines = config.recipe.overrides;
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], (RecipeOverride{"z.*", "bf16", {}}));
  EXPECT_EQ(lines[1], (RecipeOverride{"a.*", "", {{"x", "hif8"}, {"dy", "e5m2"}}}));
  EXPECT_EQ(lines[2], (RecipeOverride{"m", "bf16", {}}));
}

TEST(Config, remembers_where_each_value_came_from) {
  const auto loaded =
      parse_config("model:\n  hidden: 64\n  heads: 4\n", "run.yaml", {"train.seed=7"});
  EXPECT_EQ(loaded.source.at("model.hidden"), "run.yaml:2");
  EXPECT_EQ(loaded.source.at("model.heads"), "run.yaml:3");
  EXPECT_EQ(loaded.source.at("model.kv_heads"), "derived");
  EXPECT_EQ(loaded.source.at("model.vocab"), "default");
  EXPECT_EQ(loaded.source.at("train.seed"), "--set");
}

TEST(Config, resolved_file_parses_back_to_the_same_configuration) {
  const std::string texts[] = {
      "",
      "model: {path: \"a \\\"b\\\"\\\\c\", seq: 99}\n",
      "recipe: {base: coat, weight_copy: per_step, override: {\"layers.0.*\": bf16, \"*.x\": {w: "
      "e5m2}}}\n",
      "optim: {lr: 0.1, eps: 1.0e-30, betas: [0.333333333333333314829616256247, 0]}\n",
      "data: {train: [\"null\", \"~\", \"a: b\", \"\", \"\\t\"], shuffle: false}\n",
      "model: {kind: olmo, rope_scaling: {type: llama3, factor: 8}}\ntrain: {memory_budget: 3 "
      "KiB}\n"};
  for (const std::string& text : texts) {
    const RunConfig config = parse_config(text, "run.yaml").config;
    const std::string resolved = resolved_yaml(config);
    EXPECT_EQ(parse_config(resolved, "resolved.yaml").config, config) << resolved;
    EXPECT_EQ(resolved_yaml(parse_config(resolved, "resolved.yaml").config), resolved);
  }
}

TEST(Config, missing_file_is_a_mistake_of_usage) {
  try {
    load_config("/nonexistent/run.yaml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  }
}

TEST(Config, every_shipped_recipe_is_valid_and_survives_the_round_trip) {
  const std::string names[] = {"llama-25m",   "llama-124m", "llama-1.2b", "llama-2-7b",
                               "llama-2-13b", "llama-30b",  "olmo-1b",    "gpt2-124m"};
  for (const std::string& name : names)
    EXPECT_TRUE(posix_files().exists(kSource + "/recipes/" + name + ".yaml"));
  int n_files = 0;
  for (const char* folder : {"/recipes/", "/recipes/scalify/", "/recipes/unit_scaling/"}) {
    for (const DirectoryEntry& entry : posix_files().list(kSource + folder)) {
      if (!entry.name.ends_with(".yaml")) continue;
      const RunConfig config = load_config(kSource + folder + entry.name).config;
      EXPECT_EQ(parse_config(resolved_yaml(config), entry.name).config, config) << entry.name;
      const RunConfig trial = load_config(kSource + folder + entry.name, {"train.steps=10"}).config;
      EXPECT_LE(trial.optim.warmup, 10) << entry.name;
      ++n_files;
    }
  }
  EXPECT_GE(n_files, 18);
}

TEST(Config, scaled_gradients_and_states_want_values_that_carry_scales) {
  const auto fault = [](const std::string& text) -> std::string {
    try {
      parse_config(text, "run.yaml");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(fault("recipe: {base: bf16, rescale: norms}"), testing::HasSubstr("recipe.rescale"));
  EXPECT_THAT(fault("recipe: {base: scalify_fp8, scaled_gradient: e5m2}"),
              testing::HasSubstr("recipe.rescale"));
  EXPECT_EQ(fault("recipe: {base: scalify_fp8, compute: fp16, scaled_gradient: e5m2}"), "");
  EXPECT_THAT(fault("{recipe: bf16, optim: {master: fp16_sr}}"),
              testing::HasSubstr("optim.master: expected auto or another for bf16 weights "
                                 "(fp16_sr is of fp16 ones), got fp16_sr"));
  EXPECT_EQ(fault("{recipe: scalify, optim: {master: fp16_sr, state_v: fp16_sr}}"), "");
  EXPECT_EQ(fault("{recipe: scalify, optim: {state_v: fp16_sr}, parallel: {ranks: 2}}"), "");
  EXPECT_THAT(fault("{recipe: scalify, optim: {master: fp16_scaled}}"),
              testing::HasSubstr("optim.master: expected auto or another for fp16 weights "
                                 "(fp16_scaled is of bf16 ones), got fp16_scaled"));
}

// Bytes of a sound file replaced, removed or doubled: it loads or gives an Error of one line.
TEST(Config, damaged_files_give_one_line_or_load) {
  const std::string sound = posix_files().read_text(kSource + "/recipes/llama-25m.yaml");
  const std::string alphabet = "{}[]:,\"'#&*!|>-?% \n\t~0a\xff";
  const RandomStream random{.name = name_hash("damage")};
  int n_errors = 0;
  for (uint64_t trial = 0; trial < 2000; ++trial) {
    std::string text = sound;
    for (uint64_t edit = 0; edit < 1 + trial % 4; ++edit) {
      const uint64_t draw = 16 * trial + 3 * edit;
      const size_t at = random.bits(draw) % text.size();
      const char ch = alphabet[random.bits(draw + 1) % alphabet.size()];
      switch (random.bits(draw + 2) % 3) {
        case 0:
          text[at] = ch;
          break;
        case 1:
          text.erase(at, 1 + random.bits(draw + 1) % 20);
          break;
        default:
          text.insert(at, 1, ch);
          break;
      }
    }
    try {
      parse_config(text, "run.yaml");
    } catch (const Error& error) {
      ++n_errors;
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(n_errors, 200);
}

TEST(Config, files_are_bounded_in_levels_and_aliases) {
  const auto read = [](const std::string& text, const YamlLimits& limits) {
    return error_of([&] { parse_config(text, "a.yaml", {}, limits); });
  };
  const std::string lists = "recipe: fp32\noptim: {betas: &b [0.5, 0.6]}\n";
  EXPECT_EQ(read(lists, {.max_depth = 3}), "no error");
  EXPECT_EQ(read(lists, {.max_depth = 2}), "a.yaml:2: expected at most 2 levels, got more");
  const std::string twice = "data: {train: [&a x, *a, *a]}\n";
  EXPECT_EQ(read(twice, {.max_aliases = 2}), "no error");
  EXPECT_EQ(read(twice, {.max_aliases = 1}), "a.yaml:1: expected at most 1 aliases, got more");
  EXPECT_EQ(error_of([] { parse_config("", "a.yaml", {"data.train=[[[a]]]"}, {.max_depth = 2}); }),
            "--set data.train:1: expected at most 2 levels, got more");
}

TEST(ConfigTable, documentation_page_is_up_to_date) {
  EXPECT_TRUE(posix_files().read_text(kSource + "/docs/configuration.md") ==
              configuration_markdown())
      << "run: build/octet docs configuration > docs/configuration.md";
}

TEST(ConfigTable, every_row_has_one_path_a_section_and_help) {
  std::vector<std::string_view> paths;
  for (const ConfigRow& row : config_rows()) {
    EXPECT_EQ(std::ranges::count(paths, row.path), 0) << row.path;
    paths.push_back(row.path);
    EXPECT_FALSE(row.help.empty()) << row.path;
    const std::string_view section = row.path.substr(0, row.path.find('.'));
    EXPECT_EQ(std::ranges::count(config_sections(), section, &ConfigSection::name), 1) << row.path;
  }
}

// Beyond 2^53 a bound, a double, would not be exact, and beyond f32 a kernel would read infinity.
TEST(ConfigTable, every_number_has_two_bounds_and_refuses_what_lies_beyond) {
  for (const ConfigRow& row : config_rows()) {
    const std::string kind = expected_text(row);
    const bool is_count = std::holds_alternative<int64_t& (*)(RunConfig&)>(row.field) ||
                          kind.starts_with("an integer");
    if (!is_count && !kind.starts_with("a number")) continue;
    for (const char* value : {"1e300", "-1e300", "nan", "-inf"}) {
      const std::string set = std::string(row.path) + "=" + value;
      EXPECT_THROW(parse_config("", "a.yaml", {set}), Error) << set;
    }
    for (const char* value : {"9223372036854775807", "-9223372036854775808"}) {
      const std::string set = std::string(row.path) + "=" + value;
      if (is_count) {
        EXPECT_THROW(parse_config("", "a.yaml", {set}), Error) << set;
      }
    }
    EXPECT_TRUE(row.limits.names != nullptr || row.limits.bounds.high <= 0x1p53 || !is_count)
        << row.path;
  }
}

TEST(ConfigTable, counts_that_an_int_would_cut_are_refused) {
  for (const char* key : {"train.keep", "train.steps", "train.log_every", "train.spike_window"}) {
    for (const char* value : {"4294967297", "2147483648"}) {
      EXPECT_THROW(parse_config("", "a.yaml", {std::string(key) + "=" + value}), Error) << key;
    }
  }
}

TEST(ConfigTable, help_names_every_key) {
  const std::string help = configuration_help();
  for (const ConfigRow& row : config_rows()) {
    EXPECT_NE(help.find("  " + std::string(row.path) + " = "), std::string::npos) << row.path;
  }
}

TEST(Nearest, distance_counts_edits_and_swaps) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("hidden", "hidden"), 0);
  EXPECT_EQ(edit_distance("hiden", "hidden"), 1);
  EXPECT_EQ(edit_distance("hiddne", "hidden"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

struct NearCase {
  std::string word;
  std::vector<std::string> known;
  std::string nearest;
};

TEST(Nearest, synonyms_come_before_parts_and_those_before_slips) {
  const NearCase cases[] = {
      {"tran", {"eval", "train", "plan"}, "train"},
      {"lr", {"out", "optim.lr"}, "optim.lr"},
      {"x", {}, ""},
      {"", {"out"}, ""},
      {"optim.learning_rate", {"optim.warmup_share", "optim.lr"}, "optim.lr"},
      {"fp8", {"fp32", "bf16", "fp8_linear"}, "fp8_linear"},
      {"fp8", {"f32", "e4m3", "e5m2"}, "e4m3"},
      {"int4", {"fp32", "int8"}, ""},
      {"E4M3", {"e4m3"}, "e4m3"},
      {"--max-new-tokens", {"--max-tokens"}, "--max-tokens"},
      {"batchsize", {"train.batch"}, "train.batch"},
      {"e3m4", {"e4m3"}, ""},          // numbers are never corrected
      {"llama-3b", {"llama-3m"}, ""},  // nor their units
      {"llama-7b", {"llama-3m", "llama-2-7b"}, "llama-2-7b"},
      {"merge", {"serve", "generate"}, ""},  // far apart, though two edits away
      {"trian.stpes", {"train.epochs", "train.steps"}, "train.steps"},
      {"mixtral", {"mistral"}, ""},  // another model, one letter away
  };
  for (const NearCase& one : cases)
    EXPECT_EQ(nearest_name(one.word, one.known), one.nearest) << one.word;
}

// Words of the table that are written so that nothing finds them would be dead rows.
TEST(Nearest, synonyms_are_in_small_letters_with_underscores) {
  std::set<std::string> seen;
  for (const Synonym& row : synonyms()) {
    for (const char ch : row.words) EXPECT_TRUE(ch != '-' && (ch < 'A' || ch > 'Z')) << row.words;
    EXPECT_TRUE(seen.insert(std::string(row.words) + "|" + std::string(row.known)).second)
        << row.words;
  }
}

// Arrays are of any vocabulary: no tokenizer makes them.
TEST(Config, a_vocabulary_below_the_bytes_is_one_of_arrays) {
  const auto config =
      parse_config("model: {vocab: 16}\ndata: {train: [a.safetensors]}\n", "run.yaml").config;
  EXPECT_EQ(config.model.vocab, 16);
}

}  // namespace
}  // namespace octet::config_load_test
