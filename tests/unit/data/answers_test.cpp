// Conversations become samples: which texts, which answers of them are trained, what is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/chat_dataset.h"
#include "data/chat_messages.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::data_answers_test {
namespace {

using test::error_of;
using test::ScratchFolder;
using Texts = std::vector<std::string>;

const std::string kTemplates = std::string(OCTET_TEST_DATA) + "/data/chat_templates/templates/";

class ChatAnswers : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    return folder_.put(name, text);
  }
  ChatEncoder encoder(const std::string& text) {
    return ChatEncoder(posix_files(), *bytes_, write("t.jinja", text), "");
  }
  // Each sample, what is trained in brackets.
  Texts samples(const ChatEncoder& encoder, const std::string& json,
                const ChatFields& fields = {}) {
    encoded_ = encoder.encode(read_chat_record(json, fields), words_);
    Texts texts;
    for (const MaskedTokens& tokens : encoded_.samples) {
      std::string& text = texts.emplace_back();
      bool was = false;
      for (size_t i = 0; i < tokens.ids.size(); ++i) {
        const bool is = tokens.is_trained[i] != 0;
        if (was != is) text += is ? "[" : "]";
        was = is;
        text += bytes_->decode(std::span(tokens.ids).subspan(i, 1));
      }
      if (was) text += "]";
    }
    return texts;
  }
  Texts left_out() const {
    Texts why;
    for (const LeftOutAnswer& answer : encoded_.left_out)
      why.push_back(fmt::format("{}: {}", answer.message, answer.why));
    return why;
  }

  ScratchFolder folder_;
  std::unique_ptr<Tokenizer> bytes_ = byte_tokenizer();
  WordCache words_;
  EncodedRecord encoded_;
};

constexpr const char* kTurns =
    R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                     {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})";
// Thoughts of earlier turns are left out.
constexpr const char* kRewrites =
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}()"
    "{% endif %}{{ m.content }}|{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
// The prompt begins a thought that a rendered answer does not.
constexpr const char* kThinks =
    "{% for m in messages %}<{{ m.role }}>{{ m.content.split('</t>')[-1] }}|{% endfor %}"
    "{% if add_generation_prompt %}<assistant><t>\n{% endif %}";

