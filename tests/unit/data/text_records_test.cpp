#include "data/text_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/row_plan.h"
#include "data/token_rows.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::data_text_records_test {
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

TEST(TextRecords, a_line_that_is_no_json_is_told_with_its_fault) {
  const ScratchFolder folder;
  std::string told;
  const Log log([&](LogLevel, const std::string& line) { told += line + "\n"; });
  LeftOut left_out(log);
  const std::string path = folder.put("a.jsonl", "{\"source\": \"a\", \"target\": \"b\"}\n{bad\n");
  EXPECT_EQ(read_text_records(posix_files(), {path}, {}, ReadLabels::none, left_out).size(), 1U);
  left_out.finish();
  EXPECT_THAT(told, testing::HasSubstr("a.jsonl:2 is left out: expected JSON, got a mistake at"));
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
  EXPECT_THAT(read(folder, "a.tsv", table, {.text = "sentence2", .pair = "label", .label = "none"},
                   ReadLabels::partners)
                  .records,
              ElementsAre("\"b|1||:2", "d|0||:3"));
}

TEST(TextRecords, two_fields_may_name_one_column) {
  const ScratchFolder folder;
  const TextFields twice = {.text = "a", .pair = "a"};
  EXPECT_THAT(read(folder, "t.tsv", "a\tlabel\nx\t1\n", twice).records, ElementsAre("x|x|1|:2"));
  EXPECT_THAT(read(folder, "t.jsonl", "{\"a\": \"x\", \"label\": 1}\n", twice).records,
              ElementsAre("x|x|1|:1"));
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

TEST(TextRecords, without_a_text_or_with_a_hidden_label_are_left_out) {
  const ScratchFolder folder;
  const ReadTexts one = read(folder, "a.tsv", "text\tlabel\n \t1\nb\t1\nc\t-1\n");
  EXPECT_THAT(one.records, ElementsAre("b|none|1|:3"));
  EXPECT_THAT(one.messages,
              ElementsAre("[data] :2 is left out: expected a text, got an empty one",
                          "[data] :4 is left out: expected a label, got '-1', which is none",
                          "[data] 2 lines are left out in all"));
  // Of two texts one may be empty; of an empty source or target their reader tells.
  EXPECT_THAT(read(folder, "b.tsv", "premise\thypothesis\tlabel\na\t\t1\n\t\t1\n").records,
              ElementsAre("a||1|:2"));
  EXPECT_THAT(read(folder, "c.tsv", "source\ttarget\na\tb\nc\t\n", {}, ReadLabels::none).records,
              ElementsAre("a|b||:2", "c|||:3"));
}

TEST(TextRecords, columns_of_one_name_are_refused) {
  const ScratchFolder folder;
  for (const char* names : {"text\tlabel\tlabel", "text\tx\tx\tlabel"}) {
    const std::string twice = std::string(names).find('x', 5) < 7 ? "x" : "label";
    EXPECT_EQ(error_of([&] { read(folder, "a.tsv", names); }, folder.path()),
              "[data] DIR/a.tsv: expected columns of different names, got '" + twice + "' twice");
  }
}

TEST(TextRecords, other_files_of_a_folder_are_told) {
  const ScratchFolder folder;
  folder.put("f/a.tsv", "text\tlabel\na\t1\n");
  folder.put("f/b.csv", "text,label\n");
  std::vector<std::string> told;
  const Log log([&](LogLevel, const std::string& line) { told.push_back(line); });
  LeftOut left_out(log);
  EXPECT_EQ(read_text_records(posix_files(), {folder / "f"}, {}, ReadLabels::yes, left_out).size(),
            1u);
  EXPECT_THAT(told, ElementsAre("[data] '" + (folder / "f") +
                                "': 1 of 2 files are not read, as they are not named .jsonl, "
                                ".ndjson, .json, .tsv (" +
                                (folder / "f/b.csv") + ")"));
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

// Negatives of pairs alone, by their usual names or by those named; a record without one is left
// out.
TEST(TextRecords, texts_that_do_not_mean_the_same_are_read_beside_a_pair) {
  const ScratchFolder folder;
  const Log log([](LogLevel, const std::string&) {});
  const auto negatives = [&](const std::string& path, const std::vector<std::string>& names) {
    TextFields fields;
    fields.negatives = names;
    LeftOut left_out(log);
    std::vector<std::vector<std::string>> all;
    for (TextRecord& one :
         read_text_records(posix_files(), {path}, fields, ReadLabels::partners, left_out))
      all.push_back(std::move(one.negatives));
    return all;
  };
  const std::string table = folder.put(
      "t.tsv", "id\tanchor\tpositive\tnegative_2\tnegative\tnegatives\n1\ta\tb\tc\td\te\n");
  EXPECT_THAT(text_negatives(posix_files(), {table}), ElementsAre("negative_2", "negative"));
  EXPECT_THAT(negatives(table, {"negative_2", "negative"}), ElementsAre(ElementsAre("c", "d")));
  EXPECT_THAT(negatives(table, {"negative", "positive", "negative"}),
              ElementsAre(ElementsAre("d", "b", "d")));
  EXPECT_THAT(negatives(table, {}), ElementsAre(ElementsAre()));
  EXPECT_THAT(negatives(table, {"negative", "negative"}), ElementsAre(ElementsAre("d", "d")));
  const std::string lines =
      folder.put("t.jsonl",
                 "{\"query\": \"a\", \"positive\": \"b\", \"hard\": \"c\", \"negative\": [\"d\"]}\n"
                 "{\"query\": \"e\", \"positive\": \"f\", \"negative\": \"g\"}\n");
  EXPECT_THAT(text_negatives(posix_files(), {lines}), ElementsAre("negative"));
  EXPECT_THAT(negatives(lines, {"negative"}), ElementsAre(ElementsAre("g")));
  // Names of the first line that has some.
  const std::string marked =
      folder.put("m.tsv", "\xEF\xBB\xBFnegative\tanchor\tpositive\na\tb\tc\n");
  EXPECT_THAT(text_negatives(posix_files(), {marked}), ElementsAre("negative"));
  const std::string other = folder.put("o.jsonl", "7\n{\"query\": \"a\", \"negative\": \"b\"}\n");
  EXPECT_THAT(text_negatives(posix_files(), {other}), ElementsAre("negative"));
  EXPECT_THAT(negatives(lines, {"hard"}), ElementsAre(ElementsAre("c")));
  EXPECT_EQ(error_of(
                [&] {
                  negatives(lines, {"auto", "hard"});
                },
                folder.path()),
            "[data] DIR/t.jsonl: expected a negative 'auto', got query, positive, hard, negative");
  EXPECT_EQ(error_of([&] { negatives(table, {"hard"}); }, folder.path()),
            "[data] DIR/t.tsv: expected a negative 'hard', got id, anchor, positive, negative_2, "
            "negative, negatives");
}

TEST(TextRecords, a_label_of_pairs_says_which_are_partners_or_is_left_alone) {
  const ScratchFolder folder;
  const std::string table =
      "question1\tquestion2\tis_duplicate\na\tb\t1\nc\td\t0\ne\tf\t1.0\ng\th\t\n";
  TextFields fields;
  const auto pairs = [&](const std::string& name, const std::string& content) {
    return read(folder, name, content, fields, ReadLabels::partners);
  };
  const std::string refused =
      "'is_duplicate' may say which pairs mean the same: expected data.fields.partners, the labels "
      "of those that do ([1]), or data.fields.label: none, of pairs that all do";
  EXPECT_EQ(error_of([&] { pairs("t.tsv", table); }, folder.path()),
            "[data] DIR/t.tsv: " + refused);
  // In any record.
  EXPECT_EQ(error_of(
                [&] {
                  pairs("t.jsonl",
                        "{\"anchor\": \"a\", \"positive\": \"b\"}\n"
                        "{\"anchor\": \"a\", \"positive\": \"b\", \"is_duplicate\": 0}\n");
                },
                folder.path()),
            "[data] DIR/t.jsonl:2: " + refused);
  fields.partners = {"1", "yes"};
  EXPECT_THAT(pairs("t.tsv", table).records, ElementsAre("a|b|1|:2", "e|f|1.0|:4"));
  EXPECT_THAT(pairs("t.tsv", table).messages,
              ElementsAre("[data] 2 of 4 pairs are left out: their label is not 1, yes"));
  EXPECT_THAT(pairs("t.jsonl",
                    "{\"anchor\": \"a\", \"positive\": \"b\", \"label\": true}\n"
                    "{\"anchor\": \"c\", \"positive\": \"d\", \"label\": \"no\"}\n")
                  .records,
              ElementsAre("a|b|1|:1"));
  fields.label = "none";
  EXPECT_EQ(error_of([&] { pairs("t.tsv", table); }, folder.path()),
            "data.fields.partners: expected none beside data.fields.label: none, got 1, yes");
  fields = {.label = "none"};
  EXPECT_EQ(pairs("t.tsv", table).records.size(), 4u);
  EXPECT_THAT(pairs("t.tsv", table).messages,
              ElementsAre("[data] : nothing is read of is_duplicate"));
}

TEST(TextRecords, translations_under_their_languages_are_read_by_these) {
  const ScratchFolder folder;
  const std::string lines = R"({"id": 1, "translation": {"de": "ja", "en": "yes"}})"
                            "\n"
                            R"({"id": 2, "translation": {"en": "no", "de": "nein"}})"
                            "\n";
  EXPECT_THAT(
      read(folder, "a.jsonl", lines, {.text = "en", .pair = "de"}, ReadLabels::none).records,
      ElementsAre("yes|ja||:1", "no|nein||:2"));
  EXPECT_EQ(error_of([&] { read(folder, "b.jsonl", lines, {}, ReadLabels::none); }, folder.path()),
            "[data] DIR/b.jsonl: expected source and target, src and tgt or the like "
            "(data.fields.text, data.fields.pair), got id, de, en");
}

TEST(TextRecords, columns_that_nothing_is_read_of_are_told) {
  const ScratchFolder folder;
  EXPECT_THAT(read(folder, "t.tsv", "index\ttext\tlabel\tscore\n0\ta\t1\t2\n").messages,
              ElementsAre("[data] : nothing is read of index, score"));
  EXPECT_THAT(read(folder, "t.jsonl",
                   "{\"text\": \"a\", \"label\": 1}\n"
                   "{\"text\": \"b\", \"label\": 1, \"why\": \"c\"}\n")
                  .messages,
              ElementsAre("[data] : nothing is read of why"));
  std::string many;
  for (int i = 0; i < 40; ++i)
    many += fmt::format("{{\"text\": \"a\", \"label\": 1, \"id{}\": 0}}\n", i);
  EXPECT_THAT(read(folder, "t.jsonl", many).messages,
              ElementsAre(testing::EndsWith("of id0, id1, id2, id3, id4, id5, id6, id7, id8, id9, "
                                            "id10, id11 and 28 more")));
}

}  // namespace
}  // namespace octet::data_text_records_test
