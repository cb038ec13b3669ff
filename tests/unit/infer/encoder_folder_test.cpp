// Folders of encoders: what is read beside the parameters, and what leaves with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "formats/arrays.h"
#include "infer/export.h"
#include "infer/model_spec.h"
#include "infer/sentence_folder.h"
#include "infer/stored_weights.h"
#include "infer/weights.h"
#include "io/model_files.h"
#include "nn/hf_config.h"
#include "nn/hf_names.h"
#include "nn/shape.h"
#include "text/tokenizer.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"
#include "unit/infer/put_arrays.h"

namespace octet::infer_encoder_folder_test {
namespace {

using test::error_of;
using test::ScratchFolder;
using testing::HasSubstr;

const std::string kPieces = std::string(OCTET_SOURCE_DIR) + "/tests/fixtures/word_pieces/";

ModelSpec bert(ModelHead head) {
  return resolved({.kind = ModelKind::bert,
                   .hidden = 8,
                   .layers = 1,
                   .heads = 2,
                   .ffn = 12,
                   .vocab = 11,
                   .max_positions = 9,
                   .head = head});
}

test::ArrayToPut array(const std::string& name, const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(n_elems(shape)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(static_cast<float>(i + name.size()));
  return test::array_of(name, SafeDtype::f32, shape, values);
}

// The model's parameters by the names that `rename` gives, what `beside` names ([2, 8], or the
// parameter that it repeats), and config.json with the class.
void put_encoder(const ScratchFolder& folder, const ModelSpec& spec,
                 const std::string& architecture, const std::vector<std::string>& beside = {},
                 std::string (*rename)(std::string) = nullptr) {
  std::vector<test::ArrayToPut> arrays;
  for (const ParameterSpec& p : model_parameters(spec)) {
    arrays.push_back(array(p.name, p.shape));
    if (rename != nullptr) arrays.back().decl.name = rename(p.name);
  }
  for (const std::string& name : beside) {
    const auto repeated = copied_parameter(spec, name);
    const auto of = std::ranges::find(arrays, repeated.value_or(""),
                                      [](const test::ArrayToPut& one) { return one.decl.name; });
    arrays.push_back(of == arrays.end() ? array(name, {2, 8}) : *of);
    arrays.back().decl.name = name;
  }
  test::put_arrays(folder / "model.safetensors", arrays);
  Json config = parse_own_json(hf_config_text(spec));
  config["architectures"] = {architecture};
  folder.put("config.json", config.dump());
}

void write_out(const std::string& from, const std::string& to, const ExportOptions& options = {}) {
  export_model(posix_files(), find_model_source(posix_files(), from), to, options);
}

Json json_of(const std::string& path) {
  return Json::parse(posix_files().read_text(path));
}

TEST(EncoderFolder, gamma_and_beta_are_weight_and_bias) {
  const auto old = [](std::string name) {
    const size_t at = name.find("LayerNorm.");
    if (at != std::string::npos)
      name.replace(at + 10, std::string::npos, name.ends_with("weight") ? "gamma" : "beta");
    return name;
  };
  const auto bare = [](std::string name) {
    const size_t at = name.find("LayerNorm.");
    if (at != std::string::npos)
      name.replace(at + 10, std::string::npos, name.ends_with("weight") ? "gamma" : "beta");
    return name.starts_with("bert.") ? name.substr(5) : name;
  };
  const ScratchFolder folder, other;
  const ModelSpec spec = bert(ModelHead::masked);
  put_encoder(folder, spec, "BertForMaskedLM", {}, old);
  put_encoder(other, spec, "BertForMaskedLM", {}, bare);
  for (const ScratchFolder* one : {&folder, &other}) {
    write_out(one->path(), *one / "out");
    const ModelFiles out = ModelFiles::open(posix_files(), *one / "out");
    for (const ParameterSpec& p : model_parameters(spec))
      EXPECT_EQ(out.read(p.name), array(p.name, p.shape).bytes) << p.name;
  }
}

TEST(EncoderFolder, a_missing_tensor_s_error_says_what_is_there) {
  const ScratchFolder folder;
  put_encoder(folder, bert(ModelHead::features), "BertModel", {}, [](std::string name) {
    const size_t at = name.find("output.LayerNorm.");
    return at == std::string::npos ? name : name.replace(at, 16, "output.Norm");
  });
  EXPECT_THAT(
      error_of([&] { write_out(folder.path(), folder / "out"); }),
      HasSubstr("expected a tensor 'bert.encoder.layer.0.attention.output.LayerNorm.weight', "
                "got none, but 'bert.encoder.layer.0.attention.output.Norm"));
}

// Tensors that no head of ours reads go along, under the class that has them.
TEST(EncoderFolder, convert_keeps_poolers_and_heads_that_are_not_read) {
  const auto names = [](ModelHead head, const std::string& architecture,
                        const std::vector<std::string>& beside, const ExportOptions& options = {}) {
    const ScratchFolder folder;
    put_encoder(folder, bert(head), architecture, beside);
    write_out(folder.path(), folder / "out", options);
    const ModelFiles out = ModelFiles::open(posix_files(), folder / "out");
    std::vector<std::string> found = {json_of(folder / "out/config.json")["architectures"][0]};
    for (const std::string& name : out.names()) {
      if (name.find("layer.") == name.npos && name.find("embeddings.") == name.npos &&
          !name.starts_with("cls.predictions."))
        found.push_back(name + " " + std::string(safe_dtype_name(out.at(name).stored)));
    }
    return found;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(ModelHead::features, "BertModel", {"pooler.dense.weight"}),
            (Names{"BertModel", "bert.pooler.dense.weight F32"}));
  EXPECT_EQ(names(ModelHead::masked, "BertForMaskedLM",
                  {"bert.pooler.dense.weight", "cls.seq_relationship.weight"},
                  {.dtype = ExportDtype::bf16}),
            (Names{"BertForMaskedLM", "bert.pooler.dense.weight BF16"}));
  EXPECT_EQ(names(ModelHead::masked, "BertForPreTraining",
                  {"bert.pooler.dense.weight", "cls.seq_relationship.weight",
                   "cls.predictions.decoder.weight"}),
            (Names{"BertForPreTraining", "bert.pooler.dense.weight F32",
                   "cls.seq_relationship.weight F32"}));
  EXPECT_EQ(names(ModelHead::features, "BertForTokenClassification", {"classifier.weight"}),
            (Names{"BertForTokenClassification", "classifier.weight F32"}));
}

// Of one that differs transformers reads both.
TEST(ModelFolder, tensors_that_repeat_a_parameter_have_its_values) {
  const ModelSpec t5 = resolved({.kind = ModelKind::t5,
                                 .hidden = 8,
                                 .layers = 1,
                                 .heads = 2,
                                 .ffn = 12,
                                 .vocab = 11,
                                 .max_positions = 9,
                                 .source_seq = 4});
  struct Case {
    ModelSpec spec;
    std::string architecture, name, parameter;
  };
  const Case cases[] = {
      {t5, "T5ForConditionalGeneration", "encoder.embed_tokens.weight", "shared.weight"},
      {t5, "T5ForConditionalGeneration", "decoder.embed_tokens.weight", "shared.weight"},
      {bert(ModelHead::masked), "BertForMaskedLM", "cls.predictions.decoder.weight",
       "bert.embeddings.word_embeddings.weight"},
      {bert(ModelHead::masked), "BertForMaskedLM", "cls.predictions.decoder.bias",
       "cls.predictions.bias"}};
  for (const Case& c : cases) {
    const ScratchFolder folder;
    const std::string file = folder / "model.safetensors";
    put_encoder(folder, c.spec, c.architecture, {c.name});
    const std::vector<float> values =
        WeightReader(posix_files(), folder.path(), read_folder_spec(posix_files(), folder.path()))
            .read(c.parameter);
    std::vector<test::ArrayToPut> arrays;
    for (const ParameterSpec& p : model_parameters(c.spec))
      arrays.push_back(array(p.name, p.shape));
    const auto of = std::ranges::find(arrays, c.parameter,
                                      [](const test::ArrayToPut& one) { return one.decl.name; });
    ASSERT_NE(of, arrays.end());
    std::vector<float> others = values;
    others.back() += 1;
    arrays.push_back(test::array_of(c.name, SafeDtype::f32, of->decl.shape, others));
    test::put_arrays(file, arrays);
    EXPECT_THAT(error_of([&] { read_folder_spec(posix_files(), folder.path()); }),
                HasSubstr("'" + c.name + "': expected the values of '" + c.parameter + "'"));
    if (c.parameter != "shared.weight") continue;
    // The name that safetensors' save_model keeps of a table with several.
    arrays.pop_back();
    std::ranges::find(arrays, c.parameter, [](const test::ArrayToPut& one) {
      return one.decl.name;
    })->decl.name = c.name;
    test::put_arrays(file, arrays);
    EXPECT_EQ(WeightReader(posix_files(), folder.path(), c.spec).read(c.parameter), values);
  }
}

// transformers takes the model of such a folder from where adapter_config.json says, and adds them.
TEST(EncoderFolder, with_adapters_beside_it_is_refused) {
  const ScratchFolder folder;
  put_encoder(folder, bert(ModelHead::masked), "BertForMaskedLM");
  folder.put("adapter_config.json", R"({"peft_type": "LORA"})");
  EXPECT_THAT(error_of([&] { find_model_source(posix_files(), folder.path()); }),
              HasSubstr("adapter_config.json: expected a model without adapters beside it"));
}

// transformers adds them behind all others, whatever they are for.
TEST(ModelFolder, tokens_that_its_tokenizer_json_does_not_have_are_told) {
  const ScratchFolder folder;
  put_encoder(folder, bert(ModelHead::masked), "BertForMaskedLM");
  folder.put("tokenizer.json",
             R"({"added_tokens": [{"id": 1, "content": "<s>"}], "model": {"vocab": {"a": 0}}})");
  const auto told = [&](const std::string& config) {
    folder.put("tokenizer_config.json", config);
    std::string warning;
    const Log log([&](LogLevel, const std::string& line) { warning = line; });
    find_model_source(posix_files(), folder.path(), log);
    return warning;
  };
  EXPECT_EQ(told(R"({"bos_token": "<s>", "unk_token": "a"})"), "");
  EXPECT_THAT(
      told(R"({"bos_token": "<s>", "pad_token": "<pad>", "mask_token": "<pad>",
                       "additional_special_tokens": ["<x>"]})"),
      HasSubstr("'<pad>' is named beside tokenizer.json, which does not have it (2 in all)"));
  EXPECT_THAT(told(R"({"added_tokens_decoder": {"7": {"content": "<y>"}}})"),
              HasSubstr("'<y>' is named beside"));
  // Of Llama's classes: which parts of a text begin with a space.
  for (const auto& [step, other] : {std::pair("first", "true"), std::pair("always", "false")}) {
    folder.put("tokenizer.json",
               fmt::format(R"({{"model": {{"vocab": {{"a": 0}}}}, "pre_tokenizer":)"
                           R"({{"type": "Metaspace", "prepend_scheme": "{}"}}}})",
                           step));
    const std::string legacy = R"("tokenizer_class": "LlamaTokenizer", "legacy": )";
    EXPECT_THAT(told("{" + legacy + other + "}"), HasSubstr("'legacy' says which parts"));
    EXPECT_EQ(told("{" + legacy + (step == std::string("first") ? "false}" : "true}")), "");
  }
  folder.put("tokenizer.json", R"({"model": {"vocab": [["<y>", -1.5]]}})");
  EXPECT_EQ(told(R"({"added_tokens_decoder": {"0": {"content": "<y>"}}})"), "");
}

constexpr const char* kModules =
    R"([{"idx":0,"path":"","type":"sentence_transformers.models.Transformer"},
        {"idx":1,"path":"1_Pooling","type":"sentence_transformers.models.Pooling"}])";