// The next turn, if any, ends an answer of these.
TEST_F(ChatAnswers, that_a_template_ends_with_nothing_end_with_the_tokenizers_eos) {
  if (!posix_files().exists(kTemplates)) GTEST_SKIP() << "no shared data in " << OCTET_TEST_DATA;
  const std::string fixtures = OCTET_SOURCE_DIR "/tests/fixtures/tokenizers/";
  write("tokenizer.json", posix_files().read_text(fixtures + "gpt2.json"));
  write("tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  const auto tokenizer = make_tokenizer(posix_files(), folder_.path());
  for (const char* name : {"glm-4.6", "falcon-7b-instruct", "pivot-moe"}) {
    const auto with = [&](TextEnd end) {
      return ChatEncoder(posix_files(), *tokenizer, kTemplates + name + ".jinja", "", end);
    };
    const ChatRecord record = read_chat_record(kTurns, {});
    const EncodedRecord encoded = with(TextEnd::eos).encode(record, words_);
    for (const MaskedTokens& sample : encoded.samples) {
      EXPECT_EQ(sample.ids.back(), tokenizer->eos()) << name;
      EXPECT_EQ(sample.is_trained.back(), 1) << name;
      EXPECT_EQ(std::ranges::count(sample.ids, *tokenizer->eos()), 1) << name;
    }
    EXPECT_EQ(error_of([&] { with(TextEnd::none).encode(record, words_); }),
              "no end of a turn would be trained: the template ends answers with nothing, and "
              "data.text_end is off")
        << name;
  }
}

// Text behind the last answer counts, whatever the template makes of texts and of calls.
TEST_F(ChatAnswers, end_with_eos_where_the_template_changes_their_text) {
  write("tokenizer.json",
        posix_files().read_text(OCTET_SOURCE_DIR "/tests/fixtures/tokenizers/gpt2.json"));
  write("tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  const auto tokenizer = make_tokenizer(posix_files(), folder_.path());
  const std::string turns =
      "{% for m in messages %}\n{{ m.role }}:{{ m.content.replace('\n\n', '\n') if m.content "
      "else 'call' }}{% endfor %}{% if add_generation_prompt %}\nassistant:{% endif %}";
  const ChatEncoder encoder(posix_files(), *tokenizer, write("t.jinja", turns), "", TextEnd::eos);
  const auto ends_with_eos = [&](const std::string& json) {
    const MaskedTokens sample = encoder.encode(read_chat_record(json, {}), words_).samples.at(0);
    return sample.ids.back() == tokenizer->eos() && sample.is_trained.back() == 1;
  };
  EXPECT_TRUE(ends_with_eos(R"({"prompt": "a", "completion": "b\n\nc"})"));
  EXPECT_TRUE(ends_with_eos(R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
      {"role": "tool", "content": "b"}, {"role": "assistant", "content": "c"}]})"));
}

TEST_F(ChatAnswers, have_samples_of_their_own_where_a_template_rewrites_earlier_turns) {
  EXPECT_EQ(samples(encoder(kRewrites), kTurns),
            (Texts{"<user>a|<assistant>[()b|]", "<user>a|<assistant>b|<user>c|<assistant>[()d|]"}));
  EXPECT_TRUE(encoded_.are_apart);
}

TEST_F(ChatAnswers, stand_behind_the_prompt_as_at_inference) {
  EXPECT_EQ(
      samples(encoder(kThinks), kTurns),
      (Texts{"<user>a|<assistant><t>\n[b|]", "<user>a|<assistant>b|<user>c|<assistant><t>\n[d|]"}));
  EXPECT_EQ(encoded_.prompt_end, "<t>\n");
  // With the thought that the template strips; and where an answer begins as the prompt goes on.
  EXPECT_EQ(samples(encoder(kThinks), R"({"prompt": "a", "completion": "<t>\nwhy</t>b"})"),
            (Texts{"<user>a|<assistant><t>\n[why</t>b|]"}));
  EXPECT_EQ(encoded_.prompt_end, "");
  EXPECT_EQ(samples(encoder(kThinks), R"({"prompt": "a", "completion": "<b>"})"),
            (Texts{"<user>a|<assistant><t>\n[<b>|]"}));
}

TEST_F(ChatAnswers, equal_what_transformers_renders_of_each_prefix) {
  const std::string file = OCTET_SOURCE_DIR "/tests/fixtures/chat/answers.json";
  const OrderedJson goldens = parse_ordered_json(posix_files().read_text(file), file);
  if (!posix_files().exists(kTemplates)) GTEST_SKIP() << "no shared data in " << OCTET_TEST_DATA;
  const OrderedJson record = {{"messages", goldens["messages"]}};
  const std::string model = parent_path(write("tokenizer_config.json", goldens["tokens"].dump()));
  for (const auto& [name, answers] : goldens["templates"].items()) {
    write("chat_template.jinja", posix_files().read_text(kTemplates + name + ".jinja"));
    const ChatEncoder chat(posix_files(), *bytes_, model, "");
    const EncodedRecord encoded = chat.encode(read_chat_record(record.dump(), {}), words_);
    EXPECT_TRUE(encoded.are_apart) << name;
    ASSERT_EQ(encoded.samples.size(), answers.size()) << name;
    for (size_t i = 0; i < answers.size(); ++i) {
      const MaskedTokens& tokens = encoded.samples[i];
      const auto prompt = answers[i]["prompt"].get<std::string>();
      const auto text = answers[i]["text"].get<std::string>();
      const std::string got = bytes_->decode(tokens.ids);
      const auto first = std::ranges::find(tokens.is_trained, uint8_t{1});
      EXPECT_EQ(got.substr(0, static_cast<size_t>(first - tokens.is_trained.begin())), prompt)
          << name;
      if (text.starts_with(prompt)) {
        EXPECT_EQ(got, text) << name;
      }
      if (!text.starts_with(prompt)) {
        EXPECT_EQ(encoded.prompt_end.empty(), false) << name;
      }
      const auto said = record["messages"][2 * i + 1]["content"].get<std::string>();
      EXPECT_THAT(got.substr(prompt.size()), testing::HasSubstr(said)) << name;
    }
  }
}

TEST_F(ChatAnswers, of_weight_0_are_not_trained) {
  const std::string turns =
      R"({"messages": [{"role": "user", "content": "a"},
          {"role": "assistant", "content": "b", "weight": 0}, {"role": "user", "content": "c"},
          {"role": "assistant", "content": "d", "weight": 1, "train": true}]})";
  const ChatEncoder chatml(posix_files(), *bytes_, "chatml", "");
  EXPECT_EQ(samples(chatml, turns),
            (Texts{"<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
                   "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n[d<|im_end|>]\n"}));
  EXPECT_EQ(samples(encoder(kRewrites), turns),
            (Texts{"<user>a|<assistant>b|<user>c|<assistant>[()d|]"}));
}

