#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "data/chat_dataset.h"
#include "data/chat_records.h"
#include "data/json_values.h"
#include "text/jinja/runtime.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::data_chat_test {
namespace {

using test::error_of;
using test::ScratchFolder;

class ChatFiles : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_ / name;
    std::filesystem::create_directories(parent_path(path));
    write_atomically(posix_files(), path, text);
    return path;
  }
  std::vector<std::pair<std::string, int64_t>> values(const std::string& name,
                                                      const std::string& text) {
    std::vector<std::pair<std::string, int64_t>> found;
    JsonValues reader(posix_files(), write(name, text));
    while (const auto value = reader.next()) {
      found.emplace_back(std::string(value->text), value->line);
    }
    return found;
  }
  ScratchFolder folder_;
};

using Values = std::vector<std::pair<std::string, int64_t>>;

TEST_F(ChatFiles, values_are_lines_elements_or_follow_each_other) {
  EXPECT_EQ(values("a.jsonl", "{\"a\": 1}\n\n  {\"b\n{}"),
            (Values{{"{\"a\": 1}", 1}, {"{\"b", 3}, {"{}", 4}}));
  EXPECT_EQ(
      values("a.json", "[\n {\"a\": \"]},[{\\\"\"},\n\n {\"b\": [1, {}]}, 7, \"x\"]\n"),
      (Values{{"{\"a\": \"]},[{\\\"\"}", 2}, {"{\"b\": [1, {}]}", 4}, {"7", 4}, {"\"x\"", 4}}));
  EXPECT_EQ(values("b.json", "{\"a\": 1}\n{\"b\": 2}\n"),
            (Values{{"{\"a\": 1}", 1}, {"{\"b\": 2}", 2}}));
  EXPECT_EQ(values("c.json", "{\n\"a\": 1\n}\n{\"b\":\n2}"),
            (Values{{"{\n\"a\": 1\n}", 1}, {"{\"b\":\n2}", 4}}));
  EXPECT_EQ(values("d.json", "[{\"a\": 1}, {\"b\": "),
            (Values{{"{\"a\": 1}", 1}, {"{\"b\": ", 1}}));
  EXPECT_EQ(values("e.json", "[{}] x"), (Values{{"{}", 1}, {"x", 1}}));
  EXPECT_EQ(values("f.json", ""), (Values{}));
  EXPECT_EQ(values("g.json", "]]}"), (Values{{"]", 1}, {"]", 1}, {"}", 1}}));
}

std::string said(const std::string& json, const ChatFields& fields = {}) {
  const ChatRecord record = read_chat_record(json, fields);
  std::string text(record.format);
  if (record.context.is_null()) return text + ": " + record.text;
  for (const OrderedJson& message : record.context["messages"]) {
    text += " | " + message["role"].get<std::string>() + ": " +
            (message["content"].is_string() ? message["content"].get<std::string>() : "-");
  }
  if (record.context.contains("tools")) text += " | " + record.context["tools"].dump();
  return text + (record.note.empty() ? "" : " | " + record.note);
}

TEST(ChatRecords, formats_are_told_by_their_keys) {
  EXPECT_EQ(said(R"({"messages": [{"role": "user", "content": "a"},
                                  {"role": "assistant", "content": "b"}], "id": 7})"),
            "messages | user: a | assistant: b");
  EXPECT_EQ(
      said(R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"},
                     {"from": "observation", "value": "c"}, {"from": "gpt", "value": "d"}],
                     "system": "s", "tools": "[{\"name\": \"f\"}]"})"),
      "ShareGPT | system: s | user: a | assistant: b | tool: c | assistant: d | "
      "[{\"name\":\"f\"}]");
  EXPECT_EQ(said(R"({"instruction": "a", "input": "i", "output": "b"})"),
            "Alpaca | user: a\ni | assistant: b");
  EXPECT_EQ(said(R"({"instruction": "a", "input": "", "response": "b"})"),
            "Alpaca | user: a | assistant: b");
  EXPECT_EQ(said(R"({"prompt": "a", "completion": "b"})"), "pair | user: a | assistant: b");
  EXPECT_EQ(said(R"({"question": "a", "answer": "b"})"), "pair | user: a | assistant: b");
  EXPECT_EQ(said(R"({"prompt": [{"role": "user", "content": "a"}],
                     "completion": [{"role": "assistant", "content": "b"}]})"),
            "pair | user: a | assistant: b");
  EXPECT_EQ(said(R"({"text": "abc", "meta": 1})"), "text: abc");
}

