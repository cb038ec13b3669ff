// One source of template, special tokens and ends of texts: what a run is trained with, what
// generates from it, and what its export says.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "cli/finetune/small_model.h"
#include "cli/program_run.h"
#include "text/tokenizer.h"

namespace octet::generate_model_texts_test {
namespace {

using Json = nlohmann::ordered_json;
using test::run_program;

constexpr int kBos = 256, kVocab = 261;

// 256 bytes, then <s>, which begins texts, </s>, <|eot|>, <|im_start|>, <|im_end|>.
std::string byte_level_tokenizer() {
  Json vocab = Json::object(), added = Json::array();
  int n_unprintable = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const int code = is_printable ? byte : 256 + n_unprintable++;
    std::string letter(1, static_cast<char>(code));
    if (code >= 128)
      letter = {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
    vocab[letter] = byte;
  }
  int id = kBos;
  for (const char* text : {"<s>", "</s>", "<|eot|>", "<|im_start|>", "<|im_end|>"}) {
    added.push_back({{"id", id}, {"content", text}, {"special", true}, {"normalized", false}});
    added.back().update({{"single_word", false}, {"lstrip", false}, {"rstrip", false}});
    vocab[text] = id++;
  }
  Json json = {{"version", "1.0"}, {"added_tokens", added}, {"normalizer", nullptr}};
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  json["decoder"] = {{"type", "ByteLevel"}};
  const Json bos = {{"id", "<s>"}, {"type_id", 0}}, text = {{"id", "A"}, {"type_id", 0}};
  json["post_processor"] = {{"type", "TemplateProcessing"}};
  json["post_processor"]["single"] = {Json{{"SpecialToken", bos}}, Json{{"Sequence", text}}};
  json["post_processor"]["special_tokens"]["<s>"] = {
      {"id", "<s>"}, {"ids", {kBos}}, {"tokens", {"<s>"}}};
  json["model"] = {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}};
  return json.dump();
}

constexpr const char* kOwn =
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|eot|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";
constexpr const char* kWithTools =
    "{{ bos_token }}[{{ tools | length }} tools]{% for m in messages %}<|{{ m.role }}|>"
    "{{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";
constexpr const char* kTalk =
    R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"},)"
    R"( {"role": "user", "content": "And?"}, {"role": "assistant", "content": "No"}]})";
constexpr const char* kQuestion =
    R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"},)"
    R"( {"role": "user", "content": "And?"}]})";

class ModelTexts : public testing::Test {
 protected:
  ModelTexts() {
    ModelSpec spec = test::small_spec();
    spec.vocab = kVocab;
    spec.max_positions = 256;
    model_ = test::put_model(folder_, spec);
    put("tokenizer.json", byte_level_tokenizer());
    put_config(Json::object());
    put("chat_template.jinja", kOwn);
    put("generation_config.json", R"({"eos_token_id": [257, 258]})");
    data_ = folder_.put("talks.jsonl", kTalk + std::string("\n") + kTalk + "\n");
    folder_.put("question.jsonl", kQuestion);
    folder_.put("talk.json", kTalk);
  }

  std::string put(const std::string& name, const std::string& text) const {
    return folder_.put("model/" + name, text);
  }
  void put_config(const Json& more) const {
    Json config = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    config.update(more);
    put("tokenizer_config.json", config.dump());
  }
  std::string read(const std::string& name) const {
    return posix_files().read_text(folder_ / name);
  }

  std::string octet(const std::string& arguments, const std::string& input = "/dev/null") {
    const test::Outcome outcome = run_program(folder_, arguments, input);
    EXPECT_EQ(outcome.code, 0) << arguments << "\n" << outcome.err;
    err_ = outcome.err;
    return outcome.out;
  }
  void train(const std::string& more = "") {
    octet("train --model " + model_ + " --data " + data_ + " --recipe fp32 --overwrite --out " +
          run_ + " --set train.steps=1 --set data.val_fraction=0.5 --set train.tensorboard=false " +
          more);
  }
  Json generated(const std::string& model, const std::string& prompts, int n = 4) {
    return Json::parse(octet("generate --quiet --recipe fp32 --model " + model + " --prompts " +
                             prompts + " --max-tokens " + std::to_string(n)));
  }
  std::string rendered(const std::string& source) {
    return octet("chat render --template " + source + " --context " + (folder_ / "talk.json"));
  }
  std::vector<int32_t> trained_ids() {
    const std::string out = octet("data inspect " + run_ + "/config.yaml --quiet --json --n 1");
    return Json::parse(out)["samples"][0]["ids"].get<std::vector<int32_t>>();
  }