void put_sentence(const ScratchFolder& folder, const std::string& pooling) {
  folder.put("modules.json", kModules);
  folder.put("1_Pooling/config.json", pooling);
  folder.put("sentence_bert_config.json", R"({"max_seq_length": 7, "do_lower_case": false})");
  folder.put("config_sentence_transformers.json", R"({"prompts": {}})");
}

TEST(SentenceFolder, goes_along_with_convert) {
  const ScratchFolder folder;
  put_encoder(folder, bert(ModelHead::features), "BertModel");
  put_sentence(folder, R"({"pooling_mode": "cls"})");
  folder.put("1_Pooling/weights.bin", "of a module that is not known");
  write_out(folder.path(), folder / "out");
  for (const char* name : {"modules.json", "1_Pooling/config.json", "1_Pooling/weights.bin",
                           "sentence_bert_config.json", "config_sentence_transformers.json"})
    EXPECT_EQ(posix_files().read_text(folder / std::string("out/") + name),
              posix_files().read_text(folder / name))
        << name;
}

TEST(SentenceFolder, stays_with_a_run_and_leaves_with_its_export) {
  const ScratchFolder folder, run, out;
  put_sentence(folder, R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})");
  folder.put("tokenizer_config.json", R"({"model_max_length": 9})");
  keep_sentence_files(posix_files(), folder.path(), run.path(), {});
  EXPECT_EQ(read_sentence_folder(posix_files(), run.path()).pooling, Pooling::cls);
  EXPECT_FALSE(read_sentence_folder(posix_files(), run.path()).normalizes);
  EXPECT_EQ(max_tokens_of_folder(posix_files(), run.path(), 30), 7);
  EXPECT_EQ(max_tokens_of_folder(posix_files(), run.path(), 5), 5);
  ModelSource source;
  source.spec = bert(ModelHead::embeddings);
  source.folder = run.path();
  source.run.emplace();
  put_sentence_files(posix_files(), source, out.path(), {});
  EXPECT_EQ(json_of(out / "modules.json"), Json::parse(kModules));
  EXPECT_EQ(json_of(out / "1_Pooling/config.json"), json_of(folder / "1_Pooling/config.json"));
  EXPECT_EQ(max_tokens_of_folder(posix_files(), out.path(), 30), 7);
  remove_sentence_files(posix_files(), out.path());
  EXPECT_FALSE(posix_files().exists(out / "1_Pooling"));
}

