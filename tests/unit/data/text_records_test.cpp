#include "data/text_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/row_plan.h"
#include "data/token_rows.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet {
namespace {

using test::error_of;
using test::ScratchFolder;
using testing::ElementsAre;

struct ReadTexts {
  std::vector<std::string> records, messages;
};

ReadTexts read(const ScratchFolder& folder, const std::string& name, const std::string& content,
               const TextFields& fields = {}, ReadLabels labels = ReadLabels::yes) {
  ReadTexts result;
  const Log log([&](LogLevel, const std::string& message) { result.messages.push_back(message); });
  LeftOut left_out(log);
  const std::string path = folder.put(name, content);
  for (const TextRecord& one : read_text_records(posix_files(), {path}, fields, labels, left_out)) {
    result.records.push_back(one.first + "|" + one.second.value_or("none") + "|" + one.label + "|" +
                             one.place.substr(path.size()));
  }
  left_out.finish();
  for (std::string& message : result.messages) {
    if (const size_t at = message.find(path); at != message.npos) message.erase(at, path.size());
  }
  return result;
}

TEST(TextRecords, objects_of_a_list_and_of_lines_are_read_by_common_names) {
  const ScratchFolder folder;
  EXPECT_THAT(read(folder, "a.jsonl",
                   "{\"premise\": \"a\", \"hypothesis\": \"b\", \"label\": 1}\n\n"
                   "{\"premise\": \"c\", \"hypothesis\": \"\", \"label\": \"x\"}\n")
                  .records,
              ElementsAre("a|b|1|:1", "c||x|:3"));
  EXPECT_THAT(read(folder, "a.json",
                   "[{\"text\": \"a\", \"label\": true},\n {\"text\": \"b\", \"label\": 0.5}]")
                  .records,
              ElementsAre("a|none|1|:1", "b|none|0.5|:2"));
}

TEST(TextRecords, lists_of_labels_are_read_where_they_are_asked_for) {
  const ScratchFolder folder;
  const Log log([](LogLevel, const std::string&) {});
  const auto labels = [&](const std::string& name, const std::string& content) {
    LeftOut left_out(log);
    std::vector<std::vector<std::string>> all;
    for (const TextRecord& one : read_text_records(posix_files(), {folder.put(name, content)}, {},
                                                   ReadLabels::lists, left_out)) {
      all.push_back(one.labels);
    }
    return all;
  };
  const std::string lines =
      "{\"text\": \"a\", \"labels\": [\"x\", \"y z\"]}\n{\"text\": \"b\", \"labels\": []}\n"
      "{\"text\": \"c\", \"labels\": 2}\n{\"text\": \"d\", \"labels\": [true, 0.5, 3]}\n";
  EXPECT_THAT(labels("a.jsonl", lines),
              ElementsAre(ElementsAre("x", "y z"), ElementsAre(), ElementsAre("2"),
                          ElementsAre("1", "0.5", "3")));
  EXPECT_THAT(labels("a.tsv", "text\tlabel\na\t[\"x\"]\nb\ty\nc\t[1\n"),
              ElementsAre(ElementsAre("x"), ElementsAre("y")));
  const ReadTexts single = read(folder, "a.jsonl", lines);
  EXPECT_EQ(single.records.size(), 1u);
  ASSERT_EQ(single.messages.size(), 4u);
  EXPECT_EQ(single.messages[0],
            "[data] :1 is left out: expected a label, got a list (model.head: multi_label)");
}

TEST(TextRecords, tables_have_names_above_and_no_quotes) {
  const ScratchFolder folder;
  const std::string table = "label\tsentence2\tsentence1\r\n1\t\"b\ta b\r\n0\td\te";
  EXPECT_THAT(read(folder, "a.tsv", table).records, ElementsAre("a b|\"b|1|:2", "e|d|0|:3"));
  EXPECT_THAT(read(folder, "a.tsv", table, {.text = "sentence2"}).records,
              ElementsAre("\"b|none|1|:2", "d|none|0|:3"));
  EXPECT_THAT(read(folder, "a.tsv", table, {.text = "sentence2", .pair = "label", .label = "label"},
                   ReadLabels::no)
                  .records,
              ElementsAre("\"b|1||:2", "d|0||:3"));
}

TEST(TextRecords, lines_that_are_none_are_told_of_and_counted) {
  const ScratchFolder folder;
  const ReadTexts all =
      read(folder, "a.jsonl",
           "{\"text\": \"a\", \"label\": 1}\n{\"text\": 3, \"label\": 1}\n[1]\nnone\n"
           "{\"label\": 1}\n{\"text\": \"b\"}\n{\"text\": \"c\", \"label\": -1}\n"
           "{\"text\": \"d\", \"label\": 1}\n");
  EXPECT_THAT(all.records, ElementsAre("a|none|1|:1", "d|none|1|:8"));
  ASSERT_EQ(all.messages.size(), 6u);
  EXPECT_EQ(all.messages[0], "[data] :2 is left out: expected a text 'text', got number");
  EXPECT_EQ(all.messages[1], "[data] :3 is left out: expected an object, got array");
  EXPECT_EQ(all.messages[3], "[data] :5 is left out: expected a text 'text', got none");
  EXPECT_EQ(all.messages[4], "[data] :6 is left out: expected a label, got none");
  EXPECT_EQ(all.messages[5], "[data] 6 lines are left out in all");
}

TEST(TextRecords, other_files_are_refused) {
  const ScratchFolder folder;
  EXPECT_EQ(error_of([&] { read(folder, "a.csv", "text,label\n"); }, folder.path()),
            "[data] 'DIR/a.csv': expected .jsonl, .ndjson, .json, .tsv, or a folder of such, got "
            "other data");
  EXPECT_EQ(error_of([&] { read(folder, "a.tsv", "text\tclass\na\tb\n"); }, folder.path()),
            "[data] DIR/a.tsv: expected label, score or the like (data.fields.label), got text, "
            "class");
  EXPECT_EQ(error_of([&] { read(folder, "b.tsv", "a\tb\n", {.pair = "b"}); }, folder.path()),
            "data.fields.text: expected a name beside data.fields.pair, got auto");
}

// Pairs of rows, as a contrastive loss has them.
TEST(TokenRows, samples_of_two_rows_are_padded_and_tell_their_lengths) {
  TokenRows rows;
  rows.add_row(std::vector<int32_t>{1, 5, 2}, {});
  rows.add_row(std::vector<int32_t>{1, 2}, {});
  rows.add_row(std::vector<int32_t>{1, 6, 7, 2}, {});
  rows.add_row(std::vector<int32_t>{1, 8, 2}, {});
  const auto source = token_rows(rows, {.rows_per_sample = 2, .padding = 9});
  ASSERT_EQ(source->n_samples(), 2);
  const Batch batch = SampleEval(source, {.seq = 4}).at(0, 4);
  EXPECT_THAT(batch.ints("tokens"), ElementsAre(1, 5, 2, 9, 1, 2, 9, 9, 1, 6, 7, 2, 1, 8, 2, 9));
  EXPECT_THAT(batch.lengths, ElementsAre(3, 2, 4, 3));
}

TEST(TokenRows, what_a_row_has_comes_with_it_and_is_part_of_the_identity) {
  TokenRows rows;
  rows.add_row(std::vector<int32_t>{1, 5, 2}, std::vector<int32_t>{0, 0, 1});
  rows.add_row(std::vector<int32_t>{1, 2}, std::vector<int32_t>{0, 1});
  rows.of_rows.push_back({row_label_input("labels"), std::vector<int32_t>{1, kIgnoredLabel}});
  const TokenRowsOptions options{.token_types = token_types_input()};
  const auto source = token_rows(rows, options);
  const Batch batch = SampleEval(source, {.seq = 3}).at(0, 2);
  EXPECT_THAT(batch.ints("token_types"), ElementsAre(0, 0, 1, 0, 1, 0));
  EXPECT_THAT(batch.ints("labels"), ElementsAre(1, kIgnoredLabel));
  const RowOptions in_order{.seq = 3, .order = WindowOrder::sequential};
  EXPECT_EQ(RowLoader(source, in_order).count(1).n_labels(), 1);
  EXPECT_EQ(RowLoader(source, in_order).count(2).n_labels(), 1);
  rows.of_rows[0].values = std::vector<int32_t>{0, kIgnoredLabel};
  EXPECT_NE(token_rows(rows, options)->identity(), source->identity());
}

}  // namespace
}  // namespace octet