  const test::ScratchFolder folder_;
  const std::string run_ = folder_ / "run";
  std::string model_, data_, err_;
};

TEST_F(ModelTexts, of_files_are_without_flags_that_they_do_not_read) {
  const std::string text = folder_.put("plain.txt", "a plain text"),
                    prompts = folder_.put("prompts.txt", "\"one\"\n\"two\"\n");
  const std::pair<std::string, const char*> cases[] = {
      {"eval --model " + model_ + " --data " + text + " --text-end", "begin with one"},
      {"eval --model " + model_ + " --data " + text + " --raw-text",
       "--raw-text: expected a JSON file, got"},
      {"generate --model " + model_ + " --prompts " + prompts + " --template chatml",
       "--template: expected a conversation among the prompts"}};
  for (const auto& [arguments, error] : cases) {
    const test::Outcome outcome = run_program(folder_, arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_NE(outcome.err.find(error), std::string::npos) << outcome.err;
  }
}

// Against what transformers renders from the same exports: tools/make_export_goldens.py.
TEST_F(ModelTexts, are_the_same_in_training_generation_export_and_transformers) {
  const Json golden =
      Json::parse(posix_files().read_text(OCTET_SOURCE_DIR "/tests/fixtures/chat/exports.json"));
  for (const auto& [name, text] : golden["files"].items()) put(name, text.get<std::string>());
  const Json& messages = golden["messages"];
  const Json question = {{"messages", {messages[0], messages[1], messages[2]}}};
  const std::string talk = Json{{"messages", messages}}.dump();
  const std::string prompts = folder_.put("prompts.jsonl", question.dump());
  folder_.put("talk.json", talk);
  folder_.put("talks.jsonl", talk + "\n" + talk + "\n");
  ASSERT_EQ(golden["cases"].size(), 5);
  for (const Json& one : golden["cases"]) {
    const std::string name = one["name"];
    const bool is_file = !one["template"].is_null();
    const std::string chosen =
        is_file ? folder_.put(name + ".jinja", one["template"].get<std::string>()) : name;
    train("--set data.chat.template=" + chosen);
    const std::string exported = run_ + "/export";
    for (const auto& [file, text] : one["files"].items())
      EXPECT_EQ(read("run/export/" + file), text) << name;
    EXPECT_EQ(trained_ids(), one["ids"].get<std::vector<int32_t>>()) << name;
    EXPECT_EQ(rendered(run_), one["text"]) << name;
    EXPECT_EQ(rendered(exported), one["text"]) << name;
    const Json of_run = generated(run_, prompts);
    const std::string text = of_run["text"];
    EXPECT_TRUE(text.starts_with(one["prompt"].get<std::string>())) << name << of_run["text"];
    EXPECT_EQ(generated(exported, prompts), of_run) << name;
    EXPECT_EQ(read("run/export/generation_config.json"), read("model/generation_config.json"));
  }
}

// The template of a list of named ones stays where it was.
TEST_F(ModelTexts, of_a_model_are_exported_byte_by_byte) {
  std::filesystem::remove(model_ + "/chat_template.jinja");
  put_config({{"chat_template",
               {{{"name", "default"}, {"template", kOwn}},
                {{"name", "tool_use"}, {"template", kWithTools}}}}});
  train();
  EXPECT_EQ(read("run/export/tokenizer_config.json"), read("model/tokenizer_config.json"));
  EXPECT_FALSE(posix_files().exists(run_ + "/export/chat_template.jinja"));
}

TEST_F(ModelTexts, with_tools_have_the_template_for_tools) {
  put("additional_chat_templates/tool_use.jinja", kWithTools);
  train();
  octet("convert " + model_ + " " + (folder_ / "copy"));
  const std::string prompts = folder_.put(
      "tools.jsonl", R"({"messages": [{"role": "user", "content": "Hi"}], "tools": [{"a": 1}]})");
  const std::string as_text =
      folder_.put("text.jsonl",
                  R"({"messages": [{"role": "user", "content": "Hi"}], "tools": "[{\"a\": 1}]"})");
  for (const std::string& from : {model_, run_, run_ + "/export", folder_ / "copy"}) {
    const std::string text = generated(from, prompts)["text"];
    EXPECT_TRUE(text.starts_with("<s>[1 tools]<|user|>Hi</s><|assistant|>")) << from << text;
    EXPECT_EQ(generated(from, as_text)["text"], text);
  }
  train();  // an export with a folder in it is replaced as well
  EXPECT_EQ(read("run/export/additional_chat_templates/tool_use.jinja"), kWithTools);
}

TEST_F(ModelTexts, replace_those_of_the_model_whole) {
  put("additional_chat_templates/tool_use.jinja", kWithTools);
  put_config({{"chat_template", "old"}, {"model_max_length", 1e30}, {"eos_token", nullptr}});
  std::filesystem::remove(model_ + "/chat_template.jinja");
  train("--set data.chat.template=plain");
  EXPECT_FALSE(posix_files().exists(run_ + "/export/additional_chat_templates"));
  const Json config = Json::parse(read("run/export/tokenizer_config.json"));
  EXPECT_FALSE(config.contains("chat_template"));
  EXPECT_EQ(config["eos_token"], "</s>");  // which the template was told
  EXPECT_EQ(config["model_max_length"], 1e30);
  EXPECT_TRUE(rendered(run_ + "/export").ends_with("Assistant: No</s>\n"));
}

TEST_F(ModelTexts, end_where_generation_config_says) {
  std::vector<int> all(kVocab);
  std::iota(all.begin(), all.end(), 0);
  put("generation_config.json", Json{{"eos_token_id", all}}.dump());
  train();
  for (const std::string& from : {model_, run_, run_ + "/export"}) {
    const Json row = generated(from, folder_ / "question.jsonl");
    EXPECT_EQ(row["tokens"], 0) << from;
    EXPECT_EQ(row["stop"], "token") << from;
  }
}

// Text that is no token ends a turn of --prompts as it does one of --chat: here of a model that
// always says z.
TEST_F(ModelTexts, end_with_what_the_template_writes_behind_answers) {
  ModelSpec spec = test::small_spec();
  spec.vocab = kVocab;
  const auto edit = [&](const std::string& name, std::vector<float>& values) {
    const bool adds_nothing = name.find("o_proj") != name.npos || name.find("down") != name.npos;
    if (adds_nothing || name.find("lm_head") != name.npos) std::ranges::fill(values, 0.0f);
    if (name.find("embed") != name.npos) std::ranges::fill(values, 1.0f);
    if (name.find("lm_head") != name.npos)
      std::fill_n(values.begin() + 'z' * spec.hidden, spec.hidden, 1.0f);
  };
  const std::string model = test::put_model(folder_, spec, "z", edit) + " --tokenizer " + model_;
  const std::string start = " --template ", prompts = folder_ / "question.jsonl";
  const std::string open = folder_.put("open.jinja", "{{ messages[-1].content }}");
  const std::string closed = folder_.put("closed.jinja", "{{ messages[-1].content }}zz");
  EXPECT_EQ(generated(model + start + open, prompts)["completion"], "zzzz");
  const Json row = generated(model + start + closed, prompts);
  EXPECT_EQ(row["completion"], "");
  EXPECT_EQ(row["stop"], "text");
}

// The template is the run's own from its beginning: its model may change or go.
TEST_F(ModelTexts, of_a_run_do_not_depend_on_its_models_folder) {
  train();
  const Json before = generated(run_, folder_ / "question.jsonl");
  std::filesystem::create_directory(folder_ / "elsewhere");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    std::filesystem::copy(model_ + "/" + name, folder_ / ("elsewhere/" + std::string(name)));
  std::filesystem::remove_all(model_);
  const std::string tokenizer = " --tokenizer " + (folder_ / "elsewhere");
  EXPECT_EQ(generated(run_ + tokenizer, folder_ / "question.jsonl"), before);
  // A run of an earlier version kept nothing.
  std::filesystem::remove(run_ + "/chat.json");
  const test::Outcome none = run_program(folder_, "generate --model " + run_ + tokenizer +
                                                      " --prompts " + (folder_ / "question.jsonl"));
  EXPECT_EQ(none.code, 3);
  EXPECT_EQ(none.err, "octet: [chat] '" + model_ +
                          "': expected the folder of the run's model with its chat template "
                          "(another: --template), got none\n");
}

TEST_F(ModelTexts, without_the_tokenizers_bos_are_a_warning) {
  train("--set data.chat.template=chatml");
  EXPECT_NE(
      err_.find("samples begin without the token 256, which the tokenizer puts before a text"),
      std::string::npos)
      << err_;
  train();
  EXPECT_EQ(err_.find("begin without"), std::string::npos) << err_;
}

// A model as the hub lays it out: every file a link to ../../blobs/HASH.
TEST_F(ModelTexts, of_a_snapshot_of_the_hubs_cache_are_exported) {
  const std::string cache = folder_ / "models--me--tiny";
  const std::string snapshot = cache + "/snapshots/abc";
  std::filesystem::create_directories(snapshot + "/additional_chat_templates");
  std::filesystem::create_directories(cache + "/blobs");
  put("additional_chat_templates/tool_use.jinja", kWithTools);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(model_)) {
    if (!entry.is_regular_file()) continue;
    names.push_back(std::filesystem::relative(entry.path(), model_));
    const std::string hash = "blob" + std::to_string(names.size());
    std::filesystem::copy(entry.path(), cache + "/blobs/" + hash);
    const bool is_deep = names.back().find('/') != std::string::npos;
    std::filesystem::create_symlink((is_deep ? "../../../blobs/" : "../../blobs/") + hash,
                                    snapshot + "/" + names.back());
  }
  model_ = snapshot;
  train();
  EXPECT_EQ(err_.find("is not copied"), std::string::npos) << err_;
  for (const std::string& name : names) {
    EXPECT_TRUE(posix_files().entry_kind(run_ + "/export/" + name) == EntryKind::file) << name;
  }
  EXPECT_EQ(generated(run_ + "/export", folder_ / "question.jsonl"),
            generated(run_, folder_ / "question.jsonl"));
}

TEST_F(ModelTexts, of_a_conversation_go_on_behind_an_answer_cut_within_a_character) {
  const std::string lines = folder_.put("lines", "Hello\nAnd then?\nWhy \xff?\n");
  const std::string out = octet(
      "generate --quiet --recipe fp32 --chat --json --temperature 3 --max-tokens 12 --model " +
          model_,
      lines);
  EXPECT_EQ(std::ranges::count(out, '\n'), 3);
  EXPECT_NE(out.find("\xEF\xBF\xBD"), std::string::npos) << out;  // else it shows nothing
}

TEST_F(ModelTexts, are_printed_as_they_are) {
  const std::string context =
      folder_.put("odd.json", R"({"messages": [{"role": "user", "content": "a\r\u0001\u200f"}]})");
  EXPECT_EQ(octet("chat render --template chatml --context " + context),
            "<|im_start|>user\na\r\x01\u200f<|im_end|>\n");
  const std::string ids = folder_.put("ids", "255 13 97");
  EXPECT_EQ(octet("tokenize --decode --no-special --tokenizer " + model_, ids), "\xff\ra");
}

// With --tokenizer a template's file is told what training and generation tell it.
TEST_F(ModelTexts, of_a_file_have_the_tokenizers_special_tokens) {
  const std::string file = folder_.put("t.jinja", "{{ bos_token }}{{ eos_token }}");
  const std::string call =
      "chat render --context " + (folder_ / "talk.json") + " --template " + file;
  EXPECT_EQ(octet(call), "");
  EXPECT_EQ(octet(call + " --tokenizer " + model_), "<s></s>");
  std::filesystem::remove(model_ + "/tokenizer_config.json");
  put("special_tokens_map.json", R"({"eos_token": {"content": "<|eot|>"}})");
  EXPECT_EQ(octet(call + " --tokenizer " + model_), "<s><|eot|>");
  put_config({{"bos_token", nullptr}, {"added_tokens_decoder", Json::object()}});
  EXPECT_EQ(octet(call + " --tokenizer " + model_ + "/tokenizer.json"), "</s>");
}

}  // namespace
}  // namespace octet::generate_model_texts_test
