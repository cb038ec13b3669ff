// OLMo's training files as configurations: what is used, what has no meaning, what is refused.
#include "config/olmo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/load.h"
#include "unit/base/error_of.h"

namespace octet::olmo_config {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Every value is off its default here and there.
constexpr const char* kOlmo = R"(run_name: OLMo-1B
seed: 6198
wandb: {name: "${run_name}", project: olmo-small}
model:
  d_model: 2048
  n_heads: 16
  n_layers: 12
  mlp_ratio: 8
  weight_tying: true
  rope: true
  include_bias: false
  residual_dropout: 0
  embedding_dropout: 0.0
  layer_norm_type: default
  layer_norm_with_affine: false
  activation_type: swiglu
  attention_dropout: 0.0
  max_sequence_length: 1024
  vocab_size: 50280
  embedding_size: 50304
  flash_attention: true
optimizer:
  name: adamw
  learning_rate: 4.0e-4
  weight_decay: 0.2
  betas:
  - 0.8
  - 0.95
scheduler: {name: cosine_with_warmup, t_warmup: 2000, alpha_f: 0.1}
tokenizer: {identifier: tokenizers/neox.json, truncate_direction: right}
max_duration: 739_328
global_train_batch_size: 2048
device_train_microbatch_size: 8
precision: amp_bf16
max_grad_norm: 0.5
save_interval: 1000
eval_interval: ${save_interval}
load_path: null
evaluators: [{label: piqa, type: downstream}]
data:
  num_workers: 0
  memmap_dtype: uint32
  paths:
    - a.npy
    - b.npy
)";

std::string with(const std::string& line) {
  return kOlmo + line + "\n";
}

std::string with_line(const std::string& from, const std::string& to, std::string text = kOlmo) {
  return text.replace(text.find(from), from.size(), to);
}

const std::vector<std::string> kWithout = {"model.init_fn", "scheduler.warmup_min_lr"};

RunConfig config_of(const std::string& text) {
  return parse_config(import_olmo(text, "olmo.yaml", kWithout).yaml, "made.yaml").config;
}

std::string refusal_of(const std::string& text) {
  return test::error_of([&] { import_olmo(text, "olmo.yaml", kWithout); });
}

