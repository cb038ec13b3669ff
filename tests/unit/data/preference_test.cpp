// Pairs of answers: the formats of their records, and the rows that they become.
#include "data/preference_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/preference_records.h"
#include "text/tokenizer.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::data_preference_test {
namespace {

using test::error_of;
using testing::ElementsAre;
using testing::HasSubstr;

// The messages, "role:content", those of the assistant that are not trained in brackets.
std::string text_of(const ChatRecord& record) {
  std::string text;
  size_t i = 0;
  for (const OrderedJson& message : record.context["messages"]) {
    const bool is_masked = std::ranges::find(record.masked, i++) != record.masked.end();
    const std::string one =
        message["role"].get<std::string>() + ":" + message["content"].get<std::string>();
    text += (text.empty() ? "" : " ") + (is_masked ? "[" + one + "]" : one);
  }
  return text;
}

TEST(PreferenceRecords, of_every_format_are_two_conversations) {
  struct Case {
    const char *json, *chosen, *rejected;
  };
  const Case cases[] = {
      {R"({"prompt": "q", "chosen": "a", "rejected": "b"})", "user:q assistant:a",
       "user:q assistant:b"},
      {R"({"question": "q", "chosen": "a", "rejected": "b", "system": "s"})",
       "system:s user:q assistant:a", "system:s user:q assistant:b"},
      {R"({"instruction": "q", "input": "x", "chosen": "a", "rejected": "b",
           "history": [["p", "o"]]})",
       "user:p [assistant:o] user:q\nx assistant:a", "user:p [assistant:o] user:q\nx assistant:b"},
      {R"({"conversations": [{"from": "human", "value": "q"}],
           "chosen": {"from": "gpt", "value": "a"}, "rejected": {"from": "gpt", "value": "b"}})",
       "user:q assistant:a", "user:q assistant:b"},
      {R"({"conversations": [{"from": "human", "value": "q"}],
           "chosen": [{"from": "bot", "value": "a"}, {"from": "human", "value": "p"},
                      {"from": "bot", "value": "o"}],
           "rejected": [{"from": "bot", "value": "b"}, {"from": "human", "value": "p"},
                        {"from": "bot", "value": "o"}]})",
       "user:q assistant:a user:p assistant:o", "user:q assistant:b user:p assistant:o"},
      {R"({"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "o"},
                        {"role": "user", "content": "q"}],
           "chosen": "a", "rejected": "b"})",
       "user:p [assistant:o] user:q assistant:a", "user:p [assistant:o] user:q assistant:b"},
      {R"({"prompt": [{"role": "user", "content": "q"}],
           "chosen": [{"role": "assistant", "content": "a"}],
           "rejected": [{"role": "assistant", "content": "b"}]})",
       "user:q assistant:a", "user:q assistant:b"},
      {R"({"prompt": "q", "chosen": {"role": "assistant", "content": "a"}, "rejected": "b"})",
       "user:q assistant:a", "user:q assistant:b"},
      {R"({"prompt": "q",
           "chosen": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "o"},
                      {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
           "rejected": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "o"},
                        {"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}]})",
       "user:p [assistant:o] user:q assistant:a", "user:p [assistant:o] user:q assistant:b"},
  };
  for (const Case& one : cases) {
    const PreferenceRecord record = read_preference_record(one.json, {});
    EXPECT_EQ(text_of(record.chosen), one.chosen) << one.json;
    EXPECT_EQ(text_of(record.rejected), one.rejected) << one.json;
  }
}

// Neither an answer that 'chosen' and 'rejected' stand for nor a prompt that is said again is lost
// without a word.
TEST(PreferenceRecords, keys_that_the_answers_replace_are_named) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"prompt": "q", "completion": "c", "chosen": "a", "rejected": "b"})", "completion"},
      {R"({"instruction": "q", "output": "c", "chosen": "a", "rejected": "b"})", "output"},
      {R"({"question": "q", "answer": "c", "chosen": "a", "rejected": "b"})", "answer"}};
  for (const auto& [json, key] : cases) {
    EXPECT_THAT(read_preference_record(json, {}).chosen.ignored, testing::ElementsAre(key)) << json;
  }
  for (const char* prompt : {R"(" p\n")", R"([{"role": "user", "content": "p"}])"}) {
    const std::string json = std::string(R"({"prompt": )") + prompt + R"(,
        "chosen": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "o"}],
        "rejected": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "q"}]})";
    EXPECT_EQ(text_of(read_preference_record(json, {}).chosen), "user:p assistant:o") << json;
  }
}

