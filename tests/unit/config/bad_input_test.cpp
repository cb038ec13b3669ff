// Bad configurations and the exact line that each one gives. In a line, <key> stands for what the
// row of that key expects, so that lists of names stand in their registries alone.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "config/load.h"
#include "config/names.h"
#include "config/table.h"

namespace octet::config_bad_input_test {
namespace {

struct BadInput {
  std::string name;
  std::string text;
  std::vector<std::string> sets;
  std::string line;
};

void PrintTo(const BadInput& input, std::ostream* out) {
  *out << input.name;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::string expanded(std::string line) {
  for (const ConfigRow& row : config_rows()) {
    line = replaced(line, fmt::format("<{}>", row.path), expected_text(row));
  }
  line = replaced(line, "<recipes>", fmt::format("{}", fmt::join(override_recipe_names(), ", ")));
  return replaced(line, "<formats>", fmt::format("{}", fmt::join(override_formats(), ", ")));
}

class BadConfiguration : public testing::TestWithParam<BadInput> {};

TEST_P(BadConfiguration, is_one_exact_line) {
  const BadInput& input = GetParam();
  try {
    parse_config(input.text, "run.yaml", input.sets);
    FAIL() << "accepted: " << input.text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(std::string(error.what()), expanded(input.line));
  }
}

const BadInput kTypes[] = {
    {"integer_is_text",
     "model:\n  hidden: wide\n",
     {},
     "run.yaml:2: model.hidden: expected an integer in [1, 1048576], got 'wide'"},
    {"integer_is_quoted",
     "model: {hidden: \"512\"}\n",
     {},
     "run.yaml:1: model.hidden: expected an integer in [1, 1048576], got '512'"},
    {"integer_has_fraction",
     "train:\n  batch: 8.5\n",
     {},
     "run.yaml:2: train.batch: expected an integer in [1, 1048576], got '8.5'"},
    {"integer_has_exponent",
     "train: {steps: 1e3}\n",
     {},
     "run.yaml:1: train.steps: expected an integer in [1, 2147483647], got '1e3'"},
    {"integer_is_a_list",
     "model: {layers: [1, 2]}\n",
     {},
     "run.yaml:1: model.layers: expected an integer in [1, 4096], got a list of 2"},
    {"integer_is_missing",
     "model:\n  layers:\n",
     {},
     "run.yaml:2: model.layers: expected an integer in [1, 4096], got nothing"},
    {"integer_overflows",
     "train: {steps: 99999999999999999999}\n",
     {},
     "run.yaml:1: train.steps: expected an integer in [1, 2147483647], got '99999999999999999999'"},
    {"number_is_text",
     "optim:\n\n  lr: fast\n",
     {},
     "run.yaml:3: optim.lr: expected a number in (0, 1000], got 'fast'"},
    {"number_is_nan",
     "optim: {lr: .nan}\n",
     {},
     "run.yaml:1: optim.lr: expected a number in (0, 1000], got '.nan'"},
    {"number_is_infinite",
     "optim: {lr: inf}\n",
     {},
     "run.yaml:1: optim.lr: expected a number in (0, 1000], got 'inf'"},
    {"boolean_is_yes",
     "model: {tied: yes}\n",
     {},
     "run.yaml:1: model.tied: expected true or false, got 'yes'"},
    {"boolean_is_a_number",
     "model: {tied: 1}\n",
     {},
     "run.yaml:1: model.tied: expected true or false, got '1'"},
    {"name_is_a_map",
     "model: {kind: {a: b}}\n",
     {},
     "run.yaml:1: model.kind: expected <model.kind>, got a map"},
    {"text_is_a_list", "out: [a]\n", {}, "run.yaml:1: out: expected text, got a list of 1"},
    {"betas_are_one_number",
     "optim: {betas: [0.9]}\n",
     {},
     "run.yaml:1: optim.betas: expected a list of two numbers in [0, 1), got a list of 1"},
    {"files_are_a_map",
     "data:\n  train: {a: b}\n",
     {},
     "run.yaml:2: data.train: expected a list of names or of {path: FILE, weight: W}, got a map"},
    {"file_is_a_list",
     "data: {train: [a, [b]]}\n",
     {},
     "run.yaml:1: data.train: expected a list of names or of {path: FILE, weight: W}, got a list "
     "of 1 "
     "in it"},
    {"file_of_weight_0",
     "data: {train: [a, {path: b, weight: 0}]}\n",
     {},
     "run.yaml:1: data.train.weight: expected a number in (0, 1000], got '0'"},
    {"file_without_a_path",
     "data: {train: [{weight: 2}]}\n",
     {},
     "run.yaml:1: data.train: expected a list of names or of {path: FILE, weight: W}, got a map "
     "without a path in it"},
    {"section_is_a_scalar",
     "model: llama\n",
     {},
     "run.yaml:1: model: expected a map of model keys, got 'llama'"},
    {"root_is_a_list", "- model\n", {}, "run.yaml: expected a map of sections, got a list of 1"},
    {"key_is_a_list",
     "model: {[a]: 1}\n",
     {},
     "run.yaml:1: expected a name as key, got a list of 1"},
    {"two_documents",
     "out: a\n---\nout: b\n",
     {},
     "run.yaml:2: expected the end of the document, got more"},
    {"syntax",
     "model: {hidden: 1\n",
     {},
     "run.yaml:2: expected YAML, got a syntax error: end of map flow not found"},
};

const BadInput kRanges[] = {
    {"zero_layers",
     "model: {layers: 0}\n",
     {},
     "run.yaml:1: model.layers: expected an integer in [1, 4096], got '0'"},
    {"learning_rate_zero",
     "optim: {lr: 0}\n",
     {},
     "run.yaml:1: optim.lr: expected a number in (0, 1000], got '0'"},
    {"beta_is_one",
     "optim: {betas: [0.9, 1.0]}\n",
     {},
     "run.yaml:1: optim.betas: expected a list of two numbers in [0, 1), got '1.0' in it"},
    {"final_rate_above_one",
     "optim: {final_lr: 1.5}\n",
     {},
     "run.yaml:1: optim.final_lr: expected a number in [0, 1], got '1.5'"},
    {"unknown_kind",
     "model: {kind: lama}\n",
     {},
     "run.yaml:1: model.kind: expected <model.kind>, got 'lama'; the nearest is llama"},
    {"unknown_recipe",
     "recipe: caot\n",
     {},
     "run.yaml:1: recipe: expected <recipe.base>, got 'caot'; the nearest is coat"},
    {"planned_recipe",
     "",
     {"recipe=coat-fasd"},
     "--set: recipe: expected <recipe.base>, got 'coat-fasd'; the nearest is coat-fast"},
    {"unknown_schedule",
     "optim: {schedule: cosin}\n",
     {},
     "run.yaml:1: optim.schedule: expected <optim.schedule>, got 'cosin'; the nearest is cosine"},
    {"unknown_state",
     "optim: {state_m: e4m3x}\n",
     {},
     "run.yaml:1: optim.state_m: expected <optim.state_m>, got 'e4m3x'; the nearest is e4m3"},
    {"tokens_of_one_byte",
     "data: {token_bytes: 1}\n",
     {},
     "run.yaml:1: data.token_bytes: expected one of 0, 2, 4, got '1'"},
    {"unknown_group",
     "optim: {group: 100}\n",
     {},
     "run.yaml:1: optim.group: expected one of 64, 128, 256, got '100'"},
    {"budget_with_wrong_suffix",
     "train: {memory_budget: 4 GB}\n",
     {},
     "run.yaml:1: train.memory_budget: expected an integer in [0, 1125899906842624], got '4 GB'"},
    {"seed_is_negative",
     "",
     {"train.seed=-1"},
     "--set: train.seed: expected an integer in [0, 4294967295], got '-1'"},
    {"long_value_is_cut",
     "model: {kind: " + std::string(100, 'x') + "}\n",
     {},
     "run.yaml:1: model.kind: expected <model.kind>, got '" + std::string(60, 'x') + "...'"},
    {"control_characters_are_blanks",
     "model: {kind: \"a\\nb\"}\n",
     {},
     "run.yaml:1: model.kind: expected <model.kind>, got 'a b'"},
};

const BadInput kKeys[] = {
    {"misspelt_key",
     "model:\n  kind: llama\n  hiden: 512\n",
     {},
     "run.yaml:3: model.hiden: unknown key, the nearest known key is model.hidden"},
    {"misspelt_section",
     "modle: {hidden: 512}\n",
     {},
     "run.yaml:1: modle: unknown key, the nearest known key is model"},
    {"key_outside_its_section",
     "lr: 1.0e-3\n",
     {},
     "run.yaml:1: lr: unknown key, the nearest known key is optim.lr"},
    {"key_in_another_section",
     "train: {weight_decay: 0.1}\n",
     {},
     "run.yaml:1: train.weight_decay: unknown key, the nearest known key is optim.weight_decay"},
    {"misspelt_nested_key",
     "model: {rope_scaling: {typ: none}}\n",
     {},
     "run.yaml:1: model.rope_scaling.typ: unknown key, the nearest known key is "
     "model.rope_scaling.type"},
    {"unknown_key_in_set",
     "",
     {"optim.warm=3"},
     "--set: optim.warm: unknown key, the nearest known key is optim.warmup"},
    {"dotted_key_in_file",
     "recipe: {override.a: bf16}\n",
     {},
     "run.yaml:1: recipe.override.a: unknown key, the nearest known key is recipe.override"},
    {"key_with_line_break",
     "\"model\\n\": 1\n",
     {},
     "run.yaml:1: model : unknown key, the nearest known key is model"},
    {"duplicate_key",
     "model:\n  seq: 1\n  kind: llama\n  seq: 2\n",
     {},
     "run.yaml:4: model.seq: duplicate key, first given on line 2"},
    {"duplicate_section",
     "out: a\nmodel: {seq: 1}\nmodel: {seq: 1}\n",
     {},
     "run.yaml:3: model: duplicate key, first given on line 2"},
    {"duplicate_key_in_set",
     "",
     {"model={seq: 1, seq: 2}"},
     "--set: model.seq: duplicate key, first given on line 1"},
    {"set_without_value", "", {"model.seq"}, "--set: expected KEY=VALUE, got 'model.seq'"},
    {"set_without_key", "", {"=3"}, "--set: expected KEY=VALUE, got '=3'"},
    {"set_with_empty_value",
     "",
     {"model.seq="},
     "--set: model.seq: expected a value after =, got nothing"},
};

const BadInput kOverrides[] = {
    {"override_is_a_list",
     "recipe: {override: [a]}\n",
     {},
     "run.yaml:1: recipe.override: expected a map from patterns to recipes or formats, got a list "
     "of 1"},
    {"override_of_unknown_recipe",
     "recipe:\n  override:\n    \"*\": bf17\n",
     {},
     "run.yaml:2: recipe.override.*: expected a map of formats or one of <recipes>, got "
     "'bf17'"},
    {"override_by_a_recipe_that_propagates_scales",
     "recipe: {base: coat, override: {a: scalify_fp8}}\n",
     {},
     "run.yaml:1: recipe.override.a: expected a map of formats or one of <recipes>, got "
     "'scalify_fp8'"},
    {"override_by_another_compute_type",
     "recipe:\n  base: coat\n  override: {a: fp32}\n",
     {},
     "run.yaml:3: recipe.override: expected a recipe that computes in bf16 as coat does, got fp32"},
    {"override_of_a_recipe_that_quantizes_nothing",
     "recipe:\n  base: bf16\n  override: {a: {x: e4m3}}\n",
     {},
     "run.yaml:3: recipe.override: expected a recipe that quantizes linears, got bf16"},
    {"override_of_unknown_role",
     "recipe: {override: {a: {z: e4m3}}}\n",
     {},
     "run.yaml:1: recipe.override.a: expected each of x, w, dy, sums at most once, got 'z'"},
    {"override_of_unknown_sums",
     "recipe: {override: {a: {sums: fats}}}\n",
     {},
     "run.yaml:1: recipe.override.a.sums: expected one of fast, promoted, got 'fats'; the nearest "
     "is fast"},
    {"override_of_sums_by_a_format",
     "recipe: {override: {a: {sums: e4m3}}}\n",
     {},
     "run.yaml:1: recipe.override.a.sums: expected one of fast, promoted, got 'e4m3'"},
    {"override_of_sums_without_quantized_linears",
     "recipe:\n  base: bf16\n  override: {a: {sums: fast}}\n",
     {},
     "run.yaml:3: recipe.override: expected a recipe that quantizes linears, got bf16"},
    {"accumulation_in_f32",
     "recipe: {accumulation: f32}\n",
     {},
     "run.yaml:1: recipe.accumulation: expected one of auto, promoted, forward, fast, got 'f32'"},
    {"override_twice",
     "recipe: {override: {a: bf16, a: fp32}}\n",
     {},
     "run.yaml:1: recipe.override.a: expected each pattern once, got a duplicate"},
    {"override_of_unknown_format",
     "recipe: {override: {a: {x: e3m4}}}\n",
     {},
     "run.yaml:1: recipe.override.a.x: expected one of <formats>, with /row, /1xG or /BxB "
     "behind it, or none, got 'e3m4'"},
    {"override_with_a_granularity_that_is_none",
     "",
     {"recipe.override.a={x: e4m3/2x128}"},
     "--set: recipe.override.a.x: expected one of <formats>, with /row, /1xG or /BxB behind "
     "it, or none, got 'e4m3/2x128'"},
    {"override_with_a_scale_a_column",
     "",
     {"recipe.override.a={x: e4m3/col}"},
     "--set: recipe.override.a.x: expected one of <formats>, with /row, /1xG or /BxB behind "
     "it, or none, got 'e4m3/col'; the nearest is e4m3"},
    {"override_of_a_format_that_needs_no_scale",
     "",
     {"recipe.override.a={x: bf16}"},
     "--set: recipe.override.a.x: expected one of <formats>, with /row, /1xG or /BxB behind "
     "it, or none, got 'bf16'"},
    {"override_without_roles",
     "recipe: {override: {a: {}}}\n",
     {},
     "run.yaml:1: recipe.override.a: expected at least one role, got an empty map"},
};

const BadInput kRelations[] = {
    {"unit_scaling_of_a_folder",
     "model: {path: folder}\nrecipe: unit_scaling\n",
     {},
     "run.yaml:1: model.path: expected none with recipe unit_scaling: a model's folder has other "
     "variances, got folder"},
    {"unit_scaling_of_a_tied_head",
     "recipe: unit_scaling\n",
     {"model.tied=true"},
     "--set: model.tied: expected false with recipe unit_scaling, got true"},
    {"unit_scaling_by_another_optimizer",
     "recipe: unit_scaling\noptim: {rules: [{match: '*.norm.weight', kind: sgd}]}\n",
     {},
     "run.yaml:2: optim.rules: expected kind adamw with recipe unit_scaling, got another"},
    {"unit_scaling_in_f32",
     "recipe: {base: unit_scaling, compute: f32}\n",
     {},
     "run.yaml:1: recipe.compute: expected bf16 or fp16 with recipe unit_scaling, got f32"},
    {"unit_scaling_of_blocks",
     "recipe: {base: unit_scaling, override: {'*': {x: e4m3/1x128}}}\n",
     {},
     "run.yaml:1: recipe.override: expected formats with one scale a tensor with recipe "
     "unit_scaling, whose factors join it, got scales of rows or blocks"},
    {"unit_scaling_exported",
     "recipe: unit_scaling\ntrain: {export: bf16}\n",
     {},
     "run.yaml:2: train.export: expected none with recipe unit_scaling, whose factors no model "
     "folder has a key for, got bf16"},
    {"heads_do_not_divide_hidden",
     "model:\n  hidden: 512\n  heads: 7\n",
     {},
     "run.yaml:3: model.heads: expected a divisor of model.hidden = 512, got 7"},
    {"hidden_is_not_divided",
     "model:\n  hidden: 500\n",
     {},
     "run.yaml:2: model.heads: expected a divisor of model.hidden = 500, got 8"},
    {"kv_heads_do_not_divide_heads",
     "model: {kv_heads: 3}\n",
     {},
     "run.yaml:1: model.kv_heads: expected a divisor of model.heads = 8, got 3"},
    {"grouped_heads_in_gpt2",
     "model: {kind: gpt2, kv_heads: 2}\n",
     {},
     "run.yaml:1: model.kv_heads: expected model.heads = 8 for kind gpt2, got 2"},
    {"odd_head",
     "model: {hidden: 24, heads: 8}\n",
     {},
     "run.yaml:1: model.head_dim: expected an even width of a head for rotary positions, got 3"},
    {"warmup_longer_than_run",
     "train: {steps: 10}\n\noptim: {warmup: 50}\n",
     {},
     "run.yaml:3: optim.warmup: expected at most train.steps = 10, got 50"},
    {"shape_beside_path",
     "model:\n  path: m\n  hidden: 512\n",
     {},
     "run.yaml:3: model.hidden: expected no shape key beside model.path, got 512"},
    {"sampling_against_shuffle",
     "data:\n  shuffle: true\n  sampling: sequential\n",
     {},
     "run.yaml:3: data.sampling: expected agreement with data.shuffle = true, got sequential"},
    {"fraction_beside_val",
     "data: {val: [v], val_fraction: 0.1}\n",
     {},
     "run.yaml:1: data.val_fraction: expected 0 beside data.val, got 0.1"},
    {"vocabulary_below_bytes",
     "",
     {"model.vocab=255"},
     "--set: model.vocab: expected >= 256 for the byte tokenizer, got 255"},
    {"frozen_beside_adapters",
     "model: {path: m}\nlora: {adapter: a}\ntrain: {freeze: [\"*norm*\"]}\n",
     {},
     "run.yaml:3: train.freeze: expected no patterns with lora.adapter, whose folder says what is "
     "trained, got [*norm*]"},
    {"loss_that_is_none",
     "train: {loss: pairwize}\n",
     {},
     "run.yaml:1: train.loss: expected <train.loss>, got 'pairwize'; the nearest is pairwise"},
    {"auto_among_losses",
     "train: {loss: {auto: 1, classes: 1}}\n",
     {},
     "run.yaml:1: train.loss: expected <train.loss>, got 'auto'"},
    {"weight_of_no_loss",
     "train: {loss: {classes: 0}}\n",
     {},
     "run.yaml:1: train.loss: expected a number in (0, 1000000], got '0'"},
    {"smoothing_of_the_whole_label",
     "",
     {"train.label_smoothing=1"},
     "--set: train.label_smoothing: expected <train.label_smoothing>, got '1'"},
    {"out_is_empty", "out: \"\"\n", {}, "run.yaml:1: out: expected a folder, got nothing"},
};

std::string name_of(const testing::TestParamInfo<BadInput>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(types, BadConfiguration, testing::ValuesIn(kTypes), name_of);
INSTANTIATE_TEST_SUITE_P(ranges, BadConfiguration, testing::ValuesIn(kRanges), name_of);
INSTANTIATE_TEST_SUITE_P(keys, BadConfiguration, testing::ValuesIn(kKeys), name_of);
INSTANTIATE_TEST_SUITE_P(overrides, BadConfiguration, testing::ValuesIn(kOverrides), name_of);
INSTANTIATE_TEST_SUITE_P(relations, BadConfiguration, testing::ValuesIn(kRelations), name_of);

}  // namespace
}  // namespace octet::config_bad_input_test