TEST(SentenceFolder, of_a_run_without_one_says_how_it_pooled) {
  const ScratchFolder run, out;
  ModelSource source;
  source.spec = bert(ModelHead::embeddings);
  source.spec.pooling = Pooling::cls;
  source.folder = run.path();
  source.run.emplace();
  put_sentence_files(posix_files(), source, out.path(), {});
  const SentenceFolder said = read_sentence_folder(posix_files(), out.path());
  EXPECT_TRUE(said.is_said && said.normalizes && said.pooling == Pooling::cls);
  EXPECT_EQ(max_tokens_of_folder(posix_files(), out.path(), 30), 9);
  source.spec = bert(ModelHead::classes);
  const ScratchFolder other;
  put_sentence_files(posix_files(), source, other.path(), {});
  EXPECT_TRUE(posix_files().list(other.path()).empty());
}

TEST(SentenceFolder, modules_elsewhere_are_refused) {
  const ScratchFolder folder;
  folder.put("modules.json",
             R"([{"path":"../other","type":"sentence_transformers.models.Pooling"}])");
  EXPECT_THAT(error_of([&] { read_sentence_folder(posix_files(), folder.path()); }),
              HasSubstr("expected modules in folders of the model's, got ../other"));
}

ModelSource run_on(const ScratchFolder& folder, const std::string& tokenizer, int64_t vocab) {
  ModelSource source;
  source.spec = bert(ModelHead::masked);
  source.spec.vocab = vocab;
  source.folder = folder.path();
  source.tokenizer = tokenizer;
  source.run.emplace();
  posix_files().create_directories(folder / "out");
  return source;
}