TEST(ChatRecords, fields_have_the_names_that_they_are_given) {
  ChatFields fields;
  fields.messages = "turns";
  fields.role = "who";
  fields.content = "what";
  fields.prompt = "Q";
  fields.completion = "A";
  EXPECT_EQ(said(R"({"turns": [{"who": "user", "what": "a"}, {"who": "assistant", "what": "b"}]})",
                 fields),
            "messages | user: a | assistant: b");
  EXPECT_EQ(said(R"({"Q": "a", "A": "b"})", fields), "pair | user: a | assistant: b");
  // The usual names are then keys like others, whatever their order.
  const ChatRecord both = read_chat_record(
      R"({"turns": [{"content": "x", "who": "user", "what": "a"},
                    {"who": "assistant", "what": "b", "content": "y", "role": "tool"}]})",
      fields);
  EXPECT_EQ(both.context["messages"][0]["content"], "a");
  EXPECT_EQ(both.context["messages"][1]["content"], "b");
  EXPECT_EQ(both.context["messages"][1]["role"], "assistant");
  EXPECT_EQ(both.ignored, (std::vector<std::string>{"message.content", "message.role"}));
  EXPECT_EQ(error_of([&] {
              read_chat_record(R"({"turns": [{"who": "user", "content": "a"},
                                             {"who": "assistant", "what": "b"}]})",
                               fields);
            }),
            "a message without a text");
}

TEST(ChatRecords, names_of_formats_that_are_not_there_are_told) {
  ChatFields fields;
  fields.role = "who";
  fields.prompt = "Q";
  fields.output = "answer";
  fields.text = "body";
  const auto told = [&](const std::string& format) {
    ChatReport report;
    report.formats[format] = 1;
    std::string keys;
    tell_unread_names(fields, report, Log([&](LogLevel, const std::string& line) {
                        keys += line.substr(0, line.find(" = ")) + " ";
                      }));
    return keys;
  };
  EXPECT_EQ(told("messages"), "data.chat.output data.chat.prompt data.chat.text ");
  EXPECT_EQ(told("ShareGPT"), "data.chat.role data.chat.output data.chat.prompt data.chat.text ");
  EXPECT_EQ(told("Alpaca"), "data.chat.role data.chat.prompt data.chat.text ");
  EXPECT_EQ(told("pair, chosen and rejected"), "data.chat.output data.chat.text ");
  EXPECT_EQ(told("text"), "data.chat.role data.chat.output data.chat.prompt ");
}