TEST_F(ChatAnswers, are_not_trained_by_any_name_of_train) {
  const ChatEncoder plain(posix_files(), *bytes_, "plain", "");
  for (const std::string key : {"train", "training", "trainable", "loss"}) {
    const auto answer = [&](const std::string& more) {
      return R"({"messages": [{"role": "user", "content": "a"},
                 {"role": "assistant", "content": "b", ")" +
             key + "\": " + more + R"(}, {"role": "user", "content": "c"},
             {"role": "assistant", "content": "d"}]})";
    };
    EXPECT_EQ(samples(plain, answer("false")),
              (Texts{"User: a\nAssistant: b\nUser: c\nAssistant: [d\n]"}))
        << key;
    EXPECT_EQ(samples(plain, answer("true")),
              (Texts{"User: a\nAssistant: [b\n]User: c\nAssistant: [d\n]"}))
        << key;
    if (key == "train") continue;  // false or true, or an error
    EXPECT_EQ(samples(plain, answer("0")), samples(plain, answer("false"))) << key;
    EXPECT_EQ(samples(plain, answer("1")), samples(plain, answer("true"))) << key;
    EXPECT_EQ(read_chat_record(answer("0.5"), {}).ignored, Texts{"message." + key});
  }
}

TEST_F(ChatAnswers, that_are_empty_are_left_out_and_told) {
  const ChatEncoder plain(posix_files(), *bytes_, "plain", "");
  EXPECT_EQ(samples(plain, R"({"messages": [
      {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
      {"role": "user", "content": "c"}, {"role": "assistant", "content": ""}]})"),
            (Texts{"User: a\nAssistant: [b\n]User: c\nAssistant: \n"}));
  EXPECT_EQ(left_out(), (Texts{"3: an empty answer"}));
  // The template makes nothing of a call.
  EXPECT_EQ(samples(encoder("{% for m in messages %}{% if m.content %}<{{ m.role }}>"
                            "{{ m.content }}|{% endif %}{% endfor %}"),
                    R"({"messages": [{"role": "user", "content": "a"},
                        {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]},
                        {"role": "tool", "content": "c"},
                        {"role": "assistant", "content": "d"}]})"),
            (Texts{"<user>a|<tool>c|[<assistant>d|]"}));
  EXPECT_EQ(left_out(), (Texts{"1: an answer of 'tool_calls' alone, of which the template renders "
                               "nothing"}));
}

// Templates that read calls, thoughts, tools and a switch, and one that reads none of them.
TEST_F(ChatAnswers, of_calls_and_thoughts_alone_are_trained_where_the_template_reads_them) {
  const std::string prompt = "{% if add_generation_prompt %}<assistant>{{ mode }}{% endif %}";
  const ChatEncoder unread =
      encoder("{% for m in messages %}<{{ m.role }}>{{ m.content }}|{% endfor %}" + prompt);
  const ChatEncoder read = encoder(
      "{{ tools | tojson }}{% for m in messages %}<{{ m.role }}>{{ m.thinking }}{{ m.content }}"
      "{% for c in m.tool_calls %}{{ c.name }}{% endfor %}|{% endfor %}" +
      prompt);
  const std::string call = R"({"role": "assistant", "tool_calls": [{"name": "f"}],
                               "audio": {"id": "x"}, "annotations": [])";
  const std::string thought = R"({"role": "assistant", "reasoning": "t")";
  const std::string blank = R"(, "content": " "})", none = "}";
  const auto record = [](const std::string& answers) {
    return R"({"tools": [{"n": 1}], "chat_template_kwargs": {"fast": false, "mode": ""},
               "messages": [{"role": "user", "content": "a"}, )" +
           answers + "]}";
  };
  const std::string said = R"(, {"role": "assistant", "content": "b"})";
  EXPECT_EQ(samples(unread, record(call + blank + said)),
            (Texts{"<user>a|<assistant> |<assistant>[b|]"}));
  EXPECT_EQ(left_out(), (Texts{"1: an answer of 'tool_calls' and 'audio' alone, of which the "
                               "template renders nothing"}));
  EXPECT_EQ(encoded_.unread,
            (Texts{"tools", "chat_template_kwargs.fast", "message.tool_calls", "message.audio"}));
  EXPECT_EQ(error_of([&] { samples(unread, record(thought + blank)); }),
            "an answer of 'reasoning' alone, of which the template renders nothing");
  EXPECT_EQ(samples(read, record(call + none)), (Texts{"[{\"n\": 1}]<user>a|<assistant>[f|]"}));
  EXPECT_EQ(encoded_.unread, (Texts{"chat_template_kwargs.fast", "message.audio"}));
  EXPECT_EQ(samples(read, record(thought + none)), (Texts{"[{\"n\": 1}]<user>a|<assistant>[t|]"}));
  EXPECT_EQ(encoded_.unread, (Texts{"chat_template_kwargs.fast"}));
}