TEST(ExportedTokenizer, of_a_vocab_txt_has_all_that_was_read) {
  const ScratchFolder folder, elsewhere;
  const std::string words = posix_files().read_text(kPieces + "vocab.txt");
  elsewhere.put("mine.txt", words);
  elsewhere.put("tokenizer_config.json", R"({"do_lower_case": false})");
  copy_companions(posix_files(), run_on(folder, elsewhere / "mine.txt", 421), folder / "out", {});
  const auto was = make_tokenizer(posix_files(), elsewhere / "mine.txt"),
             is = make_tokenizer(posix_files(), folder / "out");
  EXPECT_EQ(is->encode("The model RUNS"), was->encode("The model RUNS"));
  EXPECT_EQ(json_of(folder / "out/tokenizer_config.json"),
            Json::parse(R"({"do_lower_case": false})"));
  const ScratchFolder alone, plain;
  plain.put("vocab.txt", words);
  copy_companions(posix_files(), run_on(alone, plain / "vocab.txt", 421), alone / "out", {});
  EXPECT_EQ(posix_files().read_text(alone / "out/vocab.txt"), words);
  EXPECT_EQ(json_of(alone / "out/tokenizer_config.json")["tokenizer_class"], "BertTokenizer");
}

// Beside the one of the folder that the run began with.
TEST(ExportedTokenizer, is_the_one_that_the_run_was_trained_with) {
  const ScratchFolder run, model, elsewhere;
  model.put("vocab.txt", posix_files().read_text(kPieces + "vocab.txt"));
  model.put("tokenizer_config.json", R"({"do_lower_case": true})");
  model.put("generation_config.json", R"({"top_k": 5})");
  const std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nThe\n";
  elsewhere.put("vocab.txt", words);
  elsewhere.put("tokenizer_config.json", R"({"do_lower_case": false})");
  const auto exported = [&](const std::string& tokenizer, const std::string& out) {
    ModelSource source = run_on(run, tokenizer, 421);
    source.run->model.path = model.path();
    posix_files().create_directories(run / out);
    copy_companions(posix_files(), source, run / out, {});
    EXPECT_EQ(json_of(run / out + "/generation_config.json")["top_k"], 5);
    return make_tokenizer(posix_files(), run / out)->encode("The");
  };
  EXPECT_EQ(exported(elsewhere / "vocab.txt", "file"), std::vector<int32_t>{5});
  EXPECT_EQ(exported(elsewhere.path(), "folder"), std::vector<int32_t>{5});
  EXPECT_EQ(exported("bytes", "bytes"), (std::vector<int32_t>{'T', 'h', 'e'}));
  EXPECT_EQ(exported(model / "vocab.txt", "model"),
            make_tokenizer(posix_files(), model.path())->encode("The"));
}