TEST(ChatRecords, values_that_cannot_be_held_count_where_they_are_used) {
  EXPECT_EQ(said(R"({"id": 18446744073709551615, "score": NaN, "big": 1e999, "note": "\ud83d",
                     "question": "a", "answer": "b"})"),
            "pair | user: a | assistant: b");
  const std::string is = ": expected a value that can be kept, got ";
  EXPECT_EQ(error_of([] {
              read_chat_record(R"({"messages": [{"role": "user", "content": "x"},
                                {"role": "assistant", "content": "y \ud83d"}]})",
                               {});
            }),
            "[json] messages[1].content" + is + R"(a text with \ud83d, half of a pair)");
  EXPECT_EQ(error_of([] {
              read_chat_record(R"({"messages": [], "tools": [{"max": 1e999}], "text": NaN})", {});
            }),
            "an empty list of messages");
  EXPECT_EQ(error_of([] { read_chat_record(R"({"text": NaN})", {}); }), "[json] text" + is + "NaN");
  EXPECT_EQ(said(R"({"id": 1, "id": 2, "question": "a", "answer": "b"})"),
            "pair | user: a | assistant: b");
  EXPECT_EQ(error_of([] { read_chat_record(R"({"text": "a", "text": "b"})", {}); }),
            "[json] text" + is + "a key given twice");
  EXPECT_EQ(error_of([] {
              read_chat_record(R"({"messages": [{"role": "user", "content": "x", "content": "y"},
                                {"role": "assistant", "content": "z"}]})",
                               {});
            }),
            "[json] messages[0].content" + is + "a key given twice");
}

TEST(ChatRecords, bad_records_say_why) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"messages": )", "not JSON"},
      {R"([1])", "no object"},
      {R"({"a": 1})", "no fields that are known"},
      {R"({"messages": []})", "an empty list of messages"},
      {R"({"messages": "x"})", "messages that are no list"},
      {R"({"messages": [7]})", "a message that is no object"},
      {R"({"messages": [{"content": "x"}]})", "a message without a role"},
      {R"({"messages": [{"role": "user"}]})", "a message without a text"},
      {R"({"messages": [{"role": "user", "content": "x"}]})", "no message of the assistant"},
      {R"({"conversations": [{"from": "who", "value": "x"}]})", "a speaker that is not known"},
      {R"({"conversations": [{"from": "human", "value": "x"}], "chosen": {}, "rejected": {}})",
       "expected conversations, got pairs of preferences ('chosen' and 'rejected'): train.loss "
       "dpo, ipo, simpo or orpo trains on them"},
      {R"({"prompt": "x", "completion": "y", "kto_tag": true})",
       "expected conversations, got pairs of preferences ('kto_tag'), on which training is not "
       "supported"},
      {R"({"prompt": "x", "completion": "y", "label": true})",
       "expected conversations, got answers that are called good or bad ('label'), on which "
       "training is not supported"},
      {R"({"messages": [{"role": "assistant", "content": ""}]})", "an empty answer"},
      {R"({"messages": [{"role": "assistant"}]})", "an empty answer"},
      {R"({"messages": [{"role": "assistant", "content": "x", "weight": 0}]})",
       "no answer that is trained (weight 0, or train false)"},
      {R"({"messages": [{"role": "assistant", "content": "x", "weight": 0.5}]})",
       "a message with a weight other than 0 and 1"},
      {R"({"messages": [{"role": "assistant", "content": "x", "train": 0}]})",
       "a message whose 'train' is neither true nor false"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}]})",
       "arguments of a call that are no JSON"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       "a part of a message of the type 'image', which is not text"},
      {R"({"instruction": "x", "output": "y", "history": [["a"]]})",
       "a history that is no list of pairs of texts"},
      {R"({"instruction": "x", "input": "i", "context": "c", "output": "y"})",
       "both an input and a context"},
      {R"({"messages": [{"role": "user", "content": "x"}], "images": ["a.png"]})",
       "'images', which is not text"},
      {R"({"instruction": "x"})", "an instruction without an output"},
      {R"({"prompt": "x", "completion": ""})", "an empty answer"},
      {R"({"prompt": "x", "completion": 5})", "a question or answer that is no text"},
      {R"({"text": ""})", "an empty text"},
      {R"({"tree": {}, "answer_generation": {}})", "an answer tree without a root"}};
  for (const auto& [json, why] : cases) {
    EXPECT_EQ(error_of([&, text = json] { read_chat_record(text, {}); }), why) << json;
  }
}