TEST(PreferenceRecords, that_are_none_say_why) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"prompt": "q", "chosen": "a"})", "no 'chosen' and 'rejected'"},
      {R"({"prompt": "q", "chosen": "a", "rejected": null})", "no 'chosen' and 'rejected'"},
      {R"({"chosen": "a", "rejected": "b"})", "no prompt"},
      {R"({"prompt": "q", "chosen": "a", "rejected": "a"})", "that is the rejected one"},
      {R"({"prompt": "q", "chosen": 7, "rejected": "a"})", "neither a text nor one message"},
      {R"({"prompt": "q", "chosen": "", "rejected": "a"})", "an empty answer"},
      {R"({"messages": "q", "chosen": "b", "rejected": "a"})", "no list"},
      {R"({"chosen": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "o"}],
           "rejected": [{"role": "user", "content": "r"}, {"role": "assistant", "content": "o"}]})",
       "begin with other messages"},
      {R"({"prompt": "other",
           "chosen": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "o"}],
           "rejected": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "q"}]})",
       "a 'prompt' that is not what both conversations begin with"},
      {R"({"messages": [{"role": "user", "content": "x"}],
           "chosen": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "o"}],
           "rejected": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "q"}]})",
       "a 'messages' that is not what both conversations begin with"},
      {R"({"prompt": "q", "chosen": "x", "chosen": "a", "rejected": "b"})", "a key given twice"},
      {"[1]", "no object"},
      {"{", "not JSON"},
  };
  for (const auto& wrong : cases) {
    EXPECT_THAT(error_of([&] { read_preference_record(wrong.first, {}); }), HasSubstr(wrong.second))
        << wrong.first;
  }
}

class PreferenceData_ : public testing::Test {
 protected:
  PreferenceData read(const std::string& lines, int64_t seq, TooLong too_long = TooLong::drop) {
    const std::string path = folder_.put("x.jsonl", lines);
    return read_preferences(posix_files(), *encoder_,
                            {.chat = {.paths = {path}, .threads = 1},
                             .seq = seq,
                             .too_long = too_long,
                             .has_reference = true});
  }
  test::ScratchFolder folder_;
  std::unique_ptr<Tokenizer> bytes_ = make_tokenizer(posix_files(), "bytes");
  std::optional<ChatEncoder> encoder_{std::in_place, posix_files(), *bytes_, "plain", ""};
};

TEST_F(PreferenceData_, stand_side_by_side_with_the_answers_as_labels) {
  const PreferenceData data =
      read("{\"prompt\": \"q\", \"chosen\": \"abc\", \"rejected\": \"de\"}\n", 64);
  ASSERT_EQ(data.rows->n_samples(), 1);
  data.rows->set_reference({3, 5});
  Batch batch{.batch = 2, .seq = 64, .rows_per_sample = 2};
  for (const InputSpec& spec : data.rows->inputs()) batch.add(spec);
  batch.lengths.resize(2);
  data.rows->write(0, {}, batch);
  EXPECT_THAT(batch.reals("reference_nll"), ElementsAre(3, 5));
  for (int64_t row = 0; row < 2; ++row) {
    std::string said;
    for (int64_t i = row * 64; i < row * 64 + batch.lengths[static_cast<size_t>(row)]; ++i) {
      const int32_t label = batch.ints("labels")[static_cast<size_t>(i)];
      if (label == kIgnoredLabel) continue;
      said += static_cast<char>(label);
      if (i + 1 < (row + 1) * 64 && i + 1 < row * 64 + batch.lengths[static_cast<size_t>(row)])
        EXPECT_EQ(batch.ints("tokens")[static_cast<size_t>(i + 1)], label);
    }
    EXPECT_THAT(said, testing::StartsWith(row == 0 ? "abc" : "de"));
  }
}

// Told as of conversations: what the template's prompt ends with, and answers not trained.
TEST_F(PreferenceData_, tell_what_their_answers_stand_behind_and_what_is_left_out) {
  const std::string thinks =
      folder_.put("t.jinja",
                  "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}|{% endfor %}"
                  "{% if add_generation_prompt %}<assistant><t>\n{% endif %}");
  encoder_.emplace(posix_files(), *bytes_, thinks, "");
  EXPECT_THAT(
      read("{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": \"b\"}\n", 64).report.prompt_ends,
      ElementsAre(testing::Pair("<t>\n", 1)));
  encoder_.emplace(posix_files(), *bytes_, "plain", "");
  const std::string empty =
      R"({"prompt": [{"role": "user", "content": "q"}], )"
      R"("chosen": [{"role": "assistant", "content": ""}, {"role": "user", "content": "p"}, )"
      R"({"role": "assistant", "content": "a"}], )"
      R"("rejected": [{"role": "assistant", "content": "b"}]})";
  const auto left_out = read(empty + "\n", 256).report.left_out;
  ASSERT_EQ(left_out.count("an empty answer"), 1u);
  EXPECT_EQ(left_out.at("an empty answer").n, 1);
}

TEST_F(PreferenceData_, that_are_too_long_are_dropped_both_or_cut) {
  const std::string lines =
      "{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": \"b\"}\n"
      "{\"prompt\": \"q\", \"chosen\": \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\", "
      "\"rejected\": \"b\"}\n";
  const PreferenceData dropped = read(lines, 40);
  EXPECT_EQ(dropped.rows->n_samples(), 1);
  EXPECT_EQ(dropped.report.dropped.size(), 1u);
  EXPECT_EQ(read(lines, 40, TooLong::truncate).rows->longest(), 40);
  EXPECT_THAT(error_of([&] { read(lines, 2); }), HasSubstr("more than 2 tokens"));
}

}  // namespace
}  // namespace octet::data_preference_test