TEST(ExportedTokenizer, of_bytes_gives_the_bytes) {
  const ScratchFolder folder;
  copy_companions(posix_files(), run_on(folder, "bytes", 256), folder / "out", {});
  const auto tokenizer = make_tokenizer(posix_files(), folder / "out");
  std::string text;
  for (int i = 1; i < 128; ++i) text += static_cast<char>(i);
  text += " \n  é ü 漢字 \U0001F600 it's 12";
  EXPECT_EQ(tokenizer->encode(text), byte_tokenizer()->encode(text));
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  const ScratchFolder arrays;
  ModelSource source = run_on(arrays, "bytes", 300);
  source.run->data.train = {"tokens.safetensors"};
  copy_companions(posix_files(), source, arrays / "out", {});
  EXPECT_TRUE(posix_files().list(arrays / "out").empty());
}

TEST(NewRoberta, counts_positions_from_its_tokenizer_s_padding) {
  const auto spec_with = [](const std::string& tokenizer) {
    RunConfig config;
    config.model.kind = ModelKind::roberta;
    config.model.seq = 24;
    config.data.tokenizer = tokenizer;
    return model_from_config(posix_files(), config);
  };
  const ModelSpec words = spec_with(kPieces + "vocab.txt");
  EXPECT_EQ(words.pad_token, 0);
  EXPECT_EQ(words.max_positions, 25);
  const ModelSpec bytes = spec_with("bytes");
  EXPECT_EQ(bytes.pad_token, -1);
  EXPECT_EQ(longest_row(bytes), 24);
  const Json config = Json::parse(hf_config_text(words));
  EXPECT_EQ(config["pad_token_id"], 0);
  EXPECT_EQ(config["max_position_embeddings"], 25);
  const ScratchFolder ends;  // padding that ends texts, too
  ends.put("vocab.txt", posix_files().read_text(kPieces + "vocab.txt"));
  ends.put("tokenizer_config.json", R"({"pad_token": "[SEP]"})");
  EXPECT_EQ(spec_with(ends / "vocab.txt").pad_token, -1);
}