// A call that fails, one that is abandoned, and one that finishes.
constexpr const char* kTree = R"({"win": true, "tree": {"tree":
  {"node_type": "Action Input", "description": "", "children": [
    {"node_type": "Action", "description": "Finish", "children": [
      {"node_type": "Action Input", "description": "{\"return_type\": \"give_up\"}",
       "observation": "x", "observation_code": 4, "children": []}]},
    {"node_type": "Thought", "description": "look", "children": [
      {"node_type": "Action", "description": "find", "children": [
        {"node_type": "Action Input", "description": "{}", "observation": "found",
         "observation_code": 0, "children": [
          {"node_type": "Action", "description": "Finish", "children": [
            {"node_type": "Action Input", "description": "{\"final_answer\": 1}",
             "observation": "done", "observation_code": 3, "children": []}]},
          {"node_type": "Action", "description": "Finish", "children": [
            {"node_type": "Action Input", "description": "{\"final_answer\": 2}",
             "observation": "done", "observation_code": 3, "children": []}]}]}]}]}]}},
  "answer_generation": {"query": "what?", "final_answer": "{\"final_answer\": 2}",
    "function": [{"name": "find"}]}})";

TEST(ChatRecords, an_answer_tree_gives_the_path_to_its_final_answer) {
  EXPECT_EQ(said(kTree),
            "answer tree | system: Answer with calls of these functions, and end with a call of "
            "Finish: [{\"name\":\"find\"}] | user: what? | assistant: Thought: look\nAction: find\n"
            "Action Input: {} | tool: found | assistant: Action: Finish\nAction Input: "
            "{\"final_answer\": 2} | path 1.0.0.1.0: 2 calls, 6 of 10 nodes");
  std::string other = kTree;
  other.replace(other.find("\\\"final_answer\\\": 2}\",\n    \"function"), 18,
                "\\\"final_answer\\\": 7");
  EXPECT_NE(said(other).find("path 1.0.0.0.0:"), std::string::npos) << said(other);
}

// The text, with what is trained in brackets.
std::string masked(const ChatEncoder& encoder, const Tokenizer& tokenizer, const ChatRecord& record,
                   bool* is_apart = nullptr) {
  WordCache words;
  const MaskedTokens tokens = encoder.encode(record, words).samples.at(0);
  if (is_apart != nullptr) *is_apart = tokens.is_apart;
  std::string text;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    const bool was = i > 0 && tokens.is_trained[i - 1] != 0, is = tokens.is_trained[i] != 0;
    if (was && !is) text += "]";
    if (!was && is) text += "[";
    text += tokenizer.decode(std::span(tokens.ids).subspan(i, 1));
  }
  return text + (tokens.is_trained.back() != 0 ? "]" : "");
}

ChatRecord talk() {
  return read_chat_record(R"({"messages": [{"role": "user", "content": "a"},
    {"role": "assistant", "content": "b c"}, {"role": "user", "content": "d"},
    {"role": "assistant", "content": "e"}]})",
                          {});
}

class ChatMasks : public ChatFiles {
 protected:
  ChatEncoder encoder(const std::string& text) {
    write("t.jinja", text);
    return ChatEncoder(posix_files(), *tokenizer_, folder_ / "t.jinja", "");
  }
  std::string mask_of(const std::string& text) {
    return masked(encoder(text), *tokenizer_, talk());
  }
  std::unique_ptr<Tokenizer> tokenizer_ = byte_tokenizer();
};

TEST_F(ChatMasks, built_in_templates_train_answers_and_their_ends) {
  const ChatEncoder chatml(posix_files(), *tokenizer_, "chatml", "");
  EXPECT_EQ(masked(chatml, *tokenizer_, talk()),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[b c<|im_end|>]\n"
            "<|im_start|>user\nd<|im_end|>\n<|im_start|>assistant\n[e<|im_end|>]\n");
  const ChatEncoder plain(posix_files(), *tokenizer_, "auto", "");
  EXPECT_EQ(plain.template_name(), "plain");
  EXPECT_EQ(masked(plain, *tokenizer_, talk()),
            "User: a\nAssistant: [b c\n]User: d\nAssistant: [e\n]");
}