// Templates that ask for the type of each part pass over the others.
TEST_F(ChatAnswers, name_parts_of_messages_that_the_template_passes_over) {
  const ChatEncoder by_type = encoder(
      "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% elif p.type == 'thinking' "
      "%}({{ p.thinking }}){% endif %}{% endfor %}{% endif %}|{% endfor %}");
  EXPECT_EQ(samples(by_type, R"({"messages": [
      {"role": "user", "content": [{"type": "input_text", "text": "a"},
                                   {"type": "tool_result", "content": "x"}, {"text": "y"}]},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"},
                                        {"type": "output_text", "text": "b"}]}]})"),
            (Texts{"<user>a|[<assistant>(t)b|]"}));
  EXPECT_EQ(encoded_.unread, (Texts{"message.content (parts of type 'tool_result')",
                                    "message.content (parts of type '')"}));
}

// Earlier thoughts that a template takes out, and a switch that holds what it takes without it,
// are read all the same.
TEST_F(ChatAnswers, name_no_key_that_a_text_of_theirs_holds) {
  const ChatEncoder thinks = encoder(
      "{% for m in messages %}<{{ m.role }}>{% if loop.last and m.thinking and think != false"
      " %}({{ m.thinking }}){% endif %}{{ m.content }}|{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}");
  const std::string turns = R"("messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "b", "reasoning_content": "t"},
      {"role": "user", "content": "c", "name": "n"}, {"role": "assistant", "content": "d"}]})";
  EXPECT_EQ(samples(thinks, R"({"chat_template_kwargs": {"think": true}, )" + turns),
            (Texts{"<user>a|<assistant>[(t)b|]", "<user>a|<assistant>b|<user>c|<assistant>[d|]"}));
  EXPECT_EQ(encoded_.unread, (Texts{"message.name"}));
}

std::string message_of(const std::string& json, CallArguments arguments = CallArguments::parse) {
  ChatFields fields;
  fields.arguments = arguments;
  return read_message(parse_ordered_json(json, ""), fields).json.dump();
}

TEST(ChatMessages, lose_keys_that_are_null) {
  EXPECT_EQ(message_of(R"({"role": "assistant", "content": null, "tool_calls": null, "x": 1})"),
            R"({"role":"assistant","x":1})");
  EXPECT_EQ(message_of(R"({"role": "user", "content": "a", "tool_calls": [], "name": null})"),
            R"({"role":"user","content":"a"})");
}

TEST(ChatMessages, hold_arguments_as_what_their_json_means) {
  const std::string call =
      R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"n\": 2}"}}]})";
  EXPECT_EQ(message_of(call),
            R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"n":2}}}]})");
  EXPECT_EQ(message_of(call, CallArguments::keep), call);
  EXPECT_EQ(message_of(R"({"role":"assistant","function_call":{"name":"f","arguments":""}})"),
            R"({"role":"assistant","function_call":{"name":"f","arguments":{}}})");
}

TEST_F(ChatAnswers, of_parts_are_joined_for_templates_that_take_texts) {
  const std::string parts =
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
          {"type": "text", "text": "b"}]}, {"role": "assistant", "content": [{"type": "text",
          "text": "c"}]}]})";
  const ChatEncoder plain(posix_files(), *bytes_, "plain", "");
  EXPECT_EQ(samples(plain, parts), (Texts{"User: a\nb\nAssistant: [c\n]"}));
  EXPECT_EQ(samples(encoder("{% for m in messages %}<{{ m.role }}>{% if m.content is string %}"
                            "{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}"
                            "{% endfor %}{% endif %}|{% endfor %}"
                            "{% if add_generation_prompt %}<assistant>{% endif %}"),
                    parts),
            (Texts{"<user>ab|<assistant>[c|]"}));
}