// Beside a folder's classifier `head: classes` alone is that classifier.
TEST(NewHead, of_classes_has_as_many_as_the_folder_s) {
  const ScratchFolder folder;
  ModelSpec spec = bert(ModelHead::classes);
  spec.classes = 3;
  put_encoder(folder, spec, "BertForSequenceClassification");
  const auto classes = [&](ModelHead head, int64_t wanted) {
    RunConfig config;
    config.model.path = folder.path();
    config.model.head = head;
    config.model.classes = wanted;
    return model_from_config(posix_files(), config).classes;
  };
  EXPECT_EQ(classes(ModelHead::classes, 0), 3);
  EXPECT_EQ(classes(ModelHead::multi_label, 0), 3);
  EXPECT_EQ(classes(ModelHead::classes, 5), 5);
  EXPECT_EQ(classes(ModelHead::masked, 0), 2);
}

// A checkpoint has them in BF16; the f32 export those that the run began with.
TEST(FrozenWeights, leave_in_the_bytes_of_their_folder) {
  const ScratchFolder folder, run, out;
  const ModelSpec spec = bert(ModelHead::embeddings);
  put_encoder(folder, spec, "BertModel");
  std::vector<test::ArrayToPut> rounded;
  for (const ParameterSpec& p : model_parameters(spec)) {
    rounded.push_back(array(p.name, p.shape));
    const auto values = decode_values(Dtype::f32, rounded.back().bytes);
    rounded.back().decl.stored = SafeDtype::bf16;
    rounded.back().bytes = encode_weights(values, Dtype::bf16);
  }
  test::put_arrays(run / "model.safetensors", rounded);
  test::put_arrays(run / "optim.safetensors", {});
  ModelSource source;
  source.spec = spec;
  source.folder = run.path();
  source.weights = run / "model.safetensors";
  source.run.emplace();
  source.run->model.path = folder.path();
  source.run->train.freeze = {"*word_embeddings*"};
  run.put("config.json", hf_config_text(spec));
  const auto is_exact = [&](const std::string& to, const std::string& name) {
    export_model(posix_files(), source, out / to, {.dtype = ExportDtype::f32});
    const ModelFiles files = ModelFiles::open(posix_files(), out / to);
    return files.read(name) == array(name, files.at(name).shape).bytes;
  };
  EXPECT_TRUE(is_exact("a", "bert.embeddings.word_embeddings.weight"));
  EXPECT_FALSE(is_exact("b", "bert.embeddings.position_embeddings.weight"));
  posix_files().remove(folder / "model.safetensors");  // what it began with is gone
  EXPECT_FALSE(is_exact("c", "bert.embeddings.word_embeddings.weight"));
}

}  // namespace
}  // namespace octet::infer_encoder_folder_test