// Texts are trained whole, with one beginning and, where that is asked for, one end.
TEST_F(ChatMasks, texts_begin_once_and_end_once) {
  write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "<s>": 2,
      "</s>": 3}, "merges": []}, "added_tokens": [{"id": 2, "content": "<s>", "special": true},
      {"id": 3, "content": "</s>", "special": true}], "post_processor":
      {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
      {"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"<s>": {"ids": [2]}}},
      "decoder": {"type": "Fuse"}})");
  const auto tokenizer = make_tokenizer(posix_files(), folder_ / "tokenizer.json");
  using Ids = std::vector<int32_t>;
  const auto ids = [&](const char* text, TextEnd end) {
    const ChatEncoder encoder(posix_files(), *tokenizer, "plain", "", end);
    WordCache words;
    const MaskedTokens tokens =
        encoder.encode({.format = "text", .text = text}, words).samples.at(0);
    EXPECT_EQ(tokens.is_trained, std::vector<uint8_t>(tokens.ids.size(), 1));
    return tokens.ids;
  };
  EXPECT_EQ(ids("ab", TextEnd::eos), (Ids{2, 0, 1, 3}));
  EXPECT_EQ(ids("<s>ab</s>", TextEnd::eos), (Ids{2, 0, 1, 3}));
  EXPECT_EQ(ids("<s><s>ab", TextEnd::eos), (Ids{2, 2, 0, 1, 3}));  // one of them is the text's
  EXPECT_EQ(ids("a<s>b", TextEnd::eos), (Ids{2, 0, 2, 1, 3}));
  EXPECT_EQ(ids("ab", TextEnd::none), (Ids{2, 0, 1}));
  EXPECT_EQ(ids("<s>ab", TextEnd::none), (Ids{2, 0, 1}));
}

// Vocabularies that put a space before each text: what an answer begins with is not a text's
// beginning, and has none.
class SpacedVocabularies : public ChatFiles, public testing::WithParamInterface<const char*> {};