TEST(ChatRecordKeys, are_used_or_named) {
  const ChatRecord alpaca = read_chat_record(
      R"({"instruction": "i", "context": "c", "response": "o", "history": [["q", "a"]], "id": 1,
          "category": "x", "empty": null})",
      {});
  EXPECT_EQ(alpaca.context["messages"].dump(),
            R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"},)"
            R"({"role":"user","content":"i\nc"},{"role":"assistant","content":"o"}])");
  EXPECT_EQ(alpaca.ignored, (Texts{"id", "category"}));
  const ChatRecord pair =
      read_chat_record(R"({"question": "q", "context": "c", "answer": "a", "text": "t"})", {});
  EXPECT_EQ(pair.context["messages"][0]["content"], "c\nq");
  EXPECT_EQ(pair.ignored, (Texts{"text"}));
  const ChatRecord share = read_chat_record(
      R"({"conversations": [{"from": "human", "value": "q", "at": 1}, {"from": "gpt", "value": "a",
          "at": 2, "train": true}]})",
      {});
  EXPECT_EQ(share.ignored, (Texts{"message.at"}));
  // No message but the assistant's has a loss.
  const ChatRecord asked = read_chat_record(
      R"({"messages": [{"role": "user", "content": "q", "weight": 1},
                       {"role": "system", "content": "s", "train": true, "weight": 0},
                       {"role": "assistant", "content": "a", "train": true, "weight": 1}]})",
      {});
  EXPECT_EQ(asked.ignored, (Texts{"message.weight (of another than the assistant)",
                                  "message.train (of another than the assistant)"}));
}

TEST_F(ChatAnswers, with_a_special_token_that_the_tokenizer_splits_are_refused) {
  write("model/tokenizer_config.json",
        R"({"added_tokens_decoder": {"7": {"content": "<|im_start|>", "special": true}}})");
  const auto tokenizer =
      make_tokenizer(posix_files(), OCTET_SOURCE_DIR "/tests/fixtures/tokenizers/gpt2.json");
  ASSERT_FALSE(tokenizer->special_id("<|im_start|>"));
  const std::string data = write("x.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  const auto split = split_tokens(posix_files(), {folder_ / "model"}, *tokenizer);
  ChatEncoder chatml(posix_files(), *tokenizer, "chatml", "");
  chatml.refuse_split_tokens(split);
  const std::string why =
      error_of([&] { read_chat_data(posix_files(), chatml, {.paths = {data}}); });
  EXPECT_THAT(why, testing::HasSubstr("x.jsonl:1: expected '<|im_start|>' to be one token, as "));
  ChatEncoder plain(posix_files(), *tokenizer, "plain", "");
  plain.refuse_split_tokens(split);
  EXPECT_EQ(read_chat_data(posix_files(), plain, {.paths = {data}}).samples.size(), 1u);
}

TEST_F(ChatAnswers, of_a_file_of_preferences_end_the_run) {
  const std::string data = write("x.jsonl",
                                 "{\"prompt\": \"a\", \"completion\": \"b\"}\n"
                                 "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n");
  const ChatEncoder plain(posix_files(), *bytes_, "plain", "");
  EXPECT_EQ(error_of([&] { read_chat_data(posix_files(), plain, {.paths = {data}}); }),
            "[data] " + data +
                ":2: expected conversations, got pairs of preferences ('chosen' and 'rejected'): "
                "train.loss dpo, ipo, simpo or orpo trains on them");
}

TEST_F(ChatAnswers, are_counted_and_told_by_record) {
  OrderedJson turns = parse_ordered_json(kTurns, "");
  turns["id"] = 1;
  const std::string data =
      write("x.jsonl", turns.dump() + "\n{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  const ChatData read = read_chat_data(posix_files(), encoder(kRewrites), {.paths = {data}});
  EXPECT_EQ(read.report.n_records, 2);
  EXPECT_EQ(read.report.n_rewritten, 1);  // the other's only answer is the last
  ASSERT_EQ(read.samples.size(), 3u);
  EXPECT_EQ(read.samples[1].note, "answer 2 of 2");
  EXPECT_EQ(read.samples[1].record, 0);
  EXPECT_EQ(read.samples[2].record, 1);
  EXPECT_EQ(read.report.ignored, (std::map<std::string, int64_t>{{"id", 1}}));
}

}  // namespace
}  // namespace octet::data_answers_test