TEST(Olmo, is_a_configuration_of_the_same_run) {
  const OlmoImport olmo = import_olmo(kOlmo, "olmo.yaml", kWithout);
  const RunConfig config = parse_config(olmo.yaml, "made.yaml").config;
  EXPECT_EQ(config.model.kind, ModelKind::olmo);
  EXPECT_EQ(config.model.hidden, 2048);
  EXPECT_EQ(config.model.layers, 12);
  EXPECT_EQ(config.model.heads, 16);
  EXPECT_EQ(config.model.ffn, 8192);  // 8 x hidden are gate and up
  EXPECT_EQ(config.model.vocab, 50304);
  EXPECT_EQ(config.model.seq, 1024);
  EXPECT_TRUE(config.model.tied);
  EXPECT_EQ(config.recipe.base, "bf16");
  EXPECT_EQ(config.optim.lr, 4e-4);
  EXPECT_EQ(config.optim.weight_decay, 0.2);
  EXPECT_EQ(config.optim.betas[0], 0.8);
  EXPECT_EQ(config.optim.clip, 0.5);
  EXPECT_EQ(config.optim.warmup, 2000);
  EXPECT_EQ(config.optim.final_lr, 0.1);
  EXPECT_EQ(config.train.steps, 739'328);
  EXPECT_EQ(config.train.batch, 8);
  EXPECT_EQ(config.train.accumulate, 256);
  EXPECT_EQ(config.train.seed, 6198);
  EXPECT_EQ(config.train.eval_every, 1000);
  EXPECT_EQ(config.data.train, (std::vector<std::string>{"a.npy", "b.npy"}));
  EXPECT_EQ(config.data.token_bytes, 4);
  EXPECT_EQ(config.data.tokenizer, "tokenizers/neox.json");
  EXPECT_EQ(config.out, "runs/OLMo-1B");
  EXPECT_THAT(olmo.left_out,
              ElementsAre("model.init_fn: normal (OLMo's default)",
                          "scheduler.warmup_min_lr: learning_rate / 10 (OLMo's default)"));
  EXPECT_EQ(config.optim.eps, 1e-5);  // OLMo's default, as what follows
  EXPECT_EQ(config.model.norm_eps, 1e-5);
  EXPECT_THAT(olmo.no_meaning, Contains("wandb.project"));
  EXPECT_THAT(olmo.no_meaning, Contains("evaluators"));
  EXPECT_THAT(olmo.no_meaning, Not(Contains("max_duration")));
}

TEST(Olmo, counts_tokens_where_the_file_does) {
  const std::string text = with_line("t_warmup: 2000", "t_warmup: 8388608000, units: tokens",
                                     with_line("max_duration: 739_328", "max_duration: 1e12T"));
  const RunConfig config = config_of(text);
  EXPECT_EQ(config.optim.warmup, 4000);  // of 2,048 x 1,024 tokens each
  EXPECT_EQ(config.train.steps, 476'837);
  EXPECT_EQ(config_of(with_line("1e12T", "2ep", text)).train.epochs, 2);
}

TEST(Olmo, sizes_have_its_defaults) {
  const auto vocab = [](const std::string& size) {
    return config_of(with_line("  vocab_size: 50280\n  embedding_size: 50304\n", size)).model.vocab;
  };
  EXPECT_EQ(vocab(""), 50304);
  EXPECT_EQ(vocab("  embedding_size: null\n"), 50257);
  EXPECT_EQ(vocab("  vocab_size: 512\n"), 50304);
  EXPECT_EQ(vocab("  vocab_size: 512\n  embedding_size: null\n"), 512);
  EXPECT_EQ(config_of(with_line("memmap_dtype: uint32", "memmap_dtype: uint16")).data.token_bytes,
            2);
  EXPECT_EQ(
      config_of(with_line("  rope:", "  multi_query_attention: true\n  rope:")).model.kv_heads, 1);
  EXPECT_EQ(config_of(with_line("save_interval: 1000", "save_interval: null")).train.save_every,
            1000);
  EXPECT_EQ(config_of(with_line("save_interval: 1000", "save_interval: null")).train.eval_every,
            1000);
}

TEST(Olmo, truths_are_those_of_its_loader) {
  const RunConfig config = config_of(with_line(
      "weight_tying: true", "weight_tying: False",
      with_line("rope: true", "rope: True", with_line("affine: false", "affine: FALSE"))));
  EXPECT_FALSE(config.model.tied);
  EXPECT_EQ(config.model.kind, ModelKind::olmo);
}

TEST(Olmo, texts_stay_the_same_texts) {
  const auto tokenizer = [](const std::string& value) {
    return config_of(with_line("tokenizers/neox.json", value)).data.tokenizer;
  };
  EXPECT_EQ(tokenizer("\"a #b: {c}.json\""), "a #b: {c}.json");
  EXPECT_EQ(tokenizer("\"[a]\""), "[a]");
  EXPECT_EQ(tokenizer("\"a\\nb\""), "a\nb");
  EXPECT_EQ(tokenizer("\"007\""), "007");
  EXPECT_EQ(config_of(with_line("- b.npy", "- \"b, #1.npy\"")).data.train,
            (std::vector<std::string>{"a.npy", "b, #1.npy"}));
  EXPECT_EQ(config_of(with_line("run_name: OLMo-1B", "run_name: \"a: b\"")).out, "runs/a: b");
  const OlmoImport olmo = import_olmo(kOlmo, "olmo.yaml", kWithout);
  EXPECT_THAT(olmo.yaml, HasSubstr("train: [a.npy, b.npy]\n"));
  EXPECT_THAT(olmo.yaml, HasSubstr("betas: [0.8, 0.95]\n"));
}

TEST(Olmo, values_that_are_none_are_refused_by_name) {
  struct Row {
    std::string from, to, error;
  };
  for (const Row& row : std::vector<Row>{
           {"flash_attention: true", "norm_after: yes",
            "model.norm_after: expected true or false, got 'yes'"},
           {"flash_attention: true", "attention_layer_norm: 1",
            "model.attention_layer_norm: expected true or false, got '1'"},
           {"embedding_size: 50304", "embedding_size: 50000",
            "model.embedding_size: expected at least vocab_size, got '50000'"},
           {"memmap_dtype: uint32", "memmap_dtype: uint64",
            "data.memmap_dtype: expected uint16 or uint32, got 'uint64'"},
           {"flash_attention: true", "n_kv_heads: 4\n  multi_query_attention: true",
            "model.n_kv_heads: expected 1 of multi_query_attention, got '4'"},
           {"t_warmup: 2000", "t_warmup: 2000, units: epochs",
            "scheduler.units: expected steps or tokens, got 'epochs'"},
           {"global_train_batch_size: 2048", "global_train_batch_size: 0",
            "global_train_batch_size: expected a positive number, got '0'"},
           {"device_train_microbatch_size: 8", "device_train_microbatch_size: 0",
            "device_train_microbatch_size: expected a positive number, got '0'"},
           {"max_sequence_length: 1024", "max_sequence_length: 0",
            "model.max_sequence_length: expected a positive number, got '0'"},
           {"max_duration: 739_328", "max_duration: long",
            "max_duration: expected steps, epochs (2ep) or tokens (2e12T), got 'long'"},
           {"mlp_ratio: 8", "mlp_ratio: inf", "model.mlp_ratio: expected a number, got 'inf'"},
           {"tokenizers/neox.json", "\"${HOME}/neox.json\"",
            "tokenizer.identifier: expected a value, or ${KEY} of another key of the file, got "
            "'${HOME}/neox.json'"},
           {"- a.npy", "- \"${path}/a.npy\"",
            "data.paths: expected a value, or ${KEY} of another key of the file, got "
            "'[\"${path}/a.npy\", b.npy]'"},
           {"eval_interval: ${save_interval}", "eval_interval: ${save_intervall}",
            "eval_interval: expected a value, or ${KEY} of another key of the file, got "
            "'${save_intervall}'"},
           {"max_grad_norm: 0.5", "max_grad_norm: 0.5\nmax_grad_norm: 1",
            "duplicate key, first given on line 35"},
           {"load_path: null", "model.d_model: 64", "model.d_model: duplicate key"},
           {"load_path: null", "[a, b]: 64", "expected a name as key, got a list of 2"}}) {
    EXPECT_THAT(refusal_of(with_line(row.from, row.to)), HasSubstr(row.error)) << row.to;
  }
  EXPECT_THAT(refusal_of("model: &a {d_model: 64, more: *a}"), HasSubstr("expected at most"));
}

TEST(Olmo, norms_of_queries_and_keys_without_weights_are_refused) {
  const std::string norms =
      "layer_norm_type: rms\n  norm_after: true\n  attention_layer_norm: true\n"
      "  layer_norm_with_affine: true\n";
  const std::string text = with_line("layer_norm_type: default\n  layer_norm_with_affine: false\n",
                                     norms + "  clip_qkv: null\n");
  EXPECT_EQ(config_of(text).model.kind, ModelKind::olmo2);
  EXPECT_THAT(
      refusal_of(with_line("clip_qkv: null", "attention_layer_norm_with_affine: false", text)),
      HasSubstr("got model.attention_layer_norm_with_affine: false (left out"));
}

TEST(Olmo, the_rate_that_warm_up_begins_at_is_checked) {
  const std::string zero = with_line("t_warmup: 2000", "t_warmup: 2000, warmup_min_lr: 0");
  EXPECT_THAT(import_olmo(zero, "olmo.yaml", {"model.init_fn"}).left_out, testing::SizeIs(1));
  for (const std::string& text : {std::string(kOlmo), with_line("lr: 0", "lr: null", zero)}) {
    EXPECT_THAT(
        test::error_of([&] { import_olmo(text, "olmo.yaml", {"model.init_fn"}); }),
        HasSubstr("got scheduler.warmup_min_lr: learning_rate / 10 (OLMo's default) (left"));
  }
}

TEST(Olmo, what_is_left_out_stays_on_one_line) {
  const OlmoImport olmo = import_olmo(with("other: \"a\\nlr: 1\""), "olmo.yaml",
                                      {"model.init_fn", "scheduler.warmup_min_lr", "other"});
  EXPECT_THAT(olmo.left_out, Contains("other: a lr: 1"));
  const std::string text = std::string(39, 'x') + "ää";  // 40 bytes end within the first
  EXPECT_THAT(refusal_of(with("other: " + text)),
              HasSubstr("other: " + std::string(39, 'x') + "... (left"));
  EXPECT_THAT(refusal_of(with("other: \"a\\nb\"")), HasSubstr("other: a b (left"));
}

TEST(Olmo, keys_that_a_run_does_not_have_are_all_named_unless_they_are_left_out) {
  const std::string text = with("softmax_auxiliary_loss: true\nmodel_parallel: 2");
  EXPECT_EQ(test::error_of([&] { import_olmo(text, "olmo.yaml"); }),
            "olmo.yaml: expected keys that a run has, got model.init_fn: normal (OLMo's default), "
            "model_parallel: 2, scheduler.warmup_min_lr: learning_rate / 10 (OLMo's default), "
            "softmax_auxiliary_loss: true (left out by --without "
            "model.init_fn,model_parallel,scheduler.warmup_min_lr,softmax_auxiliary_loss)");
  const OlmoImport olmo = import_olmo(
      text, "olmo.yaml",
      {"softmax_auxiliary_loss", "model_parallel", "model.init_fn", "scheduler.warmup_min_lr"});
  EXPECT_THAT(olmo.left_out,
              ElementsAre("softmax_auxiliary_loss: true", "model_parallel: 2",
                          "model.init_fn: normal (OLMo's default)",
                          "scheduler.warmup_min_lr: learning_rate / 10 (OLMo's default)"));
  EXPECT_THAT(test::error_of([&] {
                import_olmo("model: {d_model: 64, layer_norm_with_affine: false}", "x.yaml");
              }),
              testing::AllOf(HasSubstr("model.residual_dropout: 0.1 (OLMo's default)"),
                             HasSubstr("optimizer.name: lionw (OLMo's default)"),
                             HasSubstr("model.rope: false (OLMo's default)")));
  EXPECT_THAT(test::error_of([&] { import_olmo(kOlmo, "olmo.yaml", {"seed"}); }),
              HasSubstr("--without: expected keys of olmo.yaml that a run does not have, got "
                        "'seed'"));
  EXPECT_THAT(test::error_of([&] { import_olmo("model: {hidden: 3}", "x.yaml"); }),
              HasSubstr("x.yaml: expected an OLMo training file"));
}

}  // namespace
}  // namespace octet::olmo_config