TEST_P(SpacedVocabularies, train_answers_of_the_plain_template_as_they_are) {
  const auto tokenizer = make_tokenizer(
      posix_files(), std::string(OCTET_SOURCE_DIR "/tests/fixtures/tokenizers/") + GetParam());
  const ChatEncoder plain(posix_files(), *tokenizer, "plain", "");
  WordCache words;
  const MaskedTokens tokens = plain.encode(talk(), words).samples.at(0);
  const std::string text = tokenizer->decode(tokens.ids);
  EXPECT_NE(text.find("User: a\nAssistant: b c"), std::string::npos) << text;
  EXPECT_NE(text.find("User: d\nAssistant: e"), std::string::npos) << text;
  std::string trained;
  for (size_t i = 0; i < tokens.ids.size(); ++i)
    if (tokens.is_trained[i] != 0) trained += tokenizer->token_bytes(tokens.ids[i]);
  std::erase(trained, '\n');  // behind the answers, where no token ends a text
  EXPECT_EQ(trained, "b ce");
}
INSTANTIATE_TEST_SUITE_P(tokenizers, SpacedVocabularies,
                         testing::Values("llama.json", "metaspace.json", "metaspace_whole.json",
                                         "prefix_space.json", "sp_bpe.model"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

TEST_F(ChatMasks, templates_without_generation_are_rendered_in_parts) {
  EXPECT_EQ(mask_of("{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
                    "{% if add_generation_prompt %}<assistant>{% endif %}"),
            "<user>a</s><assistant>[b c</s>]<user>d</s><assistant>[e</s>]");
}

// It would take as long for each record: the records are not dropped one after the other.
TEST_F(ChatMasks, a_template_beyond_its_steps_ends_the_reading) {
  const std::string loops =
      "{% for i in range(40) %}{% for j in range(40) %}{% endfor %}{% endfor %}";
  const auto read = [&](const std::string& condition, uint64_t max_steps) {
    const std::string text =
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}{% if " + condition +
        " %}" + loops + "{% endif %}";
    const ChatTemplateSource source{.text = text, .where = "t", .limits = {.max_steps = max_steps}};
    const ChatEncoder encoder(*tokenizer_, {.name = "t", .plain = source, .with_tools = source});
    write("talk.json", R"([{"messages": [{"role": "user", "content": "a"},
                                         {"role": "assistant", "content": "b"},
                                         {"role": "user", "content": "c"},
                                         {"role": "assistant", "content": "d"}]}])");
    read_chat_data(posix_files(), encoder, {.paths = {folder_ / "talk.json"}});
  };
  for (const char* condition :
       {"messages|length > 1", "add_generation_prompt and messages|length > 2"}) {
    EXPECT_THROW(read(condition, 1000), jinja::BudgetExceeded) << condition;
    EXPECT_NO_THROW(read(condition, 100'000)) << condition;
  }
}

TEST_F(ChatMasks, masks_that_train_nothing_or_everything_are_refused) {
  const auto why = [&](const std::string& text) { return error_of([&] { mask_of(text); }); };
  EXPECT_EQ(why("{% for m in messages %}{{ m.content }}{% generation %}{% endgeneration %}"
                "{% endfor %}"),
            "nothing would be trained: the template marks no answer");
  EXPECT_EQ(why("{% generation %}{% for m in messages %}{{ m.content }}|{% endfor %}"
                "{% endgeneration %}"),
            "everything would be trained: the template marks all of the text");
  EXPECT_EQ(why("{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}"
                "{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}:{% endif %}"
                "{% endfor %}"),
            "no end of a turn would be trained: the template ends answers with nothing, and the "
            "tokenizer has no EOS");
  const std::string undecided =
      why("{% for m in messages %}{% if not loop.last %}{{ m.content }}{% endif %}{% endfor %}"
          "{{ messages | length }}");
  EXPECT_NE(undecided.find("cannot be told"), std::string::npos) << undecided;
}

TEST_F(ChatFiles, every_record_is_read_or_counted_with_its_place) {
  const std::string path = write("x.jsonl",
                                 "{\"prompt\": \"a\", \"completion\": \"b\"}\n"
                                 "{\"prompt\": \"a\"}\n"
                                 "\n"
                                 "nonsense\n"
                                 "{\"prompt\": \"a\", \"completion\": \"b\"}\n"
                                 "{\"text\": \"plain\"}\n");
  write("folder/y.json", "[{\"instruction\": \"i\", \"output\": \"o\"}]");
  write("folder/readme.txt", "not JSON");
  const auto tokenizer = byte_tokenizer();
  const ChatEncoder encoder(posix_files(), *tokenizer, "chatml", "");
  for (const int threads : {1, 3}) {
    const ChatData data = read_chat_data(posix_files(), encoder,
                                         {.paths = {path, folder_ / "folder"}, .threads = threads});
    const ChatReport& report = data.report;
    EXPECT_EQ(report.n_files, 2);
    EXPECT_EQ(report.unread_files.at("their names are not of JSON").places,
              (std::vector<std::string>{folder_ / "folder/readme.txt"}));
    EXPECT_EQ(report.formats,
              (std::map<std::string, int64_t>{{"pair", 2}, {"text", 1}, {"Alpaca", 1}}));
    EXPECT_EQ(report.n_duplicates, 1);
    ASSERT_EQ(report.dropped.size(), 2u);
    EXPECT_EQ(report.dropped.at("not JSON").places,
              (std::vector<std::string>{path + ":4: expected JSON, got a mistake at byte 2"}));
    EXPECT_EQ(report.dropped.at("no fields that are known").places,
              (std::vector<std::string>{path + ":2: prompt"}));
    ASSERT_EQ(data.samples.size(), 4u);
    EXPECT_EQ(data.samples[1].place, path + ":5");
    EXPECT_EQ(data.source->n_tokens(), report.n_tokens);
    std::vector<int32_t> tokens(static_cast<size_t>(report.n_tokens));
    std::vector<uint8_t> flags(tokens.size());
    data.source->read(0, tokens, flags);
    int64_t n_starts = 0, n_trained = 0;
    for (const uint8_t flag : flags) {
      n_starts += flag & kDocumentStart;
      n_trained += (flag & kNotTrained) == 0 ? 1 : 0;
    }
    EXPECT_EQ(n_starts, 4);
    EXPECT_EQ(n_trained, report.n_trained);
  }
}

TEST_F(ChatFiles, data_without_a_record_is_an_error_that_says_why) {
  const std::string path = write("x.jsonl", "{\"a\": 1}\n{\"a\": 2}\n");
  const auto tokenizer = byte_tokenizer();
  const ChatEncoder encoder(posix_files(), *tokenizer, "plain", "");
  EXPECT_EQ(error_of([&] { read_chat_data(posix_files(), encoder, {.paths = {path}}); }),
            "[data] expected conversations in '" + path +
                "', got no record: 2 dropped: no fields that are known (" + path + ":1: a)");
}

// Conversations of the shared data, where it is there.
class SharedChat : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(data_ + "/eval_ft")) GTEST_SKIP() << "no shared data";
  }
  ChatData read(const std::string& name, const Tokenizer& tokenizer,
                const std::string& chat = "auto") {
    const ChatEncoder encoder(posix_files(), tokenizer, chat, "");
    return read_chat_data(posix_files(), encoder, {.paths = {data_ + "/eval_ft/" + name}});
  }
  std::string data_ = std::string(OCTET_TEST_DATA) + "/data";
};

TEST_F(SharedChat, every_set_is_read_whole) {
  const auto tokenizer = byte_tokenizer();
  const auto format = [&](const std::string& name) {
    return read(name, *tokenizer).report.formats;
  };
  using Formats = std::map<std::string, int64_t>;
  EXPECT_EQ(format("gsm8k/test.jsonl"), (Formats{{"pair", 1319}}));
  EXPECT_EQ(format("instruct/alpaca_en_demo.json"), (Formats{{"Alpaca", 999}}));
  EXPECT_EQ(format("instruct/glaive_toolcall_en_demo.json"), (Formats{{"ShareGPT", 300}}));
  EXPECT_EQ(format("lambada/lambada_test.jsonl"), (Formats{{"text", 5153}}));
  const ChatData trees = read("toolbench/answer", *tokenizer);
  EXPECT_EQ(trees.report.formats, (Formats{{"answer tree", 9}}));
  EXPECT_EQ(trees.report.dropped.at("an answer tree that ends without an answer").n, 6);
}

TEST_F(SharedChat, an_answer_trains_with_its_end_of_text) {
  const auto tokenizer = make_tokenizer(posix_files(), data_ + "/tokenizers/gpt2");
  const ChatData data = read("gsm8k/test.jsonl", *tokenizer);
  EXPECT_EQ(data.report.template_name, "plain");
  const ChatSample& sample = data.samples[0];
  std::vector<int32_t> ids(static_cast<size_t>(sample.n_tokens));
  std::vector<uint8_t> flags(ids.size());
  data.source->read(sample.first, ids, flags);
  const auto eos = std::find(ids.begin(), ids.end(), tokenizer->eos());
  ASSERT_NE(eos, ids.end());
  EXPECT_EQ(flags[static_cast<size_t>(eos - ids.begin())] & kNotTrained, 0);
  EXPECT_NE(flags.back() & kNotTrained, 0);  // the line feed behind it
}

}  // namespace
}  // namespace octet::data_chat_test
